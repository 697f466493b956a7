//! Rules that stay on their ports when the process ends: names of their places in the BPF file system, until somebody takes them away.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use bpf::{RoutePort, chain::Seat, link::attached};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use sys::owner::trusted_folder;

use crate::RouteError;

/// The BPF file system (bpf(8)).
const BPFFS: &str = "/sys/fs/bpf";
const HEAD: &str = "evenkeel-route-";

/// Where rules of this network namespace are kept.
#[derive(Debug, Clone)]
pub(crate) struct Stay {
    root: PathBuf,
    namespace: u64,
}

impl Stay {
    /// Of this thread's network namespace.
    pub(crate) fn here() -> Self {
        Self { root: PathBuf::from(BPFFS), namespace: host::namespace::own().unwrap_or(0) }
    }

    /// Folders of all network namespaces, with the number of the namespace. Those of other users are not among them.
    pub(crate) fn all() -> Vec<(u64, PathBuf)> {
        let entries = fs::read_dir(BPFFS).into_iter().flatten().flatten();
        let of = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let namespace = name.strip_prefix(HEAD)?.rsplit_once('@')?.1.parse().ok()?;
            trusted_folder(&entry.path()).ok().map(|()| (namespace, entry.path()))
        };
        entries.filter_map(of).collect()
    }

    /// Names in a BPF file system have no dots.
    fn folder(&self, interface: &str) -> PathBuf {
        self.root.join(format!("{HEAD}{}@{}", interface.replace('.', "%"), self.namespace))
    }

    fn link(&self, interface: &str) -> PathBuf {
        self.folder(interface).join("link")
    }

    /// Interfaces on which rules were left, or are to be.
    pub(crate) fn left(&self) -> Vec<String> {
        let end = format!("@{}", self.namespace);
        let names = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let of = |name: String| Some(name.strip_prefix(HEAD)?.strip_suffix(&end)?.replace('%', "."));
        let mut left: Vec<String> = names.filter_map(of).collect();
        left.sort_unstable();
        left
    }

    /// The name of the rules that were left on `interface`; none: there are none.
    ///
    /// # Errors
    /// The folder is somebody else's; the interface is not there.
    pub(crate) fn left_on(&self, interface: &str) -> Result<Option<PathBuf>, RouteError> {
        let folder = self.folder(interface);
        match trusted_folder(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RouteError::Kept { operation: "use", path: folder, source }),
            // Of an interface that went away, and came again.
            Ok(()) if attached(interface)?.is_none() => self.take_off(interface).map(|()| None),
            Ok(()) => Ok(Some(self.link(interface)).filter(|link| link.exists())),
        }
    }

    /// Keeps what sits in the place of `port`.
    fn keep(&self, port: &mut RoutePort) -> Result<(), RouteError> {
        if !statfs(&self.root).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
            return Err(RouteError::NoBpfFileSystem { path: self.root.clone() });
        }
        let interface = port.seat().interface().to_owned();
        let folder = self.folder(&interface);
        let failed = |operation| move |source| RouteError::Kept { operation, path: folder.clone(), source };
        match fs::DirBuilder::new().mode(0o700).create(self.folder(&interface)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                trusted_folder(&self.folder(&interface)).map_err(failed("use"))?;
            }
            made => made.map_err(failed("make"))?,
        }
        Ok(port.pin(&self.link(&interface))?)
    }

    /// Keeps what sits in the places of `ports` if it `stays`, or sees that it goes with this process.
    ///
    /// # Errors
    /// As [`Stay::keep`]: none is kept then.
    pub(crate) fn keep_all(&self, stays: bool, ports: &mut [RoutePort]) -> Result<(), RouteError> {
        let mut kept = Vec::new();
        for port in ports {
            let interface = port.seat().interface().to_owned();
            let left = self.left_on(&interface)?.is_some();
            if !stays && left {
                self.take_off(&interface)?;
            }
            if stays && !left {
                kept.push(interface);
                if let Err(error) = self.keep(port) {
                    for interface in kept {
                        // The first failure is what is told.
                        let _ = self.take_off(&interface);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes the names of `interface` away: what they kept goes with the last process that holds it.
    pub(crate) fn take_off(&self, interface: &str) -> Result<(), RouteError> {
        Self::remove(&self.folder(interface))
    }

    /// Takes a folder of names away.
    pub(crate) fn remove(folder: &Path) -> Result<(), RouteError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| RouteError::Kept { operation: "remove", path, source }
        };
        // Also what a killed process has not finished.
        for entry in fs::read_dir(folder).map_err(failed(folder))?.flatten() {
            fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
        }
        fs::remove_dir(folder).map_err(failed(folder))
    }
}

/// Interfaces of this network namespace on which rules hold though no process runs them, or would when it ended.
pub fn left() -> Vec<String> {
    let stay = Stay::here();
    let mut left = stay.left();
    // Another tool may have taken the program off; the names are still there.
    left.retain(|interface| !Seat::is_over(&stay.link(interface)));
    left
}

/// Takes the rules off that were left; gives the interfaces.
pub fn take_off() -> Result<Vec<String>, RouteError> {
    let stay = Stay::here();
    let left = stay.left();
    left.iter().try_for_each(|interface| stay.take_off(interface))?;
    Ok(left)
}
