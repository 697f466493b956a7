//! The folder of the files of intents. An error in a file concerns that file alone. Files are written by a temporary file and rename.

mod parse;

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use host::file;
use nix::fcntl::OFlag;
use sys::owner;

use self::parse::parse;
use crate::{KeepError, clash, intent::Intents};

/// The folder that contains `keep.d` by default.
pub const DEFAULT_ETC: &str = "/etc/evenkeel";
const SUBFOLDER: &str = "keep.d";
const ENDING: &str = "toml";
/// Limit on the size of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;
const NAME_BYTES_MAX: usize = 64;
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The folder of the intents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// A file without errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentFile {
    /// The name without the ending.
    pub name: String,
    pub intents: Intents,
    pub(crate) text: String,
    pub(crate) path: PathBuf,
}

/// A file with an error or a contradiction, of which nothing is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFile {
    pub name: String,
    pub problem: String,
}

/// The files of the folder, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    pub good: Vec<IntentFile>,
    pub bad: Vec<BadFile>,
}

/// Names, sizes and times of the files, by which a change is found.
pub type Fingerprint = Vec<(PathBuf, u64, u64, Option<SystemTime>)>;

impl Folder {
    /// The folder `keep.d` in `etc`, or in [`DEFAULT_ETC`].
    pub fn at(etc: Option<&Path>) -> Self {
        let etc = etc.unwrap_or(Path::new(DEFAULT_ETC));
        Self(std::path::absolute(etc).unwrap_or_else(|_| etc.to_owned()).join(SUBFOLDER))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.{ENDING}"))
    }

    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let is_intent = |path: &PathBuf| {
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            !hidden && path.extension().is_some_and(|ending| ending == ENDING)
        };
        let mut paths: Vec<PathBuf> = paths.filter(is_intent).collect();
        paths.sort();
        Ok(paths)
    }

    pub fn fingerprint(&self) -> Fingerprint {
        let of = |path: PathBuf| {
            let meta = fs::metadata(&path).ok();
            let numbers = meta.as_ref().map_or((0, 0), |meta| (meta.len(), meta.ino()));
            (path, numbers.0, numbers.1, meta.and_then(|meta| meta.modified().ok()))
        };
        self.paths().unwrap_or_default().into_iter().map(of).collect()
    }

    /// Reads all files. Of a file with an error or a contradiction, nothing is applied. `check` refuses names of unknown checks.
    ///
    /// # Errors
    /// The folder cannot be read, or others can write to it.
    pub fn read(&self, check: impl Fn(&str) -> Result<(), String>) -> Result<Files, KeepError> {
        let failed = |source| KeepError::Folder { operation: "read", path: self.0.clone(), source };
        match fs::metadata(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Files::default()),
            meta => owner::trusted(&self.0, &meta.map_err(failed)?).map_err(|why| failed(io::Error::other(why)))?,
        }
        let mut files = Files::default();
        for path in self.paths().map_err(failed)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let read = read(&path).and_then(|text| parse(&name, &path, text, &check));
            match read {
                Ok(file) => files.good.push(file),
                Err(problem) => files.bad.push(BadFile { name, problem }),
            }
        }
        files.refuse_clashes();
        Ok(files)
    }

    /// Makes the file that [`Folder::write`] is to write.
    ///
    /// # Errors
    /// The name or the intents have an error, the file contradicts another one, or it would replace a file that was edited by hand.
    pub fn prepare(
        &self,
        name: &str,
        intents: &Intents,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<IntentFile, KeepError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with(['.', '-']) || !name.chars().all(good) {
            return Err(KeepError::Intent(format!(
                "`{name}` is no name of a file; write letters, digits, `-`, `_` and `.`, such as uplink"
            )));
        }
        let path = self.file(name);
        let file = parse(name, &path, intents.text(), &check).map_err(KeepError::Intent)?;
        let others: Vec<IntentFile> = self.read(&check)?.good.into_iter().filter(|other| other.name != name).collect();
        if let Some(problem) = clash::beside(&file, &others) {
            return Err(KeepError::Intent(problem));
        }
        match self.text(name)? {
            Some(text) if is_edited(&text) => Err(KeepError::Edited { path }),
            _ => Ok(file),
        }
    }

    /// The text of a file; none if it does not exist.
    fn text(&self, name: &str) -> Result<Option<String>, KeepError> {
        let path = self.file(name);
        match open(&path).and_then(io::read_to_string) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // No command writes such bytes.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(KeepError::Edited { path }),
            Err(source) => Err(KeepError::Folder { operation: "read", path, source }),
        }
    }

    /// Writes a file. Returns its earlier text, if it existed.
    ///
    /// # Errors
    /// The folder or the file cannot be written.
    pub fn write(&self, file: &IntentFile) -> Result<Option<String>, KeepError> {
        let before = self.text(&file.name)?;
        let failed = |source| KeepError::Folder { operation: "make the folder", path: self.0.clone(), source };
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.0).map_err(failed)?;
        self.put(&file.name, &file.text)?;
        Ok(before)
    }

    fn put(&self, name: &str, text: &str) -> Result<(), KeepError> {
        file::replace(&self.file(name), text.as_bytes(), FILE_MODE)
            .map_err(|source| KeepError::Write { name: name.to_owned(), source })
    }

    /// Undoes [`Folder::write`].
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn put_back(&self, name: &str, before: Option<&str>) -> Result<(), KeepError> {
        match before {
            Some(text) => self.put(name, text),
            None => self.remove(name),
        }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// There is no file of that name, or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), KeepError> {
        let path = self.file(name);
        if !path.exists() {
            return Err(KeepError::NoSuchFile { path });
        }
        file::remove(&path).map_err(|source| KeepError::Write { name: name.to_owned(), source })
    }
}

impl Files {
    /// Moves files that contradict each other from `good` to `bad`.
    fn refuse_clashes(&mut self) {
        for (at, problem) in clash::find(&self.good).into_iter().rev() {
            let name = self.good.remove(at).name;
            self.bad.retain(|bad| bad.name != name);
            self.bad.push(BadFile { name, problem });
        }
        self.bad.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

/// True if a person has edited the text: it has comments, several tables or an error.
fn is_edited(text: &str) -> bool {
    let is_written = |it: Intents| it.spread.len() + it.doctor.len() == 1;
    text.lines().skip(1).any(|line| line.contains('#')) || !toml::from_str(text).is_ok_and(is_written)
}

/// Opens a plain file, without waiting for the writer of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no plain file")),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let file = open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    owner::trusted(path, &meta).map_err(|why| {
        format!("{why}; what is kept is root's to say: chown root:root and chmod 644 {}", path.display())
    })?;
    if meta.len() > FILE_BYTES_MAX {
        return Err(format!("{} has more than 1 MiB", path.display()));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
