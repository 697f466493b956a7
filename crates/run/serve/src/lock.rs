//! Locks by which one process at a time runs a service.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::fcntl::{Flock, FlockArg};

use crate::error::ServeError;

/// A lock that is held until it is dropped.
pub type Lock = Flock<File>;

/// A process that was killed holds its lock until the kernel has taken its programs down, which was seen to take up to two seconds.
const ENDING_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_PERIOD: Duration = Duration::from_millis(20);

/// Takes the lock at `path`, whose text is the id of the process that holds it. One that is ending is waited for, up to five seconds.
///
/// # Errors
/// [`ServeError::Locked`] if another process holds it; its file cannot be made or written.
pub fn lock(path: &Path) -> Result<Lock, ServeError> {
    let failed = |operation, source| ServeError::File { operation, path: path.to_owned(), source };
    let open = || {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = open.map_err(|source| failed("open", source))?;
        match file.metadata().is_ok_and(|file| file.is_file()) {
            true => Ok(file),
            false => Err(failed("use as a lock", std::io::Error::other("it is no plain file; remove it"))),
        }
    };
    let mut file = open()?;
    let start = Instant::now();
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            // Whoever held it before has removed the file: others lock another one.
            Ok(lock) if !is_at(&lock, path) => open()?,
            Ok(mut lock) => {
                let write =
                    lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
                write.map_err(|source| failed("write", source))?;
                return Ok(lock);
            }
            Err((mut file, _)) => {
                let mut pid = String::new();
                // A pid that cannot be read is not worth more than its question mark.
                let _ = file.rewind().and_then(|()| file.read_to_string(&mut pid));
                if !is_ending(&pid) || start.elapsed() > ENDING_TIMEOUT {
                    let pid = if pid.is_empty() { "?".into() } else { pid };
                    return Err(ServeError::Locked { path: path.to_owned(), pid });
                }
                thread::sleep(RETRY_PERIOD);
                file
            }
        };
    }
}

/// Takes the lock at `path` if its file is there and nobody holds it: who did was killed. Its text stays.
pub fn lock_left(path: &Path) -> Option<Lock> {
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok().filter(|lock| is_at(lock, path))
}

/// True if `path` still leads to that file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let same = |found: fs::Metadata| Ok((found.dev(), found.ino()) == file.metadata().map(|of| (of.dev(), of.ino()))?);
    fs::symlink_metadata(path).and_then(same).unwrap_or(false)
}

/// True if a process is killed, ending, or gone (proc_pid_stat(5), proc_pid_status(5)).
fn is_ending(pid: &str) -> bool {
    // Who has just taken it has not written its number yet.
    if pid.parse::<u32>().is_err() {
        return pid.is_empty();
    }
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
    let Ok((stat, status)) = read("stat").and_then(|stat| Ok((stat, read("status")?))) else { return true };
    stat_is_ending(&stat) || is_killed(&status)
}

fn stat_is_ending(stat: &str) -> bool {
    /// PF_EXITING of the kernel's flags, which are the seventh word behind the name.
    const EXITING: u64 = 0x4;
    // The name is in parentheses and may have some of its own.
    let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let flags = words.get(6).and_then(|flags| flags.parse::<u64>().ok());
    matches!(words.first(), Some(&("Z" | "X"))) || flags.is_some_and(|flags| flags & EXITING != 0)
}

fn is_killed(status: &str) -> bool {
    const KILL: u64 = 1 << (9 - 1);
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|mask| mask & KILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ending_by_its_state_its_flags_or_a_pending_kill() {
        let stat = |state: &str, flags: u64| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0");
        assert!(!stat_is_ending(&stat("S", 0x0040_0040)));
        assert!(stat_is_ending(&stat("R", 0x0040_0044)));
        assert!(stat_is_ending(&stat("Z", 0)));
        assert!(is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        assert!(!is_killed("SigPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n"));
        assert!(!is_ending(&std::process::id().to_string()) && is_ending("4194305"));
    }

    #[test]
    fn a_lock_whose_file_was_removed_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(lock_left(&path).is_none() && !path.exists(), "there is none");
        let mut held = lock(&path).unwrap();
        assert!(lock_left(&path).is_none(), "it is held");
        // Of a process that is gone: who comes waits for it.
        held.set_len(0).and_then(|()| held.rewind()).and_then(|()| write!(held, "4194305")).unwrap();
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| lock(&path));
            // It has opened the file by then, or opens the next one: both must end with a lock that others meet.
            thread::sleep(RETRY_PERIOD);
            fs::remove_file(&path).unwrap();
            drop(held);
            next.join().unwrap().unwrap()
        });
        assert!(is_at(&next, &path));
        assert!(matches!(lock(&path), Err(ServeError::Locked { .. })));
        drop(next);
        let left = lock_left(&path).expect("it is free, and its file is there");
        assert!(is_at(&left, &path));
    }

    #[test]
    fn a_lock_that_a_living_process_has_is_refused_at_once_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _held = lock(&path).unwrap();
        let start = Instant::now();
        let Err(ServeError::Locked { pid, .. }) = lock(&path) else { panic!("it is held") };
        assert_eq!(pid, std::process::id().to_string());
        assert!(start.elapsed() < ENDING_TIMEOUT, "nobody is waited for");
    }
}
