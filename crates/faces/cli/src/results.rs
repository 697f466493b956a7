//! Results of a verb: text on stdout, files that are opened before the work begins.

use std::path::Path;

use host::file::{AtomicFile, PUBLIC};
use serde::Serialize;

use crate::failure::{Failure, note};

/// Bytes of room on the disk that a file for results takes before the run begins.
const ROOM_BYTES: u32 = 256 << 10;

/// A file for results, found to be writable before the run begins.
pub(crate) struct OutFile<'a> {
    file: AtomicFile,
    path: &'a Path,
    what: &'static str,
}

impl<'a> OutFile<'a> {
    /// Opens the file, if one is wanted; `what` names it when it is written.
    pub(crate) fn open(path: Option<&'a Path>, what: &'static str) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let mut file = AtomicFile::open(path, PUBLIC)?;
        file.reserve(ROOM_BYTES)?;
        Ok(Some(Self { file, path, what }))
    }

    /// Writes the file whole.
    pub(crate) fn save(self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        Ok(self.file.write(bytes.as_ref())?)
    }

    /// Writes the file whole, and says where it is.
    pub(crate) fn write(self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        let place = format!("The {}: {}", self.what, self.path.display());
        self.save(bytes)?;
        note(place);
        Ok(())
    }
}

/// A document as text.
pub(crate) fn json_text(document: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(document).map_err(Failure::internal)? + "\n")
}
