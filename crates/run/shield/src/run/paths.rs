//! Paths of a shield's pins and state, which outlive its process.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use bpf::filter::ShieldLink;
use serve::{Home, HomeError, HomeKind, Lock};
use sys::{
    RUN_FOLDER,
    owner::{TrustedFolder, trusted_folder},
};

use crate::{between, error::ShieldError};

/// The BPF file system, in which objects are pinned (bpf(8)).
const BPFFS: &str = "/sys/fs/bpf";
/// The pinned links of the first and the second interface.
const LINK: &str = "link";
const SECOND_LINK: &str = "second";
/// Its files stay when the control process ends, and go with the shield.
const KIND: HomeKind = HomeKind { prefix: "shield-", mode: 0o700, files: &[] };

/// Files and folders of one interface's shield.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Maps and link, in a BPF file system.
    pub pins: PathBuf,
    /// Lock, socket, names of counters.
    pub state: PathBuf,
}

impl Paths {
    /// Of an interface of this network namespace; of two as `A,B`, which go by the first one's name.
    pub fn of(interface: &str) -> Self {
        Self::under(interface, Path::new(BPFFS), Path::new(RUN_FOLDER))
    }

    /// With a BPF file system and a folder for what is kept elsewhere.
    pub fn under(interface: &str, bpffs: &Path, run: &Path) -> Self {
        // Files in a BPF file system have no dots, names of VLAN interfaces do. Other namespaces may have interfaces of the same name;
        // which one is the machine's first cannot be asked without CAP_SYS_PTRACE, so that the number is always part of the name.
        let namespace = host::namespace::own().unwrap_or(0);
        let interface = interface.split(',').next().unwrap_or(interface);
        let key = format!("{}@{namespace}", interface.replace('.', "%"));
        Self {
            pins: bpffs.join(format!("evenkeel-shield-{key}")),
            state: Home::new(KIND, run, key).folder().to_owned(),
        }
    }

    /// The interfaces of this network namespace with a shield, with files of an ended one, or with a process whose folder was removed; for a shield
    /// between two interfaces, the first one's name. Folders of other users are skipped.
    pub fn interfaces() -> Result<Vec<String>, ShieldError> {
        Self::interfaces_under(Path::new(BPFFS), Path::new(RUN_FOLDER))
    }

    fn interfaces_under(bpffs: &Path, run: &Path) -> Result<Vec<String>, ShieldError> {
        let mut found = BTreeSet::new();
        for (folder, head) in [(bpffs, "evenkeel-shield-"), (run, KIND.prefix)] {
            let entries = match fs::read_dir(folder) {
                Ok(entries) => Some(entries),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(source) => {
                    return Err(ShieldError::File {
                        operation: "list the shields in",
                        path: folder.to_owned(),
                        source,
                    });
                }
            };
            let entries = entries.into_iter().flatten().flatten().filter(|entry| trusted_folder(&entry.path()).is_ok());
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            // A process may run whose folder was removed.
            let lost = serve::lost_folders(folder).into_iter();
            let lost = lost.filter_map(|folder| folder.file_name()?.to_str().map(str::to_owned));
            let of = |name: &str| Some(name.strip_prefix(head)?.rsplit_once('@')?.0.replace('%', "."));
            // Of other namespaces there may be as many.
            found.extend(names.chain(lost).filter_map(|name| {
                let interface = of(&name)?;
                let (here, at) = (Self::under(&interface, bpffs, run), folder.join(&name));
                (at == here.pins || at == here.state).then_some(interface)
            }));
        }
        Ok(found.into_iter().collect())
    }

    fn home(&self) -> Home {
        Home::at(KIND, self.state.clone())
    }

    pub fn link(&self) -> PathBuf {
        self.pins.join(LINK)
    }

    /// The pinned link of the second of two interfaces.
    pub fn second_link(&self) -> PathBuf {
        self.pins.join(SECOND_LINK)
    }

    /// Held by the control process; its text is the process id.
    pub fn lock(&self) -> PathBuf {
        self.home().lock_file()
    }

    /// The socket at which the control process listens.
    pub fn socket(&self) -> PathBuf {
        self.home().socket()
    }

    /// The file with what a later process has to know.
    pub fn memory(&self) -> PathBuf {
        self.state.join("memory.json")
    }

    /// The file of the sources that have shown packet rings that they exist.
    pub(crate) fn sources(&self) -> PathBuf {
        self.state.join("sources")
    }

    pub(super) fn bpf_file_system(&self) -> &Path {
        self.pins.parent().unwrap_or(Path::new(BPFFS))
    }

