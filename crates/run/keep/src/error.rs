//! Errors of this crate.

use std::{io, path::PathBuf};

use host::{file::FileError, journal::JournalError};
use model::{Classified, ErrorClass};
use serve::{HomeError, ServeError};

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file of intents is refused; the text names the place.
    #[error("{0}")]
    Intent(String),
    #[error(
        "{} was edited by hand, and that would be lost; edit it again, or give another name (--name NAME)",
        path.display()
    )]
    Edited { path: PathBuf },
    #[error("cannot keep `{name}`: {source}")]
    Write { name: String, source: FileError },
    #[error("cannot {operation} {}: {source}{}", path.display(), hint(source))]
    Folder { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("there is no {}; `evenkeel keep status` lists what is kept", path.display())]
    NoSuchFile { path: PathBuf },
    #[error("process {pid} keeps already; `evenkeel keep status` shows what, `evenkeel keep off` ends it")]
    AlreadyRunning { pid: String },
    #[error("cannot {operation}: {source}")]
    System { operation: &'static str, source: io::Error },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; make it writable for this (mount -o remount,rw), or name another folder by --etc"
        }
        _ => "",
    }
}

impl From<HomeError> for KeepError {
    fn from(error: HomeError) -> Self {
        match error {
            HomeError::Held { pid } => Self::AlreadyRunning { pid },
            HomeError::Folder { path, source } => Self::Folder { operation: "use the folder", path, source },
            HomeError::Serve(error) => Self::Serve(error),
        }
    }
}

impl Classified for KeepError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Intent(_) | Self::Edited { .. } | Self::NoSuchFile { .. } => ErrorClass::Usage,
            Self::Write { source, .. } => source.class(),
            Self::Journal(error) => error.class(),
            Self::Serve(error) => error.class(),
            Self::Folder { .. } | Self::AlreadyRunning { .. } | Self::System { .. } => ErrorClass::Lacking,
        }
    }
}
