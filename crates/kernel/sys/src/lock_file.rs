//! Lock files: processes of root's that change the same thing do it one after the other.
//!
//! A lock is taken on a file below `/run/evenkeel` that root alone can open. A lock on a file that others can open, such as a namespace's in
//! /proc, is theirs to hold for as long as they like.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use nix::fcntl::{Flock, FlockArg};

use crate::{
    RUN_FOLDER,
    owner::{Distrust, trusted_folder},
};

/// The extension of locks' names.
const LOCK: &str = "lock";
/// Longest wait for a lock.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_PERIOD: Duration = Duration::from_millis(5);

/// Flags by which this process is told to end.
static STOPS: Mutex<Vec<Arc<AtomicBool>>> = Mutex::new(Vec::new());

/// Errors of taking a lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{holder} holds the lock {} for more than {} s: wait until it is done, or end it", path.display(), WAIT_TIMEOUT.as_secs())]
    Held { path: PathBuf, holder: String },
    #[error("this process was told to end while it waited for the lock {}, which {holder} holds", path.display())]
    Stopped { path: PathBuf, holder: String },
    #[error("cannot {operation} {}: {source}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
}

impl LockError {
    /// True if this process may not open the lock, as it is not root's.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

impl From<LockError> for io::Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { .. } => Self::new(io::ErrorKind::TimedOut, error),
            LockError::Stopped { .. } => Self::new(io::ErrorKind::Interrupted, error),
            LockError::File { .. } => Self::other(error),
        }
    }
}

/// Has waits of this process end once `stop` is set: by a signal that would otherwise be noticed behind the wait alone.
pub fn ends_waits(stop: &Arc<AtomicBool>) {
    STOPS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(stop));
}

/// True if this process was told to end ([`ends_waits`]).
pub fn is_stopping() -> bool {
    STOPS.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|stop| stop.load(Ordering::Relaxed))
}

/// Reasons to end a wait for the lock early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The timeout, or a signal that ends this process.
    Stopped,
    /// The timeout alone: this process is ending, and cleans up.
    Timeout,
}

/// A held lock. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct LockFile {
    _lock: Flock<File>,
    path: PathBuf,
}

impl LockFile {
    /// Waits for the lock of that name, up to 30 seconds.
    ///
    /// # Errors
    /// Another process holds it, named by number and program; the folder or the file is not root's (or this user's) alone.
    pub fn take(name: &str, until: Until) -> Result<Self, LockError> {
        Self::take_in(Path::new(RUN_FOLDER), name, until, WAIT_TIMEOUT)
    }

