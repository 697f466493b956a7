//! Rules pinned in the BPF file system: they stay on their ports when the process ends, until they are unpinned.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use bpf::{
    RoutePort,
    chain::{Place, Slot},
    link::attached,
};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use sys::owner::{Distrust, TrustedFolder, trusted_folder};

use crate::RouteError;

/// The BPF file system (bpf(8)).
const BPFFS: &str = "/sys/fs/bpf";
const FOLDER_PREFIX: &str = "evenkeel-route-";
/// The link in such a folder.
const LINK: &str = "link";

/// The pinned rules of a network namespace.
#[derive(Debug, Clone)]
pub(crate) struct PinnedRules {
    root: PathBuf,
    namespace: u64,
}

impl PinnedRules {
    /// Rules of this thread's network namespace.
    pub(crate) fn here() -> Self {
        Self { root: PathBuf::from(BPFFS), namespace: host::namespace::own().unwrap_or(0) }
    }

    /// Folders of all network namespaces, with the number of the namespace; folders of other users are skipped.
    pub(crate) fn all_folders() -> Vec<(u64, PathBuf)> {
        let entries = fs::read_dir(BPFFS).into_iter().flatten().flatten();
        let of = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let namespace = name.strip_prefix(FOLDER_PREFIX)?.rsplit_once('@')?.1.parse().ok()?;
            trusted_folder(&entry.path()).ok().map(|()| (namespace, entry.path()))
        };
        entries.filter_map(of).collect()
    }

    /// Names in a BPF file system have no dots.
    fn folder(&self, interface: &str) -> PathBuf {
        self.root.join(format!("{FOLDER_PREFIX}{}@{}", interface.replace('.', "%"), self.namespace))
    }

    fn link(&self, interface: &str) -> PathBuf {
        self.folder(interface).join(LINK)
    }

    /// Interfaces with pinned rules; folders of other users are skipped.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        let end = format!("@{}", self.namespace);
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| trusted_folder(&entry.path()).is_ok());
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let of = |name: String| Some(name.strip_prefix(FOLDER_PREFIX)?.strip_suffix(&end)?.replace('%', "."));
        let mut interfaces: Vec<String> = names.filter_map(of).collect();
        interfaces.sort_unstable();
        interfaces
    }

    /// The pinned link of `interface`; none without pinned rules, or if the folder belongs to another user.
    ///
    /// # Errors
    /// The folder cannot be read; the interface does not exist.
    pub(crate) fn find(&self, interface: &str) -> Result<Option<PathBuf>, RouteError> {
        let folder = self.folder(interface);
        match trusted_folder(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_distrust(&error) => Ok(None),
            Err(source) => Err(RouteError::Pin { operation: "use", path: folder, source }),
            // The interface was removed and made again.
            Ok(()) if attached(interface)?.is_none() => self.unpin(interface).map(|()| None),
            Ok(()) => Ok(Some(self.link(interface)).filter(|link| link.exists())),
        }
    }

    /// Pins the slot of `port`.
    ///
    /// # Errors
    /// There is no BPF file system, or it refuses.
    fn pin(&self, port: &mut RoutePort) -> Result<(), RouteError> {
        if !statfs(&self.root).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
            return Err(RouteError::NoBpfFileSystem { path: self.root.clone() });
        }
        let interface = port.slot().interface().to_owned();
        let folder = self.folder(&interface);
        let failed = |operation| move |source| RouteError::Pin { operation, path: folder.clone(), source };
        match fs::DirBuilder::new().mode(0o700).create(self.folder(&interface)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                trusted_folder(&self.folder(&interface)).map_err(failed("use"))?;
            }
            made => made.map_err(failed("make"))?,
        }
        Ok(port.pin(&self.link(&interface))?)
    }

    /// Pins the slots of `ports`, or unpins them so that they end with this process.
    ///
    /// # Errors
    /// As [`PinnedRules::pin`]: none is pinned then.
    pub(crate) fn set_pinned(&self, pinned: bool, ports: &mut [RoutePort]) -> Result<(), RouteError> {
        let mut added: Vec<&mut RoutePort> = Vec::new();
        for port in ports {
            let interface = port.slot().interface().to_owned();
            let was_pinned = self.find(&interface)?.is_some();
            if !pinned && was_pinned {
                self.unpin(&interface)?;
                port.unpin();
            } else if pinned && !was_pinned {
                let result = self.pin(port);
                added.push(port);
                if let Err(error) = result {
                    for port in added {
                        // The first failure is the one reported.
                        let _ = self.unpin(port.slot().interface());
                        port.unpin();
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Unpins the rules of `interface`: they end with the last process that holds them.
    pub(crate) fn unpin(&self, interface: &str) -> Result<(), RouteError> {
        Self::remove_folder(&self.folder(interface))
    }

    /// Removes a folder of pins, also what a killed process has not finished.
    pub(crate) fn remove_folder(folder: &Path) -> Result<(), RouteError> {
        let failed = |source| RouteError::Pin { operation: "remove", path: folder.to_owned(), source };
        TrustedFolder::open(folder).and_then(TrustedFolder::remove).map_err(failed)
    }
}

/// True if another user owns the folder or can write to it.
fn is_distrust(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Distrust>)
}

/// Interfaces of this network namespace with pinned rules that still run.
pub fn interfaces() -> Vec<String> {
    let rules = PinnedRules::here();
    let mut interfaces = rules.interfaces();
    // Another tool may have detached the program and left the pins.
    interfaces.retain(|interface| !Slot::is_over(&rules.link(interface)));
    interfaces
}

/// Unpins all rules of this network namespace; gives their interfaces.
pub fn unpin() -> Result<Vec<String>, RouteError> {
    let rules = PinnedRules::here();
    let interfaces = rules.interfaces();
    for interface in &interfaces {
        // Before its names go: the kernel would empty the place some time later. A folder of others is named by `unpin`.
        let folder = TrustedFolder::open(&rules.folder(interface)).ok();
        if let Some(slot) = folder.and_then(|own| Slot::open(&own.by_descriptor().join(LINK), Place::Route).ok()) {
            slot.end();
        }
        rules.unpin(interface)?;
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folders_that_others_have_put_beside_the_pins_are_no_pins() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("of-root"), "kept").unwrap();
        let rules = PinnedRules { root: root.path().to_owned(), namespace: 1 };
        symlink(elsewhere.path(), rules.folder("link")).unwrap();
        for interface in ["eth0.5", "theirs"] {
            fs::create_dir(rules.folder(interface)).unwrap();
        }
        fs::set_permissions(rules.folder("theirs"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(rules.interfaces(), ["eth0.5"]);
        for interface in ["link", "theirs"] {
            assert!(matches!(rules.find(interface), Ok(None)), "{interface}");
            assert!(matches!(rules.unpin(interface), Err(RouteError::Pin { .. })), "{interface}");
        }
        rules.unpin("eth0.5").unwrap();
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    }
}
