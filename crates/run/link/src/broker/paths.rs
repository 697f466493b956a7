//! The files of a broker: lock, sockets, lists that programs read; and what dead ones left.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::stat::{Mode, umask};
use serve::{HeldHome, Home, HomeError, HomeKind};
use sys::RUN_FOLDER;

use crate::{LinkError, sockets::Listening};

/// Others than root enter the folder: programs of a group ask at a socket in it.
const KIND: HomeKind = HomeKind { prefix: "", mode: 0o755, files: &[CLAIMS, SOCKETS, CLUSTER] };
const CLAIMS: &str = "claims";
const SOCKETS: &str = "sockets";
const CLUSTER: &str = "cluster";
/// Files of a broker that nobody holds are left behind once they are so old.
const STALE_AGE_MIN: Duration = Duration::from_secs(10);

/// The folder of all brokers: members of a group enter it, and /run/evenkeel is root's alone.
fn root() -> PathBuf {
    format!("{RUN_FOLDER}-link").into()
}

/// The files of the broker of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths(Home);

impl Paths {
    /// Paths of this network namespace, which has one broker.
    pub fn here() -> Self {
        Self(Home::new(KIND, &root(), host::namespace::own().unwrap_or(0)))
    }

    /// Socket of commands.
    pub fn control(&self) -> PathBuf {
        self.0.socket()
    }

    /// Socket for the sides of TCP programs.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.0.file(SOCKETS)
    }

    /// The prefixes whose connections link carries.
    pub(crate) fn cluster(&self) -> PathBuf {
        self.0.file(CLUSTER)
    }

    /// The TCP sockets that listen for them.
    pub(crate) fn listening(&self) -> PathBuf {
        self.0.file("listening")
    }

    /// The block of ports that comes next.
    pub(crate) fn next_block(&self) -> PathBuf {
        self.0.file("next_block")
    }

    /// Socket at which programs claim ports.
    pub fn claims(&self) -> PathBuf {
        self.0.file(CLAIMS)
    }

    /// Takes the lock; it is given back, and the files are gone, when it is dropped.
    ///
    /// # Errors
    /// Another broker has it; the folder cannot be made or is somebody else's.
    pub fn lock(&self) -> Result<Held, LinkError> {
        // Others may read what a broker writes, and nobody but root may change it.
        umask(Mode::from_bits_truncate(0o022));
        let home = self.0.hold().map_err(refused)?;
        clear_dead();
        Ok(self.held(home))
    }

    /// Waits for the end of broker `before` and takes the lock; none: another broker has taken it.
    pub(super) fn lock_after(&self, before: Option<&str>) -> Result<Option<Held>, LinkError> {
        let home = self.0.hold_after(before).map_err(refused)?;
        clear_dead();
        Ok(home.map(|home| self.held(home)))
    }

    fn held(&self, home: HeldHome) -> Held {
        Held { paths: self.clone(), _home: home }
    }

    /// The process that holds the lock.
    pub(super) fn holder(&self) -> Option<String> {
        self.0.holder().map(|(pid, _)| pid)
    }

    fn all() -> impl Iterator<Item = Self> {
        Home::all(KIND, &root()).unwrap_or_default().into_iter().map(|(_, home)| Self(home))
    }

    /// True if its network namespace is known not to be among those that are `alive`.
    fn is_gone(&self, alive: Option<&BTreeSet<u64>>) -> bool {
        let namespace = self.0.folder().file_name().and_then(|name| name.to_str()?.parse().ok());
        namespace.is_some_and(|namespace: u64| alive.is_some_and(|alive| !alive.contains(&namespace)))
    }

    /// True if its broker was killed, or ended and left a list of listeners that have ended too. One that begins just now has not taken its lock yet,
    /// perhaps: what is new is of none.
    fn is_left(&self) -> bool {
        let lock = self.0.lock_file();
        let made = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
        let made = made(&lock).or_else(|_| made(&self.listening()));
        let is_old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > STALE_AGE_MIN));
        is_old
            && match lock.exists() {
                true => self.0.is_left(),
                false => !Listening::read(self.listening()).is_held(*self == Self::here()),
            }
    }

    /// Removes what is left. A live namespace keeps the number of its next block of ports: programs may have ports still.
    fn clear(&self, is_gone: bool) {
        if self.is_left() {
            let home = if self.0.lock_file().exists() { self.0.hold_left() } else { self.0.hold().ok() };
            // It removes the files when it is dropped.
            drop(home.map(|home| self.held(home)));
        }
        if is_gone {
            let _ = fs::remove_file(self.next_block());
            let _ = fs::remove_dir(self.0.folder());
        }
    }
}

fn refused(error: HomeError) -> LinkError {
    match error {
        HomeError::Held { pid } => LinkError::Serves { pid },
        HomeError::Folder { source, .. } => {
            LinkError::System { operation: "make a folder in /run/evenkeel-link", source }
        }
        HomeError::Serve(error) => error.into(),
    }
}

/// Folders that brokers left that were killed, or whose network namespace is gone. Nothing is changed.
pub fn dead() -> Vec<PathBuf> {
    let alive = host::namespace::all();
    Paths::all()
        .filter(|paths| paths.is_gone(alive.as_ref()) || paths.is_left())
        .map(|paths| paths.0.folder().to_owned())
        .collect()
}

/// Folders whose network namespace this process can neither find nor exclude. They are not in [`dead`].
pub fn unknown() -> Vec<PathBuf> {
    if host::namespace::all().is_some() {
        return Vec::new();
    }
    let is_unknown = |paths: &Paths| *paths != Paths::here() && paths.0.holder().is_none() && !paths.is_left();
    Paths::all().filter(is_unknown).map(|paths| paths.0.folder().to_owned()).collect()
}

/// Removes what [`dead`] tells of, and gives what is removed.
pub fn clear_dead() -> Vec<PathBuf> {
    let alive = host::namespace::all();
    let mut removed = Vec::new();
    for paths in Paths::all().filter(|paths| *paths != Paths::here()) {
        let is_gone = paths.is_gone(alive.as_ref());
        if is_gone || paths.is_left() {
            paths.clear(is_gone);
            let folder = paths.0.folder();
            removed.extend((!folder.exists()).then(|| folder.to_owned()));
        }
    }
    removed
}

/// The folder of the one broker of this network namespace, until it is dropped.
#[derive(Debug)]
pub struct Held {
    paths: Paths,
    _home: HeldHome,
}

impl Held {
    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Programs that listen go on, and the next broker has to know them.
        if !Listening::read(self.paths.listening()).is_held(self.paths == Paths::here()) {
            // One that is not there need not go.
            let _ = fs::remove_file(self.paths.listening());
        }
    }
}
