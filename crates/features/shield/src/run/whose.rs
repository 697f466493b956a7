//! Whose an interface is, where no shield goes by its name.

use std::fs;

use bpf::chain::{self, Place};

use super::places::Places;
use crate::{between, error::ShieldError};

/// What there is to say of an interface that has no pins of its own here: it belongs to the shield of another one, or runs a program whose pins
/// are elsewhere; none: neither.
pub fn whose(interface: &str, places: &Places) -> Option<ShieldError> {
    let interface = interface.split(',').next().unwrap_or(interface);
    if let Some(of) = other(interface, places) {
        let first = of.split(',').next().unwrap_or(&of).to_owned();
        return Some(ShieldError::OfAnother { interface: interface.to_owned(), of, first });
    }
    if places.link().exists() {
        return None;
    }
    // An interface that is gone, or may not be asked, runs nothing of ours.
    let attached = bpf::link::attached(interface).ok().flatten()?;
    let (_, id) = chain::users(attached.id).into_iter().find(|(place, _)| *place == Place::Filter)?;
    Some(ShieldError::Hidden { interface: interface.to_owned(), id, path: places.pins.clone() })
}

/// The shield that has the interface too: another one's second, or one that goes by this name while `places` are of another.
fn other(interface: &str, places: &Places) -> Option<String> {
    let root = places.state.parent()?;
    let own = Places::under(interface, places.bpf_file_system(), root);
    if own != *places && own.state.exists() {
        return Some(between::names(&own.state).map_or_else(|| interface.to_owned(), |names| names.join(",")));
    }
    let namespace = own.state.file_name()?.to_str()?.rsplit_once('@')?.1.to_owned();
    let folders = fs::read_dir(root).ok()?.flatten().map(|entry| entry.path()).filter(|path| *path != places.state);
    let here = folders.filter(|path| path.to_str().is_some_and(|path| path.ends_with(&format!("@{namespace}"))));
    here.filter_map(|path| between::names(&path)).find(|names| names[1] == interface).map(|names| names.join(","))
}
