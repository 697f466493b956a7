//! Leftovers of killed routers: folders of the run-time state whose lock nobody holds, and pins of rules that hold on no
//! interface any more, of this network namespace and of others, which may be gone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bpf::chain::Slot;
use serve::Home;

use crate::{
    RouteError,
    home::{self, RouteHome},
    pinned::PinnedRules,
};

/// Lists leftovers; changes nothing.
pub fn dead() -> Vec<PathBuf> {
    let folders = home::all().into_iter().filter(Home::is_left).map(|home| home.folder().to_owned());
    folders
        .chain(PinnedRules::all_folders().into_iter().map(|(_, folder)| folder).filter(|folder| holds_nothing(folder)))
        .collect()
}

/// Removes what is left behind; gives it. `own`: the lock that the caller holds. What a running router has is left alone, and so are rules that
/// stay on an interface.
///
/// # Errors
/// Something cannot be removed.
pub fn clear(own: Option<&RouteHome>) -> Result<Vec<PathBuf>, RouteError> {
    let mut removed = Vec::new();
    for (namespace, folder) in PinnedRules::all_folders() {
        if !holds_nothing(&folder) {
            continue;
        }
        // Who begins to keep rules there holds this lock.
        let home = home::of(namespace);
        let _held = match own.filter(|own| *own.home() == home) {
            Some(_) => None,
            None => match home::hold(&home) {
                Ok(held) => Some(held),
                Err(RouteError::AlreadyRunning { .. }) => continue,
                Err(error) => return Err(error),
            },
        };
        if holds_nothing(&folder) {
            PinnedRules::remove_folder(&folder)?;
            removed.push(folder);
        }
    }
    for home in home::all() {
        if home::clear(&home)? {
            removed.push(home.folder().to_owned());
        }
    }
    Ok(removed)
}

/// True if nothing pinned there is on an interface: that is gone, or the process was killed before it had pinned anything.
fn holds_nothing(folder: &Path) -> bool {
    let link = folder.join("link");
    match fs::symlink_metadata(&link) {
        Ok(_) => Slot::is_over(&link),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound && folder.is_dir(),
    }
}
