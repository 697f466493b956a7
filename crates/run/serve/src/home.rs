//! The folder of one instance of what runs: its lock, its socket, and files that go with it.

use std::{
    fmt::Display,
    fs, io,
    ops::Deref,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use sys::owner::trusted_folder;

use crate::{
    error::{HomeError, ServeError},
    lock::{Lock, is_at, lock, lock_left},
    lost::lost,
};

/// The lock is taken at most this often while others remove the folder.
const TRIES_MAX: u32 = 16;
/// Limit on the time from the order to end to the end of an instance.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts to take the lock of an instance that ends.
const END_PERIOD: Duration = Duration::from_millis(20);
pub(crate) const LOCK: &str = "lock";
pub(crate) const SOCKET: &str = "control";
/// Suffix of a file that is written before it replaces another.
const TEMPORARY_SUFFIX: &str = "new";

/// A kind of instances, each with a folder of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeKind {
    /// The names of the folders begin with it; the key of the instance follows.
    pub prefix: &'static str,
    /// The mode of the folder: 0700, or 0755 if others than root enter it.
    pub mode: u32,
    /// Files beside lock and socket that go with the instance.
    pub files: &'static [&'static str],
}

/// The place of an instance's folder, whether it is there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    kind: HomeKind,
    folder: PathBuf,
}

impl Home {
    /// The folder of the instance with this key, below `root`.
    pub fn new(kind: HomeKind, root: &Path, key: impl Display) -> Self {
        Self::at(kind, root.join(format!("{}{key}", kind.prefix)))
    }

    /// A folder under whatever name.
    pub fn at(kind: HomeKind, folder: PathBuf) -> Self {
        Self { kind, folder }
    }

