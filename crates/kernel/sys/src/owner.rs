//! The owners of a file: asked for before this process believes what is in it, or runs it.

use std::{
    ffi::{CStr, CString},
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    libc::{O_DIRECTORY, O_NOFOLLOW},
    unistd::{UnlinkatFlags, getegid, geteuid, unlinkat},
};

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;

/// True if somebody else than root and this user can change what has this owner, group and mode. The user's own group is the user's.
pub fn others_change(uid: u32, gid: u32, mode: u32) -> bool {
    let foreign = uid != 0 && uid != geteuid().as_raw();
    let by_group = mode & 0o020 != 0 && gid != 0 && gid != getegid().as_raw();
    foreign || by_group || mode & 0o002 != 0
}

const ACL: &CStr = c"system.posix_acl_access";

/// True if an access control list gives rights to users beside owner and group. Needs no /proc.
///
/// # Errors
/// The file system does not say; a descriptor opened by O_PATH alone is not read (EBADF).
pub fn has_acl(fd: impl AsFd) -> io::Result<bool> {
    // SAFETY: the name is a string that ends; without room the kernel writes nothing.
    let size = unsafe { nix::libc::fgetxattr(fd.as_fd().as_raw_fd(), ACL.as_ptr(), std::ptr::null_mut(), 0) };
    is_list(size)
}

/// The same for a path.
fn path_has_acl(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both are strings that end; without room the kernel writes nothing.
    is_list(unsafe { nix::libc::getxattr(path.as_ptr(), ACL.as_ptr(), std::ptr::null_mut(), 0) })
}

/// Reads the result of getxattr(2): the size of a list, or an error.
fn is_list(size: isize) -> io::Result<bool> {
    match Errno::result(size) {
        // There is none, or the file system has none.
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(false),
        other => Ok(other? > 0),
    }
}

/// A reason not to trust a file or folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    #[error("{} belongs to user {uid}, who could change it", path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("other users can write to {} (mode {mode:04o})", path.display())]
    Mode { path: PathBuf, mode: u32 },
    #[error("an access control list of {} may let other users write to it (getfacl shows it)", path.display())]
    Acl { path: PathBuf },
    #[error("{} is no plain file or folder", path.display())]
    Kind { path: PathBuf },
}

/// Looks at what is open or was looked up as `path`: it belongs to root or this user, and nobody else can write to it.
pub fn trusted(path: &Path, meta: &Metadata) -> Result<(), Distrust> {
    let path = path.to_owned();
    match (meta.uid(), meta.mode() & 0o7777) {
        _ if meta.is_symlink() => Err(Distrust::Kind { path }),
        (uid, _) if uid != 0 && uid != geteuid().as_raw() => Err(Distrust::Owner { path, uid }),
        (uid, mode) if others_change(uid, meta.gid(), mode) => Err(Distrust::Mode { path, mode }),
        // The group's bits are then what users of the list may do at the most. What does not say may have one.
        (_, mode) if mode & 0o020 != 0 && path_has_acl(&path).unwrap_or(true) => Err(Distrust::Acl { path }),
        _ => Ok(()),
    }
}

/// As [`trusted`], for the folder at `path` itself, not what a link there points to.
///
/// # Errors
/// [`Distrust`] within an [`io::Error`], or why it cannot be looked at.
pub fn trusted_folder(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return Err(io::Error::other(Distrust::Kind { path: path.to_owned() }));
    }
    trusted(path, &meta).map_err(io::Error::other)
}

/// A folder that was looked at as by [`trusted_folder`], and stays the same one whatever becomes of its path.
#[derive(Debug)]
pub struct TrustedFolder {
    path: PathBuf,
    folder: File,
}

