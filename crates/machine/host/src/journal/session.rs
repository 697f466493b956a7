//! A session of the journal: reading it, and appending to it durably.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use nix::{fcntl::OFlag, libc};
use sys::owner;

use super::{Header, JournalError, Outcome, Record, Writer, file_error};
use crate::{knob::Change, namespace};

/// A change of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The change; `old` is what was read just before the write.
    pub change: Change,
    /// The end of the write; none when the process died before it could say.
    pub outcome: Option<Outcome>,
    /// The note of undo; such a step needs no more undoing.
    pub undone: Option<String>,
}

impl Step {
    /// The value the knob should have now if nobody else wrote it: what was read back, else what was written.
    pub fn ours(&self) -> &str {
        match &self.outcome {
            Some(Outcome::Done { read_back }) => read_back,
            _ => &self.change.new,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The process and the time.
    pub header: Header,
    /// The changes in order.
    pub steps: Vec<Step>,
    /// The guardian's process, when there was one.
    pub guardian: Option<u32>,
    pub confirmed: bool,
    /// The guardian reverted it, for this reason.
    pub reverted: Option<String>,
    /// The time of the last step that was taken back, in nanoseconds since the epoch; none in journals of earlier versions.
    pub undone_unix_ns: Option<u64>,
    path: PathBuf,
}

impl Session {
    fn new(header: Header, path: PathBuf) -> Self {
        let steps = Vec::new();
        Self { header, steps, guardian: None, confirmed: false, reverted: None, undone_unix_ns: None, path }
    }

    /// Begins a session with a file of its own.
    pub fn begin(writer: &Writer, command: &str) -> Result<Self, JournalError> {
        let (pid, boot_id) = (std::process::id(), boot_id()?);
        let this = loop {
            let started_unix_ns = unix_ns();
            let session = format!("{started_unix_ns}-{pid}");
            let path = writer.journal().folder().join(format!("{session}.jsonl"));
            // Two sessions in one file would be neither.
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(file_error("write", &path, e)),
            }
            let (boot_id, command, netns) = (boot_id.clone(), command.to_owned(), namespace::own().ok());
            let header = Header { session, started_unix_ns, boot_id, pid, command, netns };
            break Self::new(header, path);
        };
        this.append(&Record::Begin(this.header.clone()))?;
        // The new name must survive a crash too.
        let folder = writer.journal().folder();
        fs::File::open(folder).and_then(|f| f.sync_all()).map_err(|e| file_error("sync", folder, e))?;
        Ok(this)
    }

    /// Reads a session file. A torn last line is ignored: the change it would have announced was never made. None when
    /// not even the first line is whole.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, JournalError> {
        let odd = |what| JournalError::Odd { path: path.to_path_buf(), what };
        let failed = |e: io::Error| match e.kind() {
            _ if e.raw_os_error() == Some(libc::ELOOP) => odd("a symbolic link"),
            io::ErrorKind::InvalidData => odd("not text"),
            _ => file_error("read", path, e),
        };
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let mut file = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        owner::trusted(path, &meta)?;
        if !meta.is_file() {
            return Err(odd("no regular file"));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut session: Option<Self> = None;
        for (index, line) in whole.lines().enumerate() {
            let damaged =
                |problem: String| JournalError::Damaged { path: path.to_path_buf(), line: index + 1, problem };
            let record: Record = serde_json::from_str(line).map_err(|e| damaged(e.to_string()))?;
            match (&mut session, record) {
                (None, Record::Begin(header)) => {
                    session = Some(Self::new(header, path.to_path_buf()));
                }
                (None, _) => return Err(damaged("the first record must be `begin`".into())),
                (Some(s), record) => s.take(record).map_err(damaged)?,
            }
        }
        Ok(session)
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Begin(_) => return Err("a second `begin`".into()),
            Record::Pending { step, change } => {
                if step as usize != self.steps.len() {
                    return Err(format!("step {step} where {} was due", self.steps.len()));
                }
                change.knob.check()?;
                self.steps.push(Step { change, outcome: None, undone: None });
            }
            Record::Ended { step, outcome } => self.step(step)?.outcome = Some(outcome),
            Record::Undone { step, note, at_unix_ns } => {
                self.step(step)?.undone = Some(note);
                self.undone_unix_ns = at_unix_ns;
            }
            Record::Guarded { pid, .. } => self.guardian = Some(pid),
            Record::Confirmed => self.confirmed = true,
            Record::Reverted { reason, .. } => self.reverted = Some(reason),
        }
        Ok(())
    }