    /// All folders of a kind below `root`, with their keys; none if there is no such folder.
    pub fn all(kind: HomeKind, root: &Path) -> io::Result<Vec<(String, Self)>> {
        let entries = match fs::read_dir(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let keys = names.filter_map(|name| name.strip_prefix(kind.prefix).map(str::to_owned));
        Ok(keys.map(|key| (key.clone(), Self::new(kind, root, key))).collect())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The lock; its text is the id of the process that holds it.
    pub fn lock_file(&self) -> PathBuf {
        self.file(LOCK)
    }

    /// The socket at which the instance answers commands.
    pub fn socket(&self) -> PathBuf {
        self.file(SOCKET)
    }

    /// Makes the folder and takes its lock. The files stay when it is dropped.
    ///
    /// # Errors
    /// Another process holds the lock, or [listens](lost()) though its folder was removed; the folder cannot be made, or others can change it.
    pub fn lock(&self) -> Result<Lock, HomeError> {
        let mut again = TRIES_MAX;
        loop {
            match self.try_lock() {
                // An instance that ended just now removed the folder.
                Err(error) if again > 0 && error.is_race() => again -= 1,
                Err(error) => return Err(error),
                Ok(lock) => return self.refuse_lost().map(|()| lock),
            }
        }
    }

    /// Fails if a process still runs whose folder was removed, and removes the new folder.
    fn refuse_lost(&self) -> Result<(), HomeError> {
        let Some(error) = lost(&self.socket()) else { return Ok(()) };
        let _ = fs::remove_file(self.lock_file());
        let _ = fs::remove_dir(&self.folder);
        Err(error.into())
    }

    fn try_lock(&self) -> Result<Lock, HomeError> {
        let made = fs::DirBuilder::new().recursive(true).mode(self.kind.mode).create(&self.folder);
        let trusted = made.and_then(|()| trusted_folder(&self.folder));
        // One that an earlier instance left may have another mode.
        let ready =
            trusted.and_then(|()| fs::set_permissions(&self.folder, fs::Permissions::from_mode(self.kind.mode)));
        ready.map_err(|source| HomeError::Folder { path: self.folder.clone(), source })?;
        lock(&self.lock_file()).map_err(|error| {
            self.remove_unused();
            error.into()
        })
    }

    /// Removes a folder with only an empty lock that no process holds, as a start on a full disk leaves it.
    fn remove_unused(&self) {
        let lock_file = self.lock_file();
        let is_empty = || fs::symlink_metadata(&lock_file).is_ok_and(|file| file.is_file() && file.len() == 0);
        let is_alone = || fs::read_dir(&self.folder).is_ok_and(|entries| entries.count() == 1);
        if is_alone()
            && let Some(_held) = lock_left(&lock_file).filter(|_| is_empty())
        {
            let _ = fs::remove_file(&lock_file);
        }
        // Fails for a folder that is not empty, which stays.
        let _ = fs::remove_dir(&self.folder);
    }

    /// Makes the folder and takes its lock, until it is dropped: then the files are removed.
    pub fn hold(&self) -> Result<HeldHome, HomeError> {
        self.lock().map(|lock| HeldHome { home: self.clone(), lock })
    }

    /// Waits for the end of process `before`, which was told to end, and takes the lock as [`Home::hold`]. None: another process has taken it.
    ///
    /// # Errors
    /// [`ServeError::StillRuns`] after five seconds; the folder cannot be made or belongs to another user.
    pub fn hold_after(&self, before: Option<&str>) -> Result<Option<HeldHome>, HomeError> {
        self.hold_within(END_TIMEOUT, before)
    }

    fn hold_within(&self, timeout: Duration, before: Option<&str>) -> Result<Option<HeldHome>, HomeError> {
        let begun = Instant::now();
        loop {
            match self.hold() {
                Ok(held) => return Ok(Some(held)),
                Err(HomeError::Held { pid }) if before != Some(&pid) => return Ok(None),
                Err(HomeError::Held { .. }) if begun.elapsed() < timeout => thread::sleep(END_PERIOD),
                Err(HomeError::Held { pid }) => return Err(ServeError::StillRuns { pid }.into()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the lock of an instance that was killed: its file is there, and nobody holds it.
    pub fn hold_left(&self) -> Option<HeldHome> {
        trusted_folder(&self.folder).ok()?;
        lock_left(&self.lock_file()).map(|lock| HeldHome { home: self.clone(), lock })
    }

    /// True if the instance was killed.
    pub fn is_left(&self) -> bool {
        trusted_folder(&self.folder).is_ok() && lock_left(&self.lock_file()).is_some()
    }

    /// Removes what an instance that was killed left. Returns whether there was anything.
    pub fn clear(&self) -> io::Result<bool> {
        let Some(left) = self.hold_left() else { return Ok(false) };
        drop(left);
        match self.is_left() {
            true => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            false => Ok(true),
        }
    }

    /// The process that holds the lock, and since when; none: nobody does.
    pub fn holder(&self) -> Option<(String, Duration)> {
        let taken = fs::metadata(self.lock_file()).and_then(|lock| lock.modified()).ok()?;
        let pid = fs::read_to_string(self.lock_file()).ok().filter(|_| !self.is_left())?;
        Some((pid, taken.elapsed().unwrap_or_default()))
    }
}

/// The folder of an instance that runs. Its files are removed when it is dropped.
#[derive(Debug)]
pub struct HeldHome {
    home: Home,
    lock: Lock,
}

impl HeldHome {
    /// Writes a file of the folder in one step: whoever reads it meanwhile finds the earlier one.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let new = self.file(TEMPORARY_SUFFIX);
        fs::write(&new, text).and_then(|()| fs::rename(&new, self.file(name)))
    }

    /// Removes a file of the folder.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.file(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Deref for HeldHome {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Drop for HeldHome {
    fn drop(&mut self) {
        // After a removal of this folder, the files at its path are another process's.
        if !is_at(&self.lock, &self.lock_file()) {
            return;
        }
        // The lock is the last: until then nobody else begins.
        for file in [SOCKET].iter().chain(self.kind.files).chain(&[TEMPORARY_SUFFIX, LOCK]) {
            // A file that stays is one file more.
            let _ = self.remove(file);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

impl HomeError {
    /// True if the folder went between two calls: making it, where it was, says that it exists.
    fn is_race(&self) -> bool {
        let (Self::Folder { source, .. } | Self::Serve(ServeError::File { source, .. })) = self else { return false };
        matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
    }
}

#[cfg(test)]
mod tests;
