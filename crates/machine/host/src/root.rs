//! The source of /proc, /sys and the ethtool answers: the live machine, or a saved copy of one.
//!
//! Every reader of this crate takes a [`Root`], so that plans can be made and tested without the machine they are for.
//! Paths are relative and without a leading slash: `proc/stat`, `sys/class/net/eth0/mtu`, `ethtool/eth0.json`.

mod memory;
mod record;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

pub use memory::{Node, Tree};
pub use record::Recording;

/// The largest file that is taken into memory, in bytes. The largest of the kernel's own (/proc/interrupts on a machine
/// with thousands of lines and hundreds of CPUs) has a few megabytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The largest copy that is taken into memory, in bytes: a hundred times what a machine of 1,000 CPUs makes.
const MAX_COPY_BYTES: u64 = 512 << 20;

#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("cannot open {}: {source}; --root takes a tar written by `evenkeel snapshot`, or its unpacked folder", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a complete plain tar ({why}); if it is compressed, unpack it first, if it is cut off, save it again", path.display())]
    NotATar { path: PathBuf, why: String },
    #[error("{} holds neither proc/ nor sys/: it was not written by `evenkeel snapshot`", .0.display())]
    NotASnapshot(PathBuf),
    #[error("{0} does not exist{1}")]
    NotFound(String, &'static str),
    #[error("cannot read {path}: {source}{}", hint(source))]
    Read {
        /// The file, as it is called on the live machine or in the copy.
        path: String,
        source: io::Error,
    },
    #[error("`{0}` is not a path below the root")]
    BadPath(String),
}

fn hint(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::PermissionDenied { " (run as root to read it)" } else { "" }
}

impl RootError {
    /// True if the file is absent, or present but without an answer (sysfs says EINVAL for the speed of a link that is
    /// down, EOPNOTSUPP or ENODEV for what a driver lacks).
    pub fn is_absent(&self) -> bool {
        match self {
            Self::NotFound(..) => true,
            Self::Read { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP | libc::ENODEV | libc::ESRCH | libc::ENOTDIR)
            ),
            _ => false,
        }
    }
}

model::classified!(RootError: Usage, Lacking: NotFound Read);

/// The source of the machine's files. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Root(Arc<Source>);

#[derive(Debug)]
enum Source {
    Live,
    Recording(Mutex<Recording>),
    Folder(PathBuf),
    Memory(Tree),
}

impl Root {
    /// The machine this program runs on. `proc/net/…` is read through `/proc/thread-self/net`, so that a thread that
    /// entered a network namespace sees its own.
    pub fn live() -> Self {
        Self(Arc::new(Source::Live))
    }

    /// The live machine, remembering everything it serves; see [`Root::recorded`].
    pub fn recording() -> Self {
        Self(Arc::new(Source::Recording(Mutex::default())))
    }

