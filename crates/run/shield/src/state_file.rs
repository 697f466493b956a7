//! Files that outlive the control process.

use std::path::Path;

use host::file::{self, FileError, PRIVATE};

use crate::error::ShieldError;

/// Writes a file that is never seen half written.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> Result<(), ShieldError> {
    let failed =
        |error: FileError| ShieldError::File { operation: "write", path: path.to_owned(), source: error.into() };
    file::replace(path, text, PRIVATE).map_err(failed)
}
