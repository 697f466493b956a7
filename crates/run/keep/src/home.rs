//! The folder in /run of `keep run`, with its lock and its socket.

use std::path::Path;

use serve::{HeldHome, Home, HomeKind};
use sys::RUN_FOLDER;

use crate::KeepError;

const KIND: HomeKind = HomeKind { prefix: "keep@", mode: 0o700, files: &[] };

/// The folder of this network namespace.
pub(crate) fn here() -> Home {
    Home::new(KIND, Path::new(RUN_FOLDER), host::namespace::own().unwrap_or(0))
}

/// Takes the lock, of which there is one per network namespace.
///
/// # Errors
/// Another process holds the lock; the folder cannot be made or belongs to another user.
pub fn hold() -> Result<HeldHome, KeepError> {
    Ok(here().hold()?)
}
