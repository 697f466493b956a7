//! Whose an interface is, where no shield goes by its name.

use std::{fs, thread::sleep};

use bpf::{
    chain::{self, Place},
    filter::ShieldShared,
};
use serve::{Lock, lost};

use super::{heartbeat::BEAT_PERIOD, paths::Paths, settings::Settings};
use crate::{between, error::ShieldError};

/// Says of an interface that has no pins of its own here that it belongs to the shield of another one, or runs a program whose pins
/// are elsewhere; none: neither.
pub fn owner(interface: &str, paths: &Paths) -> Option<ShieldError> {
    let interface = interface.split(',').next().unwrap_or(interface);
    if let Some(of) = other(interface, paths) {
        let first = of.split(',').next().unwrap_or(&of).to_owned();
        return Some(ShieldError::OtherShield { interface: interface.to_owned(), of, first });
    }
    if paths.link().exists() {
        return None;
    }
    if let Some(lost) = lost(&paths.socket()) {
        return Some(lost.into());
    }
    // An interface that is gone, or may not be asked, runs nothing of ours.
    let attached = bpf::link::attached(interface).ok().flatten()?;
    let (_, id) = chain::users(attached.id).into_iter().find(|(place, _)| *place == Place::Filter)?;
    Some(ShieldError::PinsHidden { interface: interface.to_owned(), id, path: paths.pins.clone() })
}

/// The shield that has the interface too: another one's second, or one that goes by this name while `places` are of another.
fn other(interface: &str, paths: &Paths) -> Option<String> {
    let root = paths.state.parent()?;
    let own = Paths::under(interface, paths.bpf_file_system(), root);
    if own != *paths && own.state.exists() {
        return Some(between::names(&own.state).map_or_else(|| interface.to_owned(), |names| names.join(",")));
    }
    let namespace = own.state.file_name()?.to_str()?.rsplit_once('@')?.1.to_owned();
    let folders = fs::read_dir(root).ok()?.flatten().map(|entry| entry.path()).filter(|path| *path != paths.state);
    let here = folders.filter(|path| path.to_str().is_some_and(|path| path.ends_with(&format!("@{namespace}"))));
    here.filter_map(|path| between::names(&path)).find(|names| names[1] == interface).map(|names| names.join(","))
}

/// Says that a process runs the shield which nobody can ask, as its folder was removed; none: the folder is there, or no heart beats.
pub fn unreachable(interface: &str, paths: &Paths) -> Option<ShieldError> {
    if paths.lock().exists() || !paths.link().exists() {
        return None;
    }
    if let Some(lost) = lost(&paths.socket()) {
        return Some(lost.into());
    }
    let shared = ShieldShared::open(&paths.pins).ok()?;
    let before = shared.last_beat_ns();
    sleep(5 * BEAT_PERIOD);
    let interface = interface.to_owned();
    (shared.last_beat_ns() != before).then(|| ShieldError::Unreachable { interface, path: paths.state.clone() })
}

/// Takes the interfaces for this process, unless another shield has one of them.
///
/// # Errors
/// Another shield has one, or another process controls this one; the message says how that is ended.
pub(crate) fn take(settings: &Settings) -> Result<Lock, ShieldError> {
    let names = settings.between.as_ref().map_or_else(|| vec![&*settings.interface], |pair| pair.names().to_vec());
    names.into_iter().find_map(|name| owner(name, &settings.paths)).map_or(Ok(()), Err)?;
    unreachable(&settings.interface, &settings.paths).map_or(Ok(()), Err)?;
    settings.paths.take(&settings.interface)
}
