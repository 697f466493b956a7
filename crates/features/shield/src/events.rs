//! Where events and metrics go: lines of JSON, a program of the user's, Prometheus.

mod hook;
pub mod metrics;

use std::{
    fs::{self, File, Metadata},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub use hook::Hook;
use host::file::{self, FileError, PUBLIC};
use model::{Classified, ErrorClass, schema::Document, shield_event::ShieldEvent};

/// An event or a metric that could not be told.
#[allow(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    #[error("cannot {operation} the file of events {path}: {source}")]
    Log { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot run the hook {program} for the event `{event}`: {reason}")]
    Hook { program: String, event: &'static str, reason: String },
    #[error("metrics: {source}")]
    MetricsFile { source: FileError },
    #[error("cannot start the thread that writes metrics: {source}")]
    MetricsThread { source: io::Error },
    #[error("cannot answer for metrics on 127.0.0.1:{port}: {source}; choose another port")]
    MetricsPort { port: u16, source: io::Error },
}

impl Classified for EventError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::MetricsFile { source } => source.class(),
            Self::MetricsPort { .. } | Self::MetricsThread { .. } | Self::Log { .. } | Self::Hook { .. } => {
                ErrorClass::Lacking
            }
        }
    }
}

/// An event as one line of JSON, `evenkeel.shield.event/1`, its end included.
pub fn line(event: &ShieldEvent) -> String {
    let mut line = serde_json::to_string(&Document::new("shield.event", 1, event)).unwrap_or_default();
    line.push('\n');
    line
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
    /// [`EventError::Log`].
    pub fn open(path: &Path) -> Result<Self, EventError> {
        let failed =
            |error: FileError| EventError::Log { operation: "open", path: path.to_owned(), source: error.into() };
        Ok(Self { file: file::append(path, PUBLIC).map_err(failed)?, path: path.to_owned() })
    }

    /// Opens the path again if the file there is another one, or gone: logs are rotated by renaming.
    ///
    /// # Errors
    /// [`EventError::Log`]; the old file stays open.
    pub fn follow(&mut self) -> Result<(), EventError> {
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
    /// [`EventError::Log`]. Where the path cannot be opened again, the event is in the file that was open.
    pub fn write(&mut self, event: &ShieldEvent) -> Result<(), EventError> {
        let followed = self.follow();
        self.append(event).and(followed)
    }

    fn append(&mut self, event: &ShieldEvent) -> Result<(), EventError> {
        let before = self.file.metadata().map(|data| data.len());
        self.file.write_all(line(event).as_bytes()).map_err(|source| {
            if let Ok(before) = before {
                // What is no file has no half line to be taken away.
                let _ = self.file.set_len(before);
            }
            EventError::Log { operation: "write to", path: self.path.clone(), source }
        })
    }
}