    /// A saved copy: a plain tar, read into memory, or the folder it was unpacked to.
    ///
    /// # Errors
    /// When it cannot be opened, is not a complete tar, or holds neither proc/ nor sys/.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let open = |source| RootError::Open { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(open)?;
        if metadata.is_dir() {
            let folder = fs::canonicalize(path).map_err(open)?;
            if !folder.join("proc").is_dir() && !folder.join("sys").is_dir() {
                return Err(RootError::NotASnapshot(path.to_owned()));
            }
            return Ok(Self(Arc::new(Source::Folder(folder))));
        }
        // Opening a pipe would wait for a writer for ever.
        if !metadata.is_file() {
            return Err(open(io::Error::other("it is neither a file nor a folder")));
        }
        let tree = memory::read_tar(fs::File::open(path).map_err(open)?, path)?;
        if !tree.exists("proc") && !tree.exists("sys") {
            return Err(RootError::NotASnapshot(path.to_owned()));
        }
        Ok(Self::from_tree(tree))
    }

    /// A machine made of files by path, for tests.
    pub fn from_files(files: BTreeMap<String, String>) -> Self {
        Self::from_tree(files.into_iter().map(|(path, text)| (path, Node::File(text))).collect())
    }

    /// A machine in memory.
    pub fn from_tree(tree: Tree) -> Self {
        Self(Arc::new(Source::Memory(tree)))
    }

    /// True if this is the running machine, so that system calls may be asked for what files do not say.
    pub fn is_live(&self) -> bool {
        matches!(*self.0, Source::Live | Source::Recording(_))
    }

    /// The contents of a [`Root::recording`] so far; none for any other.
    pub fn recorded(&self) -> Option<Recording> {
        match &*self.0 {
            Source::Recording(record) => Some(record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()),
            _ => None,
        }
    }

    /// The text of a file, as it is. Bytes that are not UTF-8 become U+FFFD.
    pub fn read(&self, rel: &str) -> Result<String, RootError> {
        check(rel)?;
        let result = match &*self.0 {
            Source::Memory(tree) => return tree.read(rel).map(str::to_owned).ok_or_else(|| self.missing(rel)),
            Source::Live | Source::Recording(_) => read_file(&live_path(rel)),
            // A pipe in a folder of unknown origin would keep the reader waiting.
            Source::Folder(folder) => inside(folder, rel).and_then(|path| match path.is_file() {
                true => read_file(&path),
                false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            }),
        };
        if let Source::Recording(record) = &*self.0 {
            record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).read(rel, &result);
        }
        result.map_err(|source| self.failed(rel, source))
    }

    /// The text of a file without white space at its ends.
    pub fn read_trimmed(&self, rel: &str) -> Result<String, RootError> {
        self.read(rel).map(|text| text.trim().to_owned())
    }

    /// The text of a file without white space at its ends; none when it is absent or has no answer
    /// ([`RootError::is_absent`]).
    ///
    /// # Errors
    /// When it is there but cannot be read.
    pub fn read_opt(&self, rel: &str) -> Result<Option<String>, RootError> {
        match self.read_trimmed(rel) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.is_absent() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The names in a folder, sorted bytewise.
    pub fn list(&self, rel: &str) -> Result<Vec<String>, RootError> {
        check(rel)?;
        let listed = match &*self.0 {
            Source::Memory(tree) => return tree.list(rel).ok_or_else(|| self.missing(rel)),
            Source::Live | Source::Recording(_) => list_folder(&live_path(rel)),
            Source::Folder(folder) => inside(folder, rel).and_then(|path| list_folder(&path)),
        };
        if let Source::Recording(record) = &*self.0 {
            record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).list(rel, &listed);
        }
        let mut names: Vec<String> =
            listed.map_err(|source| self.failed(rel, source))?.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The target of a symbolic link, as it is: `../../../0000:03:00.0`.
    ///
    /// # Errors
    /// When it does not exist or is no link.
    pub fn link(&self, rel: &str) -> Result<String, RootError> {
        check(rel)?;
        let target = match &*self.0 {
            Source::Memory(tree) => return tree.link(rel).ok_or_else(|| self.missing(rel)),
            Source::Live | Source::Recording(_) => fs::read_link(live_path(rel)),
            // The last part must stay a link: only its folder is resolved.
            Source::Folder(folder) => {
                let (parent, name) = rel.rsplit_once('/').unwrap_or(("", rel));
                inside(folder, parent).and_then(|parent| fs::read_link(parent.join(name)))
            }
        };
        if let Source::Recording(record) = &*self.0 {
            record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).link(rel);
        }
        target.map(|t| t.to_string_lossy().into_owned()).map_err(|source| self.failed(rel, source))
    }

    /// True if a file or folder is there (links are followed). A recording does not keep it: read what must be kept.
    pub fn exists(&self, rel: &str) -> bool {
        check(rel).is_ok()
            && match &*self.0 {
                Source::Memory(tree) => tree.exists(rel),
                Source::Live | Source::Recording(_) => live_path(rel).exists(),
                Source::Folder(folder) => inside(folder, rel).is_ok(),
            }
    }

    /// The real path of a file of the live machine, to write to; none for a saved copy.
    pub fn path_of(&self, rel: &str) -> Option<PathBuf> {
        (self.is_live() && check(rel).is_ok()).then(|| live_path(rel))
    }

    /// A file of the live machine that nobody may write to, root included: settings of the first network namespace, seen from another one.
    pub fn is_read_only(&self, rel: &str) -> bool {
        self.path_of(rel)
            .and_then(|path| path.metadata().ok())
            .is_some_and(|file| file.permissions().mode() & 0o222 == 0)
    }

    /// The processes whose number and name (`proc/PID/comm`) `wanted` accepts, by ascending id. A recording keeps only those: the
    /// other processes of a machine are nobody's business.
    pub fn processes(&self, wanted: impl Fn(u32, &str) -> bool) -> Vec<(u32, String)> {
        // A recording is asked only for the processes that count.
        let all = if self.is_live() { Self::live() } else { self.clone() };
        let mut found: Vec<(u32, String)> = all
            .list("proc")
            .unwrap_or_default()
            .iter()
            .filter_map(|name| name.parse::<u32>().ok())
            .filter_map(|pid| Some((pid, all.read_trimmed(&format!("proc/{pid}/comm")).ok()?)))
            .filter(|(pid, comm)| wanted(*pid, comm))
            .collect();
        found.sort_unstable();
        for (pid, comm) in &found {
            self.note(&format!("proc/{pid}/comm"), &format!("{comm}\n"));
        }
        found
    }

    /// Keeps a text that no file of the live machine holds, such as an ethtool answer, in a recording. Does nothing on
    /// any other root.
    pub fn note(&self, rel: &str, text: &str) {
        if let Source::Recording(record) = &*self.0 {
            record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).note(rel, text);
        }
    }

    fn missing(&self, rel: &str) -> RootError {
        if self.is_live() {
            RootError::NotFound(format!("/{rel}"), "")
        } else {
            RootError::NotFound(rel.to_owned(), " in the saved copy")
        }
    }

    fn failed(&self, rel: &str, source: io::Error) -> RootError {
        if source.kind() == io::ErrorKind::NotFound {
            return self.missing(rel);
        }
        let path = if self.is_live() { format!("/{rel}") } else { rel.to_owned() };
        RootError::Read { path, source }
    }
}

/// Refuses what could climb out of the root: an interface name given by a user becomes part of a path.
fn check(rel: &str) -> Result<(), RootError> {
    if rel.starts_with('/') || rel.split('/').any(|part| part == "..") || rel.contains('\0') {
        return Err(RootError::BadPath(rel.to_owned()));
    }
    Ok(())
}

fn live_path(rel: &str) -> PathBuf {
    match rel.strip_prefix("proc/net/") {
        Some(rest) => Path::new("/proc/thread-self/net").join(rest),
        None => Path::new("/").join(rel),
    }
}

/// The real path in an unpacked copy; a link that leads out of the copy counts as absent.
fn inside(folder: &Path, rel: &str) -> io::Result<PathBuf> {
    let path = fs::canonicalize(folder.join(rel))?;
    if path.starts_with(folder) { Ok(path) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn read_file(path: &Path) -> io::Result<String> {
    use io::Read;
    let file = fs::File::open(path)?;
    let mut bytes = Vec::with_capacity(512);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB"));
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

fn list_folder(path: &Path) -> io::Result<Vec<(String, fs::FileType)>> {
    fs::read_dir(path)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?))
        })
        .collect()
}