    /// Refuses folders under these names that are links or somebody else's: what is in them is believed, and emptied.
    pub fn check(&self) -> Result<(), ShieldError> {
        for path in [&self.pins, &self.state] {
            match trusted_folder(path) {
                // What cannot be looked at cannot be used either, as will be told.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
                Err(source) => {
                    let operation = "use what was found at";
                    return Err(ShieldError::File { operation, path: path.clone(), source });
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Makes the folder for what is kept, for root alone, and takes the lock of the control process of `interface`.
    ///
    /// # Errors
    /// Another process controls it; the folder cannot be made, or somebody else has made it.
    pub fn take(&self, interface: &str) -> Result<Lock, ShieldError> {
        self.check()?;
        self.home().lock().map_err(|error| match error {
            HomeError::Held { pid } => ShieldError::AlreadyRunning { interface: interface.to_owned(), pid },
            HomeError::Folder { path, source } => ShieldError::File { operation: "make the folder", path, source },
            HomeError::Serve(error) => error.into(),
        })
    }

    /// All of it goes by the interface's new name from now on.
    ///
    /// # Errors
    /// Something goes by that name already; then nothing is moved.
    pub(super) fn rename(&mut self, interface: &str) -> Result<(), ShieldError> {
        let now = Self::under(interface, self.bpf_file_system(), self.state.parent().unwrap_or(Path::new(RUN_FOLDER)));
        let moved = |from: &Path, to: &Path| {
            let free = if to.exists() { Err(std::io::ErrorKind::AlreadyExists.into()) } else { Ok(()) };
            free.and_then(|()| fs::rename(from, to)).map_err(|source| ShieldError::File {
                operation: "rename to the interface's new name",
                path: from.to_owned(),
                source,
            })
        };
        moved(&self.pins, &now.pins)?;
        moved(&self.state, &now.state).inspect_err(|_| {
            // The first failure is what is told.
            let _ = fs::rename(&now.pins, &self.pins);
        })?;
        *self = now;
        Ok(())
    }

    /// Takes all away, and puts back what was set on the interfaces; what is not there is fine.
    pub fn remove(&self) -> Result<(), ShieldError> {
        self.check()?;
        // Before their names go: the kernel would empty the places some time later.
        if let Ok(pins) = TrustedFolder::open(&self.pins) {
            for name in [LINK, SECOND_LINK] {
                // One that cannot be opened has no interface here.
                if let Ok(link) = ShieldLink::open(&pins.by_descriptor().join(name)) {
                    link.end();
                }
            }
        }
        between::put_back(&self.state);
        self.remove_files()
    }

    fn remove_files(&self) -> Result<(), ShieldError> {
        for folder in [&self.pins, &self.state] {
            match TrustedFolder::open(folder).and_then(TrustedFolder::remove) {
                Err(source) if source.kind() != ErrorKind::NotFound => {
                    return Err(ShieldError::File { operation: "remove", path: folder.clone(), source });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    #[test]
    fn shields_of_this_namespace_are_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let [bpffs, run] = ["bpf", "run"].map(|name| folder.path().join(name));
        let list = || Paths::interfaces_under(&bpffs, &run).unwrap();
        assert!(list().is_empty(), "there is no such folder");
        for interface in ["eth0", "eth1.5"] {
            let paths = Paths::under(interface, &bpffs, &run);
            fs::create_dir_all(&paths.pins).unwrap();
            fs::create_dir_all(&paths.state).unwrap();
        }
        fs::create_dir_all(Paths::under("left", &bpffs, &run).pins).unwrap();
        fs::create_dir_all(run.join("shield-other@1")).unwrap();
        fs::create_dir_all(run.join("something")).unwrap();
        std::os::unix::fs::symlink(folder.path(), Paths::under("theirs", &bpffs, &run).pins).unwrap();
        assert_eq!(list(), ["eth0", "eth1.5", "left"]);
    }

    #[test]
    fn a_link_at_the_place_of_the_pins_empties_nothing() {
        let (bpffs, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("of-root"), "kept").unwrap();
        let paths = Paths::under("ek0", bpffs.path(), bpffs.path());
        for path in [&paths.pins, &paths.state] {
            std::os::unix::fs::symlink(elsewhere.path(), path).unwrap();
            assert!(matches!(paths.remove(), Err(ShieldError::File { .. })));
            assert!(matches!(paths.take("ek0"), Err(ShieldError::File { .. })));
            fs::remove_file(path).unwrap();
            fs::DirBuilder::new().mode(0o777).create(path).unwrap();
            std::os::unix::fs::chown(path, Some(65533), None).unwrap_or_default();
            if nix::unistd::geteuid().is_root() {
                assert!(matches!(paths.remove(), Err(ShieldError::File { .. })), "a folder of somebody else");
            }
            fs::remove_dir(path).unwrap();
        }
        // One that appears behind the check.
        std::os::unix::fs::symlink(elsewhere.path(), &paths.pins).unwrap();
        assert!(paths.remove_files().is_err());
        fs::remove_file(&paths.pins).unwrap();
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
        let lock = paths.take("ek0").unwrap();
        assert!(matches!(paths.take("ek0"), Err(ShieldError::AlreadyRunning { .. })));
        drop(lock);
        paths.remove().unwrap();
    }
}
