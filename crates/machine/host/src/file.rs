//! Files that the program writes for people: whole or not at all, and never where somebody else points them.
//!
//! A new file is made under a random name beside its place (`O_EXCL | O_NOFOLLOW`), synced, and renamed. Links are followed only where
//! nobody but root and the user can change them, see [`Folder::of`].

mod folder;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Duration,
};

use model::{Classified, ErrorClass, input};
use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, OFlag, fallocate},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::fstat,
};

pub use self::folder::Folder;
use self::folder::{Kind, Spot};

/// The mode of what everybody may read; the umask takes its bits away.
pub const PUBLIC: u32 = 0o666;
/// The mode of what the user alone may read: captures, snapshots, state.
pub const PRIVATE: u32 = 0o600;

/// Time that the reader of a pipe has to make room.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot write {}: {source}{}", path.display(), hint(source))]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "cannot write {}: {} is a link in a folder that other users can write to; name the file that it points to",
        path.display(), link.display()
    )]
    ForeignLink { path: PathBuf, link: PathBuf },
    #[error(
        "cannot write {}: it is a {what} that belongs to another user, in a folder that other users can write to",
        path.display()
    )]
    Foreign { path: PathBuf, what: &'static str },
    #[error("cannot write {}: it is a {what}; name a plain file", path.display())]
    NotPlain { path: PathBuf, what: &'static str },
    #[error("cannot write {}: no process reads this pipe; start the reader first", path.display())]
    NoReader { path: PathBuf },
}

impl FileError {
    fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::ForeignLink { path, .. }
            | Self::Foreign { path, .. }
            | Self::NotPlain { path, .. }
            | Self::NoReader { path } => path,
        }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room or name another place (nothing is left behind)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; name a place that you may write to",
        io::ErrorKind::NotFound => "; the folder does not exist",
        io::ErrorKind::CrossesDevices => "; another file system is mounted on the way",
        _ => "; name another file",
    }
}

impl Classified for FileError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::TimedOut => ErrorClass::Lacking,
                _ => ErrorClass::Usage,
            },
            _ => ErrorClass::Usage,
        }
    }
}

impl From<FileError> for io::Error {
    /// Keeps the kind, so that "no space left" is still told from "not found".
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { source, .. } => source,
            other => Self::other(other),
        }
    }
}

/// A file to be written once, at the end. What stood there stays until then; nothing is left when it is dropped unwritten.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Beside(Beside),
    /// A terminal, a pipe, another device.
    Direct(File),
}

/// A file under a random name, removed unless it was renamed to its own.
#[derive(Debug)]
struct Beside {
    folder: Folder,
    random: OsString,
    name: OsString,
    file: File,
}

impl AtomicFile {
    /// Learns now, not after a measurement, that the file cannot be written. A terminal, pipe or character device is written to as it
    /// is. A new file gets `mode` less the umask; one that was there keeps its mode as far as `mode` allows.
    pub fn open(path: &Path, mode: u32) -> Result<Self, FileError> {
        let spot = Spot::of(path)?;
        let target = match spot.kind {
            Kind::Missing | Kind::File => Target::Beside(Beside::make(spot, path, mode)?),
            _ => Target::Direct(spot.open_as_it_is(path)?),
        };
        Ok(Self { path: path.to_owned(), target })
    }

    /// As [`Self::open`], and refuses all but plain files. Never waits for another process.
    pub fn plain(path: &Path, mode: u32) -> Result<Self, FileError> {
        let spot = Spot::of(path)?;
        match spot.kind.special() {
            Some(what) => Err(FileError::NotPlain { path: path.to_owned(), what }),
            None => Ok(Self { path: path.to_owned(), target: Target::Beside(Beside::make(spot, path, mode)?) }),
        }
    }

    /// As [`Self::plain`], of a path below `folder`: no link below it is followed and no mount entered, whatever others do there meanwhile.
    pub fn below(folder: &Path, path: &Path, mode: u32) -> Result<Self, FileError> {
        let whole = folder.join(path);
        let spot = Spot::below(folder, path)?;
        match spot.kind.special() {
            Some(what) => Err(FileError::NotPlain { path: whole, what }),
            None => Ok(Self { target: Target::Beside(Beside::make(spot, &whole, mode)?), path: whole }),
        }
    }

