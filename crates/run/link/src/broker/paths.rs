//! The files of a broker: lock, sockets, lists that programs read; and what dead ones left.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::stat::{Mode, umask};
use serve::{Lock, ServeError};
use sys::owner::trusted_folder;

use crate::{LinkError, sockets::Listening};

/// Programs of a group have to come to a socket in it, which /run/evenkeel does not allow: that is root's alone.
const RUN: &str = "/run/evenkeel-link";
/// Files of a broker that nobody holds are left behind once they are so old.
const LEFT: Duration = Duration::from_secs(10);

/// Where the broker of a network namespace has its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths(PathBuf);

impl Paths {
    /// Of this network namespace, which has one broker.
    pub fn here() -> Self {
        Self(Path::new(RUN).join(host::namespace::own().unwrap_or(0).to_string()))
    }

    /// Where it answers commands.
    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Where the sides of TCP programs ask.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.0.join("sockets")
    }

    /// The prefixes whose connections link carries.
    pub(crate) fn cluster(&self) -> PathBuf {
        self.0.join("cluster")
    }

    /// The TCP sockets that listen for them.
    pub(crate) fn listening(&self) -> PathBuf {
        self.0.join("listening")
    }

    /// The block of ports that comes next.
    pub(crate) fn next_block(&self) -> PathBuf {
        self.0.join("next_block")
    }

    /// Where programs ask for ports.
    pub fn claims(&self) -> PathBuf {
        self.0.join("claims")
    }

    /// Takes the lock; it is given back, and the files are gone, when it is dropped.
    ///
    /// # Errors
    /// Another broker has it; the folder cannot be made or is somebody else's.
    pub fn lock(&self) -> Result<Held, LinkError> {
        let failed = |source| LinkError::System { operation: "make a folder in /run/evenkeel-link", source };
        // Others may read what a broker writes, and nobody but root may change it.
        umask(Mode::from_bits_truncate(0o022));
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.0).map_err(failed)?;
        trusted_folder(&self.0).map_err(failed)?;
        // One that is left of an earlier broker may have another mode.
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        match serve::lock(&self.0.join("lock")) {
            Err(ServeError::Locked { pid, .. }) => Err(LinkError::Serves { pid }),
            lock => {
                let held = Held { paths: self.clone(), _lock: lock? };
                clear_dead();
                Ok(held)
            }
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        fs::read_dir(RUN).into_iter().flatten().flatten().map(|entry| Self(entry.path()))
    }

    /// True if its network namespace is known not to be among those that are `alive`.
    fn is_gone(&self, alive: Option<&BTreeSet<u64>>) -> bool {
        let namespace = self.0.file_name().and_then(|name| name.to_str()?.parse().ok());
        namespace.is_some_and(|namespace: u64| alive.is_some_and(|alive| !alive.contains(&namespace)))
    }

    /// True if its broker was killed, or ended and left a list of listeners that have ended too. One that begins just now has not taken its lock yet,
    /// perhaps: what is new is of none.
    fn is_left(&self) -> bool {
        let lock = self.0.join("lock");
        let made = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
        let made = made(&lock).or_else(|_| made(&self.listening()));
        let is_old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LEFT));
        is_old
            && match lock.exists() {
                true => serve::lock_left(&lock).is_some(),
                false => !Listening::read(self.listening()).is_held(*self == Self::here()),
            }
    }

    /// Removes what is left. A live namespace keeps the number of its next block of ports: programs may have ports still.
    fn clear(&self, is_gone: bool) {
        if self.is_left() {
            let lock = self.0.join("lock");
            let lock = if lock.exists() { serve::lock_left(&lock) } else { serve::lock(&lock).ok() };
            // It removes the files when it is dropped.
            drop(lock.map(|lock| Held { paths: self.clone(), _lock: lock }));
        }
        if is_gone {
            let _ = fs::remove_file(self.next_block());
            let _ = fs::remove_dir(&self.0);
        }
    }
}

/// Folders that brokers left that were killed, or whose network namespace is gone. Nothing is changed.
pub fn dead() -> Vec<PathBuf> {
    let alive = host::namespace::all();
    Paths::all().filter(|paths| paths.is_gone(alive.as_ref()) || paths.is_left()).map(|paths| paths.0).collect()
}

/// Removes what [`dead`] tells of, and gives what is removed.
pub fn clear_dead() -> Vec<PathBuf> {
    let alive = host::namespace::all();
    let mut removed = Vec::new();
    for paths in Paths::all().filter(|paths| *paths != Paths::here()) {
        let is_gone = paths.is_gone(alive.as_ref());
        if is_gone || paths.is_left() {
            paths.clear(is_gone);
            removed.extend((!paths.0.exists()).then_some(paths.0));
        }
    }
    removed
}

/// The lock of the one broker of this network namespace.
#[derive(Debug)]
pub struct Held {
    paths: Paths,
    _lock: Lock,
}

impl Held {
    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut files = vec!["control", "claims", "sockets", "cluster", "lock"];
        // Programs that listen go on, and the next broker has to know them.
        if !Listening::read(self.paths.listening()).is_held(self.paths == Paths::here()) {
            files.push("listening");
        }
        for file in files {
            // What is not there any more need not go.
            let _ = fs::remove_file(self.paths.0.join(file));
        }
        let _ = fs::remove_dir(&self.paths.0);
    }
}
