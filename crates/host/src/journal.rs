//! Every change of the machine, on disk before it is made and read back after it; undo walks it backwards.
//!
//! A journal is a folder with one file per session, each a list of JSON lines ([`record::Record`]) that is only ever
//! appended to and synced to the disk before the change it announces is made. So at any moment, also after a crash or a
//! `kill -9`, the file names every knob that may differ from what it was.

mod apply;
mod guardian;
mod record;
mod session;
mod undo;

use std::{
    fs,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use model::{Classified, ErrorClass};
use nix::fcntl::{Flock, FlockArg};

pub use apply::{Applied, ApplyError};
pub use guardian::{DropRate, Guardian, Verdict, drops_rose};
pub use record::{Header, Outcome, Record};
pub use session::{Session, Step};
pub use undo::{StepReport, StepState, UndoOptions, UndoReport};

/// The folder used when neither `--state` nor EVENKEEL_STATE names another one; the journal is its subfolder `journal`.
pub const DEFAULT_STATE: &str = "/var/lib/evenkeel";

/// The journal could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error("cannot {operation} {path}: {source}; {}", way_out(source))]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else is writing.
    #[error("another evenkeel ({holder}) is changing this machine; wait until it ends")]
    Locked {
        /// The process that holds the lock.
        holder: String,
    },
    /// A file is damaged beyond a torn last line.
    #[error("{path}, line {line}, is not a journal record ({problem}); move the file away to go on without it")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// No session has that name.
    #[error("there is no session `{session}` in {folder}; `evenkeel undo --list` shows them")]
    NoSuchSession {
        /// The name.
        session: String,
        /// The journal.
        folder: PathBuf,
    },
}

impl Classified for JournalError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::File { .. } | Self::Locked { .. } | Self::Damaged { .. } => ErrorClass::Lacking,
            Self::NoSuchSession { .. } => ErrorClass::Usage,
        }
    }
}

fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or name a folder on another disk with --state or EVENKEEL_STATE"
        }
        io::ErrorKind::PermissionDenied => "run as root, or name a folder of your own with --state or EVENKEEL_STATE",
        _ => "name a writable folder with --state or EVENKEEL_STATE",
    }
}

/// The folder of the sessions.
#[derive(Debug, Clone)]
pub struct Journal {
    folder: PathBuf,
}

/// The right to write to the journal and to the machine; one process at a time has it.
#[derive(Debug)]
pub struct Writer {
    journal: Journal,
    _lock: Flock<fs::File>,
}

impl Journal {
    /// The journal in the state folder `state`, or in the one that EVENKEEL_STATE names, or in [`DEFAULT_STATE`]. Nothing
    /// is created before the first change.
    pub fn at(state: Option<&Path>) -> Self {
        let state = state
            .map(Path::to_path_buf)
            .or_else(|| std::env::var_os("EVENKEEL_STATE").filter(|v| !v.is_empty()).map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DEFAULT_STATE));
        Self { folder: state.join("journal") }
    }

    /// The folder of the session files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every session, oldest first. A folder that does not exist holds none.
    pub fn sessions(&self) -> Result<Vec<Session>, JournalError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(file_error("read", &self.folder, source)),
        };
        let mut paths: Vec<PathBuf> =
            entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "jsonl")).collect();
        paths.sort();
        let mut sessions = Vec::new();
        for path in paths {
            sessions.extend(Session::load(&path)?);
        }
        sessions.sort_by(|a, b| {
            (a.header.started_unix_ns, &a.header.session).cmp(&(b.header.started_unix_ns, &b.header.session))
        });
        Ok(sessions)
    }

    /// The session called `name`.
    pub fn session(&self, name: &str) -> Result<Session, JournalError> {
        let missing = || JournalError::NoSuchSession { session: name.to_owned(), folder: self.folder.clone() };
        self.sessions()?.into_iter().find(|s| s.header.session == name).ok_or_else(missing)
    }

    /// Takes the right to write, or says who has it.
    pub fn lock(&self) -> Result<Writer, JournalError> {
        self.lock_with(FlockArg::LockExclusiveNonblock)
    }

    /// Takes the right to write as soon as nobody else has it.
    pub fn lock_waiting(&self) -> Result<Writer, JournalError> {
        self.lock_with(FlockArg::LockExclusive)
    }

    fn lock_with(&self, how: FlockArg) -> Result<Writer, JournalError> {
        fs::create_dir_all(&self.folder).map_err(|e| file_error("create", &self.folder, e))?;
        let path = self.folder.join("lock");
        let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(|e| file_error("open", &path, e))?;
        let mut lock = match Flock::lock(file, how) {
            Ok(lock) => lock,
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                let read = file.read_to_string(&mut holder);
                let holder = if read.is_ok() && !holder.is_empty() {
                    format!("process {}", holder.trim())
                } else {
                    "a process".into()
                };
                return Err(JournalError::Locked { holder });
            }
            Err((_, errno)) => return Err(file_error("lock", &path, errno.into())),
        };
        lock.set_len(0)
            .and_then(|()| lock.seek(io::SeekFrom::Start(0)))
            .and_then(|_| writeln!(lock, "{}", std::process::id()))
            .map_err(|e| file_error("write", &path, e))?;
        Ok(Writer { journal: self.clone(), _lock: lock })
    }
}

impl Writer {
    /// The journal this is the right to.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

fn file_error(operation: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::File { operation, path: path.to_path_buf(), source }
}
