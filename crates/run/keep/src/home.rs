//! The folder of the process that keeps: its lock and its socket.

use std::path::Path;

use serve::{HeldHome, Home, HomeKind};
use sys::RUN_FOLDER;

use crate::KeepError;

const KIND: HomeKind = HomeKind { prefix: "keep@", mode: 0o700, files: &[] };

/// The one of this network namespace.
pub(crate) fn here() -> Home {
    Home::new(KIND, Path::new(RUN_FOLDER), host::namespace::own().unwrap_or(0))
}

/// Takes the lock: one process keeps in a network namespace.
///
/// # Errors
/// Another process has it; the folder cannot be made or is somebody else's.
pub fn hold() -> Result<HeldHome, KeepError> {
    Ok(here().hold()?)
}