    fn take_in(folder: &Path, name: &str, until: Until, limit: Duration) -> Result<Self, LockError> {
        let path = folder.join(format!("{name}.{LOCK}"));
        let began = Instant::now();
        let mut file = None;
        loop {
            let next = match file.take() {
                Some(file) => file,
                None => match open(folder, &path) {
                    Ok(file) => file,
                    // Whoever made the folder has just removed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && began.elapsed() < limit => continue,
                    Err(source) => return Err(LockError::File { operation: "use the lock", path, source }),
                },
            };
            match Flock::lock(next, FlockArg::LockExclusiveNonblock) {
                Ok(lock) if is_at(&lock, &path) => return Ok(Self { _lock: lock, path }),
                // Whoever held it before has removed the file: others lock another one.
                Ok(_) => {}
                Err((next, nix::errno::Errno::EWOULDBLOCK)) => {
                    if until == Until::Stopped && is_stopping() {
                        return Err(LockError::Stopped { holder: holder(&next), path });
                    }
                    if began.elapsed() >= limit {
                        return Err(LockError::Held { holder: holder(&next), path });
                    }
                    sleep(RETRY_PERIOD);
                    file = Some(next);
                }
                Err((_, errno)) => return Err(LockError::File { operation: "lock", path, source: errno.into() }),
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if let Some(folder) = self.path.parent() {
            remove_left(folder);
        }
        // While it is still locked: whoever waits for it looks whether it is the one at the path. One that stays is only one file more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes locks that nobody holds: a process that was killed with one leaves it.
fn remove_left(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension() != Some(OsStr::new(LOCK)) {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path)
        else {
            continue;
        };
        // Removed while it is locked, as a held lock's own is.
        if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            && is_at(&lock, &path)
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Opens the lock, which nobody but root and this user can open.
fn open(folder: &Path, path: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    trusted_folder(folder)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    let meta = file.metadata()?;
    let distrust = |distrust| Err(io::Error::other(distrust));
    match meta.uid() {
        _ if !meta.is_file() => distrust(Distrust::Kind { path: path.to_owned() }),
        uid if uid != 0 && uid != nix::unistd::geteuid().as_raw() => {
            distrust(Distrust::Owner { path: path.to_owned(), uid })
        }
        _ if meta.mode() & 0o077 != 0 => distrust(Distrust::Mode { path: path.to_owned(), mode: meta.mode() & 0o7777 }),
        _ => Ok(file),
    }
}

/// True if `path` still leads to that file.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |found: fs::Metadata| Ok((found.dev(), found.ino()) == file.metadata().map(|of| (of.dev(), of.ino()))?);
    fs::symlink_metadata(path).and_then(same).unwrap_or(false)
}

/// The process that holds a lock on the file at `path`, by proc_locks(5); none: no process of this PID namespace.
pub fn flock_holder(path: &Path) -> Option<u32> {
    holder_of(&fs::symlink_metadata(path).ok()?)
}

fn holder_of(file: &fs::Metadata) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locked_by(&locks, file.dev(), file.ino())
}

/// Number and name of the process that holds a lock on the file.
fn holder(file: &File) -> String {
    let Some(pid) = file.metadata().ok().and_then(|file| holder_of(&file)) else {
        return "a process that cannot be seen from here".to_owned();
    };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim_end() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({})", name.escape_debug()),
    }
}

/// The process that has a lock of flock(2) on a file: `1: FLOCK  ADVISORY  WRITE 708 00:1b:1234 0 EOF`.
fn locked_by(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{ino}", libc::major(dev), libc::minor(dev));
    let of = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, at, ..] = words[..] else { return None };
        // Of another PID namespace it is 0.
        pid.parse().ok().filter(|&pid| at == file && pid != 0)
    };
    locks.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, thread};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ek-lock-{name}-{}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }

        fn take(&self, until: Until, limit_ms: u64) -> Result<LockFile, LockError> {
            LockFile::take_in(&self.0, "test", until, Duration::from_millis(limit_ms))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_holder_is_named_and_the_file_goes_with_the_last_turn() {
        let folder = Folder::new("held");
        let held = folder.take(Until::Timeout, 100).unwrap();
        let Err(error @ LockError::Held { .. }) = folder.take(Until::Timeout, 50) else { panic!("it is held") };
        assert!(error.to_string().contains(&format!("process {} (", std::process::id())), "{error}");
        let waits = thread::scope(|scope| {
            let waits = scope.spawn(|| folder.take(Until::Timeout, 60_000));
            drop(held);
            waits.join().unwrap()
        });
        drop(waits.unwrap());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_left_by_a_killed_process_goes_with_the_next_turn_of_any_name() {
        let folder = Folder::new("left");
        let held = folder.0.join("held.lock");
        for name in [&held, &folder.0.join("left.lock"), &folder.0.join("other")] {
            fs::write(name, "").unwrap();
        }
        let lock = Flock::lock(File::open(&held).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
        drop(folder.take(Until::Timeout, 100).unwrap());
        let mut names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["held.lock", "other"]);
        drop(lock);
    }

    #[test]
    fn a_signal_to_end_ends_the_wait_but_not_that_of_cleaning_up() {
        let folder = Folder::new("stop");
        let held = folder.take(Until::Timeout, 100).unwrap();
        let stop = Arc::new(AtomicBool::new(true));
        ends_waits(&stop);
        assert!(matches!(folder.take(Until::Stopped, 60_000), Err(LockError::Stopped { .. })));
        assert!(matches!(folder.take(Until::Timeout, 20), Err(LockError::Held { .. })));
        drop(held);
        folder.take(Until::Stopped, 60_000).expect("a free one is taken at once");
        stop.store(false, Ordering::Relaxed);
    }

    #[test]
    fn a_lock_or_folder_that_others_can_open_is_refused() {
        let folder = Folder::new("mode");
        let path = folder.0.join("test.lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(folder.take(Until::Timeout, 10).unwrap_err().to_string().contains("0644"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(folder.take(Until::Timeout, 10).is_err(), "a link leads elsewhere");
        fs::remove_file(&path).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(folder.take(Until::Timeout, 10).unwrap_err().to_string().contains("0777"));
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        folder.take(Until::Timeout, 10).unwrap();
    }

    #[test]
    fn the_lock_of_a_file_is_found_among_all() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1b:99 0 EOF\n2: FLOCK  ADVISORY  WRITE 708 00:1b:1234 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 00:1b:5 0 EOF\n";
        let dev = libc::makedev(0, 0x1b);
        assert_eq!(locked_by(locks, dev, 1234), Some(708));
        assert_eq!(locked_by(locks, dev, 5), None);
        assert_eq!(locked_by(locks, dev, 99), None);
    }
}