impl TrustedFolder {
    /// # Errors
    /// As [`trusted_folder`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = OpenOptions::new().read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(path)?;
        trusted(path, &folder.metadata()?).map_err(io::Error::other)?;
        Ok(Self { path: path.to_owned(), folder })
    }

    /// A path that leads to this folder whatever becomes of its own, as long as it is open; it needs /proc.
    pub fn by_descriptor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    /// Removes its files, and the folder.
    ///
    /// # Errors
    /// One of them cannot be removed; the folder has another path now.
    pub fn remove(self) -> io::Result<()> {
        // The path gives no more than names.
        for entry in fs::read_dir(&self.path)? {
            match unlinkat(&self.folder, entry?.file_name().as_os_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        fs::remove_dir(&self.path)
    }
}

/// As [`trusted`], for the file that `path` leads to and every folder on the way to it, those of links among them: a program that is to be run. Its path
/// without links, which nobody else can make lead elsewhere. A sticky folder such as /tmp is fine for what is root's or this user's and no link, as
/// others cannot replace that.
///
/// # Errors
/// [`Distrust`] within an [`io::Error`], or why it cannot be looked at.
pub fn trusted_program(path: &Path) -> io::Result<PathBuf> {
    let own = |meta: &Metadata| meta.uid() == 0 || meta.uid() == geteuid().as_raw();
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    // What is still to be followed, from its end.
    let mut left = parts(&std::path::absolute(path)?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = left.pop() {
        match name.to_str() {
            Some("/") => {
                at = PathBuf::from("/");
                continue;
            }
            Some(".") => continue,
            Some("..") => {
                at.pop();
                continue;
            }
            _ => {}
        }
        let next = at.join(&name);
        let (folder, there) = (fs::symlink_metadata(&at)?, fs::symlink_metadata(&next)?);
        let sticky = folder.mode() & 0o1000 != 0 && own(&folder) && own(&there) && !there.is_symlink();
        if !sticky {
            trusted(&at, &folder).map_err(io::Error::other)?;
        }
        if there.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::from_raw_os_error(nix::libc::ELOOP));
            }
            left.extend(parts(&fs::read_link(&next)?));
        } else {
            at = next;
        }
    }
    trusted(&at, &fs::symlink_metadata(&at)?).map_err(io::Error::other)?;
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_folder_is_removed_and_nothing_that_takes_its_path() {
        let top = std::env::temp_dir().join(format!("ek-removed-{}", std::process::id()));
        let [folder, moved, elsewhere] = ["folder", "moved", "elsewhere"].map(|name| top.join(name));
        for made in [&top, &folder, &elsewhere] {
            fs::create_dir(made).unwrap();
        }
        for file in [folder.join("link"), elsewhere.join("link"), elsewhere.join("passwd")] {
            fs::write(file, "").unwrap();
        }
        let opened = TrustedFolder::open(&folder).unwrap();
        fs::rename(&folder, &moved).unwrap();
        symlink(&elsewhere, &folder).unwrap();
        assert!(opened.remove().is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 2);
        assert!(TrustedFolder::open(&folder).is_err(), "a link");
        TrustedFolder::open(&elsewhere).unwrap().remove().unwrap();
        assert!(!elsewhere.exists());
        fs::set_permissions(&moved, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(TrustedFolder::open(&moved).is_err(), "a folder of others");
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn what_others_can_change_is_reported_by_its_reason() {
        let folder = std::env::temp_dir().join(format!("ek-owner-{}", std::process::id()));
        fs::DirBuilder::new().create(&folder).unwrap();
        let program = folder.join("hook");
        fs::write(&program, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&folder, 0o755);
        mode(&program, 0o755);
        trusted_folder(&folder).unwrap();
        trusted_program(&program).unwrap();
        mode(&program, 0o757);
        assert!(trusted_program(&program).unwrap_err().to_string().contains("0757"));
        mode(&program, 0o755);
        mode(&folder, 0o777);
        assert!(trusted_program(&program).is_err() && trusted_folder(&folder).is_err());
        mode(&folder, 0o755);
        // A user of an access control list: version 2; the tag, rights and number of each entry.
        let entries = [(1_u16, 7_u16, u32::MAX), (2, 7, 65534), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
        let entry = |(tag, rights, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let list = [&2_u32.to_le_bytes()[..], &entries.map(entry).concat()].concat();
        let at = CString::new(program.as_os_str().as_bytes()).unwrap();
        // SAFETY: both are strings that end, and the value is as long as is said.
        let set = unsafe {
            nix::libc::setxattr(at.as_ptr(), c"system.posix_acl_access".as_ptr(), list.as_ptr().cast(), list.len(), 0)
        };
        if set == 0 {
            let message = trusted_program(&program).unwrap_err().to_string();
            // As root the group is trusted, and the list is not.
            assert!(message.contains("access control list") || message.contains("0775"), "{message}");
            // SAFETY: as above.
            assert_eq!(unsafe { nix::libc::removexattr(at.as_ptr(), c"system.posix_acl_access".as_ptr()) }, 0);
            mode(&program, 0o755);
        }
        symlink(&folder, folder.join("link")).unwrap();
        assert!(trusted_folder(&folder.join("link")).is_err(), "a link is no folder of ours");
        assert_eq!(trusted_program(&folder.join("link/../hook")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(trusted_program(&folder.join("link/hook")).unwrap(), fs::canonicalize(&program).unwrap());
        // What is behind the link is fine, but others could change the link.
        let open = folder.join("open");
        fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        symlink(&program, open.join("hook")).unwrap();
        symlink("open/hook", folder.join("through")).unwrap();
        for path in ["open/hook", "through"] {
            let message = trusted_program(&folder.join(path)).unwrap_err().to_string();
            assert!(message.contains("open (mode 0777)"), "{message}");
        }
        mode(&open, 0o1777);
        assert!(trusted_program(&open.join("hook")).is_err(), "a link in a sticky folder");
        if geteuid().is_root() {
            chown(&program, Some(65534), None).unwrap();
            assert!(trusted_program(&program).unwrap_err().to_string().contains("65534"));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
