//! One process tends a shield: the one that holds its lock.

use std::{
    fs,
    io::{Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
};

use nix::fcntl::{Flock, FlockArg};

use super::settings::Settings;
use crate::error::ShieldError;

/// Held by the process that tends a shield.
pub(crate) type Lock = Flock<fs::File>;

/// Takes the lock; who holds it tends the shield.
pub(crate) fn lock(settings: &Settings) -> Result<Lock, ShieldError> {
    let path = settings.places.lock();
    let failed = |operation, source| ShieldError::Place { operation, path: path.clone(), source };
    let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
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
            Err(ShieldError::Tended { interface: settings.interface.clone(), pid })
        }
    }
}
