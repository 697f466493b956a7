//! Every change of the machine, on disk before it is made and read back after it; undo walks it backwards.
//!
//! A journal is a folder with one file per session, each a list of JSON lines ([`record::Record`]) that is only ever
//! appended to and synced to the disk before the change it announces is made. So at any moment, also after a crash or a
//! `kill -9`, the file names every knob that may differ from what it was.
//!
//! A verb or a service that changes the machine takes the right to write ([`Journal::lock_for_changes`]), begins a [`Transaction`], puts it on
//! trial if it is to be confirmed ([`Session::on_trial`]), and makes its plan. [`Moves`] are for what is changed now and then.

mod apply;
mod guardian;
mod moves;
mod record;
mod session;
mod transaction;
mod trial;
mod undo;

use std::{
    fs,
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{Flock, FlockArg, OFlag},
    unistd::geteuid,
};
use sys::owner::{self, Distrust};

pub use apply::{Applied, ApplyError};
pub use guardian::{DropRate, Guardian, Verdict, drops_rose, leave_control_group};
pub use moves::{MoveError, Moves, MovesUndone};
pub use record::{Header, Outcome, Record};
pub use session::{Session, Step};
pub use transaction::{RolledBack, Transaction, TransactionError, needed, settings};
pub use trial::{Armed, Trial, TrialError, run_guardian};
pub use undo::{StepReport, StepState, UndoOptions, UndoReport};

/// The folder used when neither `--state` nor EVENKEEL_STATE names another one; the journal is its subfolder `journal`.
pub const DEFAULT_STATE: &str = "/var/lib/evenkeel";

/// Time after which a lock that another process holds is not waited for any longer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two tries to get the lock.
const RETRY_PERIOD: Duration = Duration::from_millis(50);

/// The journal could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {operation} {path}: {source}; {}", way_out(source))]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("another evenkeel ({holder}) is changing this machine; wait until it ends")]
    Locked { holder: String },
    #[error("{path}, line {line}, is not a journal record ({problem}); move the file away to go on without it")]
    Damaged { path: PathBuf, line: usize, problem: String },
    #[error("{path} is {what}, and no journal; move the file away to go on without it")]
    Odd { path: PathBuf, what: &'static str },
    #[error(
        "the journal is refused: {0}; undo writes what it says, so it must belong to root or you; move it away, or name another folder with --state"
    )]
    Foreign(#[from] Distrust),
    #[error("`{session}` is the short name of several sessions; give the full one: {full}")]
    SeveralSessions { session: String, full: String },
    #[error("there is no session `{session}` in {folder}; `evenkeel undo --list` shows them")]
    NoSuchSession { session: String, folder: PathBuf },
}

/// The short name of a session: the last six digits of its nanoseconds. It says the same session as long as no other one ends in them.
pub fn short_name(session: &str) -> &str {
    let time = session.split('-').next().unwrap_or(session);
    time.get(time.len().saturating_sub(6)..).unwrap_or(time)
}

model::classified!(JournalError: Lacking, Usage: NoSuchSession SeveralSessions);

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
    _lock: Option<Flock<fs::File>>,
}

