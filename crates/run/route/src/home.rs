//! The folder of a router: its lock, its socket, and the files that other processes read.

use std::path::Path;

use host::picture::FastPath;
use serve::{HeldHome, Home, HomeError, HomeKind};
use sys::RUN_FOLDER;

use crate::{RouteError, Router};

/// The file that says what a starting router does; it is removed when the router answers.
const STARTING_FILE: &str = "starts";
const KIND: HomeKind = HomeKind { prefix: "route@", mode: 0o700, files: &[FastPath::FILE, STARTING_FILE] };

/// The router of this network namespace, which has one.
pub fn here() -> Home {
    of(host::namespace::own().unwrap_or(0))
}

/// The router of the network namespace with that number.
pub(crate) fn of(namespace: u64) -> Home {
    Home::new(KIND, Path::new(RUN_FOLDER), namespace)
}

/// All network namespaces in which a router runs, or was killed.
pub(crate) fn all() -> Vec<Home> {
    let all = Home::all(KIND, Path::new(RUN_FOLDER)).unwrap_or_default();
    all.into_iter().filter(|(key, _)| key.parse::<u64>().is_ok()).map(|(_, home)| home).collect()
}

/// Takes the lock of a router; it is given back, and the files are gone, when it is dropped.
///
/// # Errors
/// Another process has it; the folder cannot be made or is somebody else's.
pub fn hold(home: &Home) -> Result<RouteHome, RouteError> {
    home.hold().map(RouteHome).map_err(refused)
}

pub(crate) fn refused(error: HomeError) -> RouteError {
    match error {
        HomeError::Held { pid } => RouteError::AlreadyRunning { pid },
        HomeError::Folder { source, .. } => RouteError::System { operation: "make /run/evenkeel", source },
        HomeError::Serve(error) => error.into(),
    }
}

/// Removes what a killed router left; whether there was anything.
pub(crate) fn clear(home: &Home) -> Result<bool, RouteError> {
    home.clear().map_err(RouteError::system("remove what a killed router left in /run/evenkeel"))
}

/// The router that starts, as an error for its clients.
pub(crate) fn starting(home: &Home) -> Option<RouteError> {
    let does = std::fs::read_to_string(home.file(STARTING_FILE)).ok()?;
    let (pid, since) = home.holder()?;
    Some(RouteError::Starting { pid, since, does })
}

/// The folder of the one router of a network namespace, until it is dropped.
#[derive(Debug)]
pub struct RouteHome(HeldHome);

impl RouteHome {
    pub(crate) fn home(&self) -> &Home {
        &self.0
    }

    /// Records what a router that cannot answer yet does, as `loads the programs`.
    pub fn set_starting(&self, does: &str) -> Result<(), RouteError> {
        self.0.write(STARTING_FILE, does).map_err(RouteError::system("say in /run/evenkeel that a router starts"))
    }

    /// Removes that record: the router answers from now on.
    pub fn clear_starting(&self) {
        // Clients are answered first, whether the file exists or not.
        let _ = self.0.remove(STARTING_FILE);
    }

    /// Publishes the CPUs that forward (`evenkeel spread`, `evenkeel doctor`).
    pub(crate) fn publish_cpus(&self, router: &Router) -> Result<(), RouteError> {
        let published = match router.cpus().is_empty() {
            true => self.0.remove(FastPath::FILE),
            false => {
                let (interfaces, cpus) = (router.ports().to_vec(), router.cpus().clone());
                let path = FastPath { pid: std::process::id(), interfaces, cpus };
                self.0.write(FastPath::FILE, &path.text())
            }
        };
        published.map_err(RouteError::system("say which CPUs forward in /run/evenkeel"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_starting_router_is_named_with_what_it_does() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::new(KIND, root.path(), 1);
        assert!(starting(&home).is_none(), "nobody is there");
        let held = hold(&home).unwrap();
        assert!(starting(&home).is_none(), "one that says nothing yet");
        held.set_starting("loads the programs").unwrap();
        let message = starting(&home).unwrap().to_string();
        let pid = std::process::id();
        assert!(message.contains(&format!("process {pid} loads the programs; `kill {pid}` ends it")), "{message}");
        held.clear_starting();
        assert!(starting(&home).is_none(), "it answers");
        // One that was killed starts no more.
        held.set_starting("loads the programs").unwrap();
        let lock = fs::read_to_string(home.lock_file()).unwrap();
        drop(held);
        fs::create_dir(home.folder()).unwrap();
        fs::write(home.lock_file(), lock).unwrap();
        fs::write(home.file(STARTING_FILE), "loads the programs").unwrap();
        assert!(starting(&home).is_none());
    }
}
