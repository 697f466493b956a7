//! Events, and the file that they are appended to.

use std::{
    fs::{self, File, Metadata},
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use host::file::{self, FileError, PUBLIC};

use crate::error::ServeError;

/// Something that happened, as a log and a hook get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Name of the event: `EVENKEEL_EVENT` of a hook.
    pub name: &'static str,
    /// A line of JSON, with its newline.
    pub line: String,
    /// Further variables of a hook's environment.
    pub environment: Vec<(&'static str, String)>,
}

/// A file to which events are appended, each by one write.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    path: PathBuf,
}

impl EventLog {
    /// Opens `path` for appending, and makes it if need be. A pipe that nobody reads, or does not read fast enough, is an error: nothing
    /// waits for it.
    ///
    /// # Errors
    /// [`ServeError::EventLog`].
    pub fn open(path: &Path) -> Result<Self, ServeError> {
        let failed =
            |error: FileError| ServeError::EventLog { operation: "open", path: path.to_owned(), source: error.into() };
        Ok(Self { file: file::append(path, PUBLIC).map_err(failed)?, path: path.to_owned() })
    }

    /// Opens the path again if the file there is another one, or gone: logs are rotated by renaming.
    ///
    /// # Errors
    /// [`ServeError::EventLog`]; the old file stays open.
    pub fn follow(&mut self) -> Result<(), ServeError> {
        let id = |data: Metadata| (data.dev(), data.ino());
        let (there, ours) = (fs::metadata(&self.path).map(id), self.file.metadata().map(id));
        if matches!((there, ours), (Ok(there), Ok(ours)) if there == ours) {
            return Ok(());
        }
        *self = Self::open(&self.path)?;
        Ok(())
    }

    /// Appends an event, or nothing: no half line stays for the next one to follow.
    ///
    /// # Errors
    /// [`ServeError::EventLog`]. Where the path cannot be opened again, the event is in the file that was open.
    pub fn write(&mut self, event: &Event) -> Result<(), ServeError> {
        let followed = self.follow();
        self.append(event).and(followed)
    }

    fn append(&mut self, event: &Event) -> Result<(), ServeError> {
        let before = self.file.metadata().map(|data| data.len());
        self.file.write_all(event.line.as_bytes()).map_err(|source| {
            if let Ok(before) = before {
                // What is no file has no half line to be taken away.
                let _ = self.file.set_len(before);
            }
            ServeError::EventLog { operation: "write to", path: self.path.clone(), source }
        })
    }
}