impl Journal {
    /// The journal in the state folder `state`, or in the one that EVENKEEL_STATE names, or in [`DEFAULT_STATE`]. Nothing
    /// is created before the first change.
    pub fn at(state: Option<&Path>) -> Self {
        let state = state
            .map(Path::to_path_buf)
            .or_else(|| std::env::var_os("EVENKEEL_STATE").filter(|v| !v.is_empty()).map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DEFAULT_STATE));
        // The guardian has another working folder.
        let state = std::path::absolute(&state).unwrap_or(state);
        Self { folder: state.join("journal") }
    }

    /// The folder of the session files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The state folder that it lies in.
    pub fn state(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// Every session, oldest first. A folder that does not exist holds none.
    pub fn sessions(&self) -> Result<Vec<Session>, JournalError> {
        let (sessions, unreadable) = self.readable()?;
        unreadable.into_iter().next().map_or(Ok(sessions), Err)
    }

    /// Every session that can be read, oldest first, and what is wrong with the other files.
    pub fn readable(&self) -> Result<(Vec<Session>, Vec<JournalError>), JournalError> {
        let (mut sessions, mut unreadable) = (Vec::new(), Vec::new());
        for path in self.files()? {
            match Session::load(&path) {
                Ok(session) => sessions.extend(session),
                Err(error) => unreadable.push(error),
            }
        }
        sessions.sort_by(|a, b| a.age().cmp(&b.age()));
        Ok((sessions, unreadable))
    }

    /// The session called `name`, in full or by its short name. Damage in another one's file does not matter.
    pub fn session(&self, name: &str) -> Result<Session, JournalError> {
        let missing = || JournalError::NoSuchSession { session: name.to_owned(), folder: self.folder.clone() };
        self.check_owner()?;
        if name.contains('/') {
            return Err(missing());
        }
        let whole = self.folder.join(format!("{name}.jsonl"));
        if whole.exists() {
            return Session::load(&whole)?.ok_or_else(missing);
        }
        let full = |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let meant: Vec<PathBuf> =
            self.files()?.into_iter().filter(|path| full(path).is_some_and(|full| short_name(&full) == name)).collect();
        match &meant[..] {
            [one] => Session::load(one)?.ok_or_else(missing),
            [] => Err(missing()),
            several => Err(JournalError::SeveralSessions {
                session: name.to_owned(),
                full: several.iter().filter_map(full).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The sessions that began after `session` and still stand, as far as they can be read, oldest first.
    fn standing_after(&self, session: &Session) -> Vec<Session> {
        let all = self.files().unwrap_or_default();
        let loaded = all.iter().filter_map(|path| Session::load(path).ok().flatten());
        let is_later =
            |s: &Session| s.header.boot_id == session.header.boot_id && s.age() > session.age() && s.is_open();
        let mut later: Vec<Session> = loaded.filter(is_later).collect();
        later.sort_by(|a, b| a.age().cmp(&b.age()));
        later
    }

    fn files(&self) -> Result<Vec<PathBuf>, JournalError> {
        self.check_owner()?;
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(file_error("read", &self.folder, source)),
        };
        let mut paths: Vec<PathBuf> =
            entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "jsonl")).collect();
        paths.sort();
        Ok(paths)
    }

    /// Takes the right to write as soon as nobody else has it; whoever has it for ten seconds is not waited for any longer.
    pub fn lock_waiting(&self) -> Result<Writer, JournalError> {
        self.lock_within(LOCK_TIMEOUT)
    }

    /// Takes the right to write, for changes to come: a journal that cannot be read could not take them back.
    pub fn lock_for_changes(&self) -> Result<Writer, JournalError> {
        let writer = self.lock()?;
        self.sessions()?;
        Ok(writer)
    }

    fn lock_within(&self, timeout: Duration) -> Result<Writer, JournalError> {
        let end = Instant::now() + timeout;
        loop {
            match self.lock() {
                Err(JournalError::Locked { .. }) if Instant::now() < end => thread::sleep(RETRY_PERIOD),
                other => return other,
            }
        }
    }

    /// Refuses a journal that somebody else could have written: undo writes what it says to the files that it names.
    fn check_owner(&self) -> Result<(), JournalError> {
        for folder in self.folder.parent().into_iter().chain([self.folder.as_path()]) {
            match fs::metadata(folder) {
                Ok(meta) => owner::trusted(folder, &meta)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(file_error("look at", folder, source)),
            }
        }
        Ok(())
    }

    /// Makes the folder, for this user alone. One that an earlier version left open to readers is closed: whoever can open the lock
    /// can hold it.
    fn make(&self) -> Result<(), JournalError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|e| file_error("create", &self.folder, e))?;
        self.check_owner()?;
        if fs::metadata(&self.folder).is_ok_and(|it| it.uid() == geteuid().as_raw() && it.mode() & 0o077 != 0) {
            // On a disk that is read-only by now it stays as it is.
            let _ = fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700));
        }
        Ok(())
    }

    /// Takes the right to write, or says who has it.
    pub fn lock(&self) -> Result<Writer, JournalError> {
        self.make()?;
        let path = self.folder.join("lock");
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let open = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags.bits())
            .open(&path);
        // What was changed can be put back also when the folder has become read-only.
        let open = open.or_else(|e| match e.kind() {
            io::ErrorKind::ReadOnlyFilesystem => fs::File::open(&path).map_err(|_| e),
            _ => Err(e),
        });
        let file = open.map_err(|e| file_error("open", &path, e))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
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
        // Only for the message to others: a full disk must not stand in the way of undo.
        let _ = lock
            .set_len(0)
            .and_then(|()| lock.seek(io::SeekFrom::Start(0)))
            .and_then(|_| writeln!(lock, "{}", std::process::id()));
        Ok(Writer { journal: self.clone(), _lock: Some(lock) })
    }

    /// A writer for the one who must act even though the lock cannot be had: a guardian at its deadline.
    fn without_lock(&self) -> Writer {
        Writer { journal: self.clone(), _lock: None }
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
