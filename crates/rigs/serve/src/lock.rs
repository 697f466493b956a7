//! One process does a thing: the one that holds its lock.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};

use crate::error::ServeError;

/// A lock that is held until it is dropped.
pub type Lock = Flock<File>;

/// Takes the lock at `path`, whose text is the id of the process that holds it.
///
/// # Errors
/// [`ServeError::Locked`] if another process holds it; its file cannot be made or written.
pub fn lock(path: &Path) -> Result<Lock, ServeError> {
    let failed = |operation, source| ServeError::File { operation, path: path.to_owned(), source };
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open.map_err(|source| failed("open", source))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            let write =
                lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
            write.map_err(|source| failed("write", source))?;
            Ok(lock)
        }
        Err((mut file, _)) => {
            let mut pid = String::new();
            // A pid that cannot be read is not worth more than its question mark.
            let _ = file.read_to_string(&mut pid);
            let pid = if pid.is_empty() { "?".into() } else { pid };
            Err(ServeError::Locked { path: path.to_owned(), pid })
        }
    }
}
