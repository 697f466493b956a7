//! Files that a verb writes at its end, and checks at its beginning.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::anyhow;

use crate::failure::Failure;

/// A file to be written at the end: whole, through a temporary file beside it, so that what stood there stays until then. Taken
/// away again when nothing came of it.
pub(crate) struct OutFile {
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl OutFile {
    /// Learns now, not after a measurement, that the file cannot be written.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| cannot_write(path, &error);
        // A device or a pipe is written to as it is; a link keeps pointing where it does.
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&real) {
            Ok(it) if it.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(it) if !it.is_file() => return Ok(Self { path: real, temporary: None }),
            // What may not be written is not to be replaced either.
            Ok(_) => drop(fs::File::options().append(true).open(&real).map_err(failed)?),
            Err(_) => {}
        }
        let Some(name) = real.file_name() else { return Err(failed(io::ErrorKind::InvalidInput.into())) };
        let mut part = name.to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let temporary = real.with_file_name(part);
        fs::write(&temporary, "").map_err(failed)?;
        Ok(Self { path: real, temporary: Some(temporary) })
    }

    /// Writes it.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        match &self.temporary {
            None => fs::write(&self.path, bytes),
            Some(temporary) => fs::write(temporary, bytes).and_then(|()| fs::rename(temporary, &self.path)),
        }
        .map_err(|error| cannot_write(&self.path, &error))
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(anyhow!("cannot write {}: {error}; name another file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_stays_until_all_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        drop(OutFile::open(&path).unwrap());
        assert_eq!(names(), 0);
        fs::write(&path, "old").unwrap();
        let out = OutFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        out.write(b"new").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("new", 1));
    }

    #[test]
    fn what_cannot_be_written_is_told_at_once_or_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), &folder.path().join("none/x"), Path::new("")] {
            assert!(OutFile::open(path).is_err_and(|f| f.message().contains("cannot write")), "{}", path.display());
        }
        let full = OutFile::open(Path::new("/dev/full")).unwrap();
        assert!(full.write(b"x").is_err() && Path::new("/dev/full").exists());
    }
}
