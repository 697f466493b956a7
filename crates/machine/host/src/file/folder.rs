//! The folder of a file, found component by component so that nobody can put a link in the way while it is looked for.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{self, AtFlags, OFlag, ResolveFlag},
    sys::{
        stat::{Mode, SFlag, fstat, fstatat},
        statfs::{PROC_SUPER_MAGIC, fstatfs},
    },
    unistd::{UnlinkatFlags, geteuid, unlinkat},
};

use sys::owner;

use super::FileError;

/// As many links as the kernel follows.
const LINKS_MAX: u32 = 40;
const ATTEMPTS_MAX: u32 = 16;

/// A folder that stays the same one whatever becomes of its path.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    shown: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Missing,
    File,
    Pipe,
    Device,
    BlockDevice,
    Socket,
    /// A link of /proc to an open file, which only the kernel can follow.
    OpenFile,
}

impl Kind {
    fn of(mode: u32) -> Option<Self> {
        match SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => Some(Self::File),
            SFlag::S_IFIFO => Some(Self::Pipe),
            SFlag::S_IFCHR => Some(Self::Device),
            SFlag::S_IFBLK => Some(Self::BlockDevice),
            SFlag::S_IFSOCK => Some(Self::Socket),
            _ => None,
        }
    }

    /// Name of the file's type; none: a plain file, or no file.
    pub(super) fn special(self) -> Option<&'static str> {
        match self {
            Self::Missing | Self::File => None,
            Self::Pipe => Some("pipe"),
            Self::Device => Some("device"),
            Self::BlockDevice => Some("block device"),
            Self::Socket => Some("socket"),
            Self::OpenFile => Some("file that a process has open"),
        }
    }
}

/// A name in a folder, and what goes by it.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) folder: Folder,
    pub(super) name: OsString,
    pub(super) kind: Kind,
    owner: u32,
}

