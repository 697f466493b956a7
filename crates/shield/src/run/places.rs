//! Where the shield of an interface keeps what outlives its control process.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::{between, error::ShieldError};

/// Where BPF objects are pinned (bpf(8), BPF file system).
const BPFFS: &str = "/sys/fs/bpf";
/// What is gone after a restart of the machine, as pins are.
const RUN: &str = "/run/evenkeel";

/// Files and folders of one interface's shield.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Maps and link, in a BPF file system.
    pub pins: PathBuf,
    /// Lock, socket, names of counters.
    pub state: PathBuf,
}

impl Places {
    /// Of an interface of this network namespace; of two as `A,B`, which go by the first one's name.
    pub fn of(interface: &str) -> Self {
        Self::under(interface, Path::new(BPFFS), Path::new(RUN))
    }

    /// With a BPF file system and a folder for what is kept elsewhere.
    pub fn under(interface: &str, bpffs: &Path, run: &Path) -> Self {
        // Files in a BPF file system have no dots, names of VLAN interfaces do. Other namespaces may have interfaces of the same name;
        // which one is the machine's first cannot be asked without CAP_SYS_PTRACE, so that the number is always part of the name.
        let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |data| data.ino());
        let interface = interface.split(',').next().unwrap_or(interface);
        let key = format!("{}@{namespace}", interface.replace('.', "%"));
        Self { pins: bpffs.join(format!("evenkeel-shield-{key}")), state: run.join(format!("shield-{key}")) }
    }

    /// The pinned link.
    pub fn link(&self) -> PathBuf {
        self.pins.join("link")
    }

    /// The pinned link of the second of two interfaces.
    pub fn second_link(&self) -> PathBuf {
        self.pins.join("second")
    }

    /// Held by the control process; its text is the process id.
    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// Where the control process listens.
    pub fn socket(&self) -> PathBuf {
        self.state.join("control")
    }

    /// What a later process has to know.
    pub fn memory(&self) -> PathBuf {
        self.state.join("memory.json")
    }

    /// Makes the folder for what is kept, for root alone.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> Result<(), ShieldError> {
        let root = self.pins.parent().unwrap_or(Path::new(BPFFS));
        if !statfs(root).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
            return Err(ShieldError::Lacking(format!(
                "{0} is no BPF file system, in which the shield is kept beyond the end of this process: mount -t bpf bpf {0} (a network namespace that was entered by `ip netns exec` has a /sys of its own; `nsenter --net` has not)",
                root.display()
            )));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.state).map_err(|source| ShieldError::Place {
            operation: "make the folder",
            path: self.state.clone(),
            source,
        })
    }

    /// Takes all away, and puts back what was set on the interfaces; what is not there is fine.
    ///
    /// # Errors
    /// Something stays.
    pub fn remove(&self) -> Result<(), ShieldError> {
        between::put_back(&self.state);
        for folder in [&self.pins, &self.state] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                fs::remove_file(&path).map_err(|source| ShieldError::Place { operation: "remove", path, source })?;
            }
            match fs::remove_dir(folder) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ShieldError::Place { operation: "remove", path: folder.clone(), source });
                }
                _ => {}
            }
        }
        Ok(())
    }
}