    /// Takes `bytes` of room on the disk now, so that what comes at the end of a long run finds it. File systems that cannot are not asked.
    ///
    /// # Errors
    /// [`FileError::Io`]: the disk is full.
    pub fn reserve(&mut self, bytes: u32) -> Result<(), FileError> {
        let Target::Beside(beside) = &mut self.target else { return Ok(()) };
        match fallocate(&beside.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, bytes.into()) {
            Err(error @ (Errno::ENOSPC | Errno::EDQUOT)) => Err(FileError::io(&self.path, error)),
            _ => Ok(()),
        }
    }

    /// Writes a part of it, of which [`Self::write`] writes the last.
    ///
    /// # Errors
    /// [`FileError`]; what stood there is unchanged.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let file = match &mut self.target {
            Target::Beside(beside) => &mut beside.file,
            Target::Direct(file) => file,
        };
        file.write_all(bytes).map_err(|source| FileError::io(&self.path, source))
    }

    /// Writes it, syncs it to disk, and gives it its name.
    ///
    /// # Errors
    /// [`FileError`]; what stood there is unchanged then.
    pub fn write(self, bytes: &[u8]) -> Result<(), FileError> {
        match self.target {
            Target::Beside(beside) => beside.write(bytes),
            Target::Direct(file) => write_direct(file, bytes),
        }
        .map_err(|source| FileError::io(&self.path, source))
    }
}

/// Replaces a plain file with `bytes` in one step.
///
/// # Errors
/// [`FileError`]; what stood there is unchanged then.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    AtomicFile::plain(path, mode)?.write(bytes)
}

/// Removes a file that was written by its path: links of others are not followed.
///
/// # Errors
/// [`FileError`]; as [`Folder::of`].
pub fn remove(path: &Path) -> Result<(), FileError> {
    let (folder, name) = Folder::of(path)?;
    folder.remove(&name).map_err(|source| FileError::io(path, source))
}

/// Refuses a path that leads to a pipe, a socket or a device: these cannot be replaced. Says nothing of what is not there, or cannot be seen.
///
/// # Errors
/// [`FileError::NotPlain`].
pub fn refuse_special(path: &Path) -> Result<(), FileError> {
    match Spot::of(path).ok().and_then(|spot| spot.kind.special()) {
        Some(what) => Err(FileError::NotPlain { path: path.to_owned(), what }),
        None => Ok(()),
    }
}

impl Beside {
    fn make(spot: Spot, path: &Path, mode: u32) -> Result<Self, FileError> {
        let failed = |source: io::Error| FileError::io(path, source);
        let mut kept = None;
        if spot.kind == Kind::File {
            // What may not be written is not to be replaced either.
            let there = spot.open(OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NONBLOCK).map_err(failed)?;
            let there = fstat(&there).map_err(|e| failed(e.into()))?;
            kept = (there.st_uid == nix::unistd::geteuid().as_raw()).then_some(there.st_mode & mode);
        }
        let (random, file) = spot.folder.make_random(mode).map_err(failed)?;
        let beside = Self { folder: spot.folder, random, name: spot.name, file };
        if let Some(mode) = kept {
            use std::os::unix::fs::PermissionsExt;
            beside.file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(beside)
    }

    fn write(mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        // Room that was taken and is not needed is free again.
        self.file.set_len(self.file.metadata()?.len())?;
        self.file.sync_all()?;
        self.folder.rename(&self.random, &self.name)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Once renamed it is not there any more.
        let _ = self.folder.remove(&self.random);
    }
}

/// Writes to a descriptor that does not block, and waits a bounded time whenever there is no room.
fn write_direct(mut file: File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut ready = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                let timeout = PollTimeout::try_from(READER_TIMEOUT).unwrap_or(PollTimeout::MAX);
                match poll(&mut ready, timeout) {
                    Ok(0) => {
                        let why = format!("its reader has taken nothing for {} seconds", READER_TIMEOUT.as_secs());
                        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                    }
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes a file that is written to while it grows, or empties one that is there; never through somebody else's link or pipe.
/// A pipe is waited for until a process reads it, if it is the user's own.
pub fn create(path: &Path, mode: u32) -> Result<File, FileError> {
    let spot = Spot::of(path)?;
    spot.create(path, mode)
}

/// Opens a file that grows, such as a log, and makes it if need be; never through somebody else's link, and never waiting for a pipe.
pub fn append(path: &Path, mode: u32) -> Result<File, FileError> {
    Spot::of(path)?.append(path, mode)
}

/// Reads a file of text that somebody saved, see [`input::read`].
///
/// # Errors
/// As there, or that it is not text.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(input::read(path)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

#[cfg(test)]
mod tests;