impl Spot {
    /// Follows `path`. A link is followed if its folder belongs to root or this user and nobody else can write to it.
    pub(super) fn of(path: &Path) -> Result<Self, FileError> {
        let failed = |source: io::Error| FileError::io(path, source);
        let mut left = components(path);
        let mut folder = Folder::start(path.is_absolute()).map_err(failed)?;
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                folder = folder.enter(&name, true).map_err(failed)?;
                continue;
            }
            let there = match fstatat(&folder.fd, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(there) => there,
                Err(Errno::ENOENT) if left.is_empty() => {
                    return Ok(Self { folder, name, kind: Kind::Missing, owner: geteuid().as_raw() });
                }
                Err(error) => return Err(failed(error.into())),
            };
            let is = SFlag::from_bits_truncate(there.st_mode & SFlag::S_IFMT.bits());
            if is == SFlag::S_IFLNK {
                if folder.is_proc() {
                    if left.is_empty() {
                        return Ok(Self { folder, name, kind: Kind::OpenFile, owner: there.st_uid });
                    }
                    folder = folder.enter(&name, true).map_err(failed)?;
                    continue;
                }
                if folder.others_write().map_err(failed)? {
                    return Err(FileError::ForeignLink { path: path.to_owned(), link: folder.shown.join(name) });
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(failed(Errno::ELOOP.into()));
                }
                let target =
                    PathBuf::from(fcntl::readlinkat(&folder.fd, name.as_os_str()).map_err(|e| failed(e.into()))?);
                if target.is_absolute() {
                    folder = Folder::start(true).map_err(failed)?;
                }
                for component in components(&target).into_iter().rev() {
                    left.push_front(component);
                }
            } else if is == SFlag::S_IFDIR {
                folder = folder.enter(&name, false).map_err(failed)?;
            } else if !left.is_empty() {
                return Err(failed(Errno::ENOTDIR.into()));
            } else {
                let kind = Kind::of(there.st_mode).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
                return Ok(Self { folder, name, kind, owner: there.st_uid });
            }
        }
        let kind = if path.as_os_str().is_empty() { io::ErrorKind::NotFound } else { io::ErrorKind::IsADirectory };
        Err(failed(kind.into()))
    }

    /// Opens `path` below `folder`; the kernel neither leaves the folder and its mount nor follows a link in it (openat2(2)).
    pub(super) fn below(folder: &Path, path: &Path) -> Result<Self, FileError> {
        let shown = folder.join(path);
        let failed = |error: Errno| FileError::io(&shown, io::Error::from(error));
        let name = path.file_name().ok_or_else(|| failed(Errno::EISDIR))?.to_owned();
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let top = fcntl::open(folder, flags, Mode::empty()).map_err(failed)?;
        let how = fcntl::OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV);
        let fd = fcntl::openat2(&top, parent, how).map_err(failed)?;
        Self::at(Folder { fd, shown: folder.join(parent) }, name).map_err(failed)
    }

    /// Looks at what goes by `name` in `folder`; a link is refused (`ELOOP`).
    fn at(folder: Folder, name: OsString) -> nix::Result<Self> {
        let (kind, owner) = match fstatat(&folder.fd, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => (Kind::Missing, geteuid().as_raw()),
            Err(error) => return Err(error),
            Ok(there) => (Kind::of(there.st_mode).ok_or(Errno::ELOOP)?, there.st_uid),
        };
        Ok(Self { folder, name, kind, owner })
    }

    /// Opens what is there, and refuses what is of another kind or owner than what was looked at: a renaming came between.
    pub(super) fn open(&self, flags: OFlag) -> io::Result<File> {
        let file = self.folder.open(&self.name, flags, 0)?;
        let found = fstat(&file)?;
        match (Kind::of(found.st_mode), found.st_uid) == (Some(self.kind), self.owner) {
            true => Ok(file),
            false => Err(io::Error::other("another file took its name while it was opened")),
        }
    }

    /// Opens a pipe or device without waiting.
    pub(super) fn open_as_it_is(&self, path: &Path) -> Result<File, FileError> {
        let failed = |source: io::Error| FileError::io(path, source);
        self.not_foreign(path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_APPEND | OFlag::O_NOCTTY;
        let open = match self.kind {
            Kind::OpenFile => match self.standard_output() {
                Some(same) => same,
                None => self.folder.open_followed(&self.name, flags),
            },
            Kind::BlockDevice | Kind::Socket => {
                let what = self.kind.special().unwrap_or_default();
                return Err(FileError::NotPlain { path: path.to_owned(), what });
            }
            _ => self.open(flags),
        };
        open.map_err(|error| match error.raw_os_error() {
            Some(code) if self.kind == Kind::Pipe && code == Errno::ENXIO as i32 => {
                FileError::NoReader { path: path.to_owned() }
            }
            _ => failed(error),
        })
    }

    /// Opens a file to be written to while it grows.
    pub(super) fn create(&self, path: &Path, mode: u32) -> Result<File, FileError> {
        let failed = |source: io::Error| FileError::io(path, source);
        self.not_foreign(path)?;
        match self.kind {
            Kind::Missing => self.folder.open(&self.name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode),
            Kind::File => {
                // Emptied only once it is known to be the one that was looked at.
                let file = self.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK).map_err(failed)?;
                file.set_len(0).map(|()| file)
            }
            // The user's own: a reader is waited for, as every program does.
            Kind::Pipe => self.open(OFlag::O_WRONLY),
            Kind::OpenFile => match self.standard_output() {
                Some(same) => same,
                None => {
                    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOCTTY;
                    self.folder.open_followed(&self.name, flags)
                }
            },
            Kind::Device => self.open(OFlag::O_WRONLY | OFlag::O_NOCTTY),
            Kind::BlockDevice | Kind::Socket => {
                let what = self.kind.special().unwrap_or_default();
                return Err(FileError::NotPlain { path: path.to_owned(), what });
            }
        }
        .map_err(failed)
    }

    /// The standard output under its name in /dev or /proc: itself, as opened anew it would be written from its beginning.
    fn standard_output(&self) -> Option<io::Result<File>> {
        let there = fstatat(&self.folder.fd, self.name.as_os_str(), AtFlags::empty()).ok()?;
        let out = io::stdout();
        let same = fstat(out.as_fd()).is_ok_and(|out| (out.st_dev, out.st_ino) == (there.st_dev, there.st_ino));
        same.then(|| out.as_fd().try_clone_to_owned().map(File::from))
    }

    /// Opens a file to be appended to; a pipe or device without waiting.
    pub(super) fn append(&self, path: &Path, mode: u32) -> Result<File, FileError> {
        let failed = |source: io::Error| FileError::io(path, source);
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NONBLOCK;
        match self.kind {
            Kind::Missing => self.folder.open(&self.name, flags | OFlag::O_CREAT | OFlag::O_EXCL, mode).map_err(failed),
            Kind::File => {
                self.not_foreign(path)?;
                self.open(flags).map_err(failed)
            }
            _ => self.open_as_it_is(path),
        }
    }

    /// Refuses what another user has put into a folder that others can write to.
    fn not_foreign(&self, path: &Path) -> Result<(), FileError> {
        let ours = self.owner == geteuid().as_raw() || self.kind == Kind::OpenFile;
        if ours || !self.folder.others_write().map_err(|source| FileError::io(path, source))? {
            return Ok(());
        }
        Err(FileError::Foreign { path: path.to_owned(), what: self.kind.special().unwrap_or("file") })
    }
}