    fn step(&mut self, step: u32) -> Result<&mut Step, String> {
        self.steps.get_mut(step as usize).ok_or_else(|| format!("step {step} was never announced"))
    }

    /// Writes a record, waits until it is on the disk, and takes it over.
    pub(super) fn record(&mut self, record: Record) -> Result<(), JournalError> {
        self.append(&record)?;
        self.take(record).map_err(|problem| JournalError::Damaged { path: self.path.clone(), line: 0, problem })
    }

    /// Notes the guardian of this session.
    pub fn guarded(&mut self, pid: u32, deadline_boottime_ms: u64) -> Result<(), JournalError> {
        self.record(Record::Guarded { pid, deadline_boottime_ms })
    }

    /// Notes that the user confirmed: the guardian then ends without reverting.
    pub fn confirm(&mut self, _writer: &Writer) -> Result<(), JournalError> {
        self.record(Record::Confirmed)
    }

    pub(super) fn note_reverted(&mut self, reason: &str, complete: bool) -> Result<(), JournalError> {
        self.record(Record::Reverted { reason: reason.to_owned(), complete })
    }

    /// Notes that a step needs no more undoing; the note stays in memory also if it cannot be written.
    pub(super) fn note_undone(&mut self, step: usize, note: String) -> Result<(), JournalError> {
        let number = u32::try_from(step).unwrap_or(u32::MAX);
        let at_unix_ns = Some(unix_ns());
        let written = self.append(&Record::Undone { step: number, note: note.clone(), at_unix_ns });
        self.steps[step].undone = Some(note);
        self.undone_unix_ns = at_unix_ns;
        written
    }

    fn append(&self, record: &Record) -> Result<(), JournalError> {
        self.drop_torn_tail().map_err(|e| file_error("repair", &self.path, e))?;
        let mut line = serde_json::to_string(record).map_err(|e| file_error("write", &self.path, e.into()))?;
        line.push('\n');
        let write = || -> io::Result<()> {
            let mut file = fs::OpenOptions::new().append(true).open(&self.path)?;
            file.write_all(line.as_bytes())?;
            file.sync_data()
        };
        write().map_err(|e| file_error("write", &self.path, e))
    }

    /// Cuts off a line that a crash left half written, so that the next record starts on a line of its own.
    fn drop_torn_tail(&self) -> io::Result<()> {
        let bytes = fs::read(&self.path)?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        if whole == bytes.len() {
            return Ok(());
        }
        fs::OpenOptions::new().write(true).open(&self.path)?.set_len(whole as u64)
    }

    /// True if the session belongs to this boot; the knobs of an earlier one are gone with it.
    pub fn is_of_this_boot(&self) -> Result<bool, JournalError> {
        Ok(self.header.boot_id == boot_id()?)
    }

    /// True if a step may still differ from what it was.
    pub fn is_open(&self) -> bool {
        self.steps.iter().any(|s| s.undone.is_none())
    }

    /// Order of sessions in time.
    pub(super) fn age(&self) -> (u64, &str) {
        (self.header.started_unix_ns, &self.header.session)
    }

    /// The network namespace whose settings this session changed, when that is not ours and a step still stands there.
    pub fn other_netns(&self) -> Option<u64> {
        let stands_there = self.steps.iter().any(|s| s.undone.is_none() && s.change.knob.is_of_netns());
        self.header.netns.filter(|&theirs| stands_there && namespace::own().ok().is_some_and(|ours| ours != theirs))
    }

    /// True if the guardian's process is there (and not another one under its number).
    pub fn guardian_lives(&self) -> bool {
        let command = self.guardian.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).ok());
        command.is_some_and(|text| text.split('\0').any(|word| word == self.header.session))
    }

    /// True if a guardian waits for a confirmation of this session.
    pub fn awaits_confirmation(&self) -> bool {
        self.guardian.is_some() && !self.confirmed && self.reverted.is_none() && self.is_open()
    }
}

/// Now, in nanoseconds since the epoch.
fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

fn boot_id() -> Result<String, JournalError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    fs::read_to_string(path).map(|t| t.trim().to_owned()).map_err(|e| file_error("read", path, e))
}