impl Folder {
    /// The folder of `path`, and the name in it. Links on the way are followed if their folder belongs to root or this user and nobody
    /// else can write to it.
    ///
    /// # Errors
    /// [`FileError`]; also when `path` names a folder.
    pub fn of(path: &Path) -> Result<(Self, OsString), FileError> {
        let spot = Spot::of(path)?;
        Ok((spot.folder, spot.name))
    }

    /// Makes a file that is written to while it grows, or empties one that is there. Follows no link.
    pub fn create(&self, name: &OsStr, mode: u32) -> Result<File, FileError> {
        let path = self.shown.join(name);
        let failed = |source: io::Error| FileError::io(&path, source);
        let fd = self.fd.try_clone().map_err(failed)?;
        let folder = Self { fd, shown: self.shown.clone() };
        Spot::at(folder, name.to_owned()).map_err(|error| failed(error.into()))?.create(&path, mode)
    }

    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// The descriptor, opened with `O_PATH`.
    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn start(absolute: bool) -> io::Result<Self> {
        let shown = Path::new(if absolute { "/" } else { "." });
        let fd = fcntl::open(shown, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { fd, shown: if absolute { shown.to_owned() } else { PathBuf::new() } })
    }

    fn enter(self, name: &OsStr, follow: bool) -> io::Result<Self> {
        let follow = if follow { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | follow;
        let fd = fcntl::openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Self { fd, shown: self.shown.join(name) })
    }

    fn is_proc(&self) -> bool {
        fstatfs(&self.fd).is_ok_and(|it| it.filesystem_type() == PROC_SUPER_MAGIC)
    }

    fn others_write(&self) -> io::Result<bool> {
        let folder = fstat(&self.fd)?;
        if owner::others_change(folder.st_uid, folder.st_gid, folder.st_mode) {
            return Ok(true);
        }
        if folder.st_mode & 0o020 == 0 {
            return Ok(false);
        }
        // The descriptor of a path alone says nothing of its list.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        owner::has_acl(fcntl::openat(&self.fd, ".", flags, Mode::empty())?)
    }

    pub(super) fn open(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(fcntl::openat(&self.fd, name, flags, Mode::from_bits_truncate(mode))?))
    }

    fn open_followed(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        Ok(File::from(fcntl::openat(&self.fd, name, flags | OFlag::O_CLOEXEC, Mode::empty())?))
    }

    /// A new file under a name that nobody can guess.
    pub(super) fn make_random(&self, mode: u32) -> io::Result<(OsString, File)> {
        for _ in 0..ATTEMPTS_MAX {
            let mut random = [0_u8; 12];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = OsString::from(format!(".evenkeel-{hex}.part"));
            match self.open(&name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|file| (name, file)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(fcntl::renameat(&self.fd, from, &self.fd, to)?)
    }
}

/// The components of a path; one that ends in `/` keeps that as a `.` would be kept: it names a folder.
fn components(path: &Path) -> VecDeque<OsString> {
    let mut all: VecDeque<OsString> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    if path.as_os_str().as_bytes().ends_with(b"/") && !all.is_empty() {
        all.push_back(".".into());
    }
    all
}
