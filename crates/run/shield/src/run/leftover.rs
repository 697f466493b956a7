//! Leftovers of an earlier process.

use std::sync::Arc;

use bpf::filter::{ShieldLink, ShieldShared};
use rules::compile::Counters;

use super::{
    paths::Paths,
    saved_state::{SavedState, read_state},
    settings::Settings,
};
use crate::error::ShieldError;

/// A shield that a process before this one left in front of the interface.
pub(super) struct Leftover {
    pub(super) shared: Arc<ShieldShared>,
    pub(super) link: ShieldLink,
    pub(super) second: Option<ShieldLink>,
    pub(super) memory: SavedState,
    /// A message about what that process knew and this one does not.
    pub(super) lost: Option<String>,
}

impl Leftover {
    pub(super) fn find(settings: &Settings) -> Result<Option<Self>, ShieldError> {
        let paths = &settings.paths;
        paths.check()?;
        if !paths.link().exists() {
            // The rest of a start that was broken off.
            if paths.pins.exists() {
                remove_pins(paths)?;
            }
            return Ok(None);
        }
        let link = match ShieldLink::open(&paths.link()) {
            Ok(link) if link.is_alive() => link,
            // The interface is another one of the same name.
            _ => {
                remove_pins(paths)?;
                return Ok(None);
            }
        };
        if link.mode() != settings.mode {
            let (interface, mode) = (settings.interface.clone(), link.mode());
            return Err(ShieldError::LeftoverMode { interface, mode });
        }
        let second = match paths.second_link() {
            path if path.exists() => Some(ShieldLink::open(&path)?),
            _ => None,
        };
        let (was, is) =
            (second.as_ref().map(|link| link.interface()), settings.between.as_ref().map(|pair| &pair.second));
        if was != is.map(String::as_str) {
            let interface = settings.interface.clone();
            let of = was.map_or_else(|| format!("{interface} alone"), |other| format!("{interface},{other}"));
            return Err(ShieldError::LeftoverPair { interface, of });
        }
        let damaged = |source| ShieldError::Damaged { interface: settings.interface.clone(), source };
        let shared = Arc::new(ShieldShared::open(&paths.pins).map_err(damaged)?);
        shared.beat();
        let (memory, lost) = match read_state(paths) {
            Some(memory) => (memory, None),
            None => {
                let counters = Counters::behind(&shared.counts().rules);
                let lost = format!(
                    "all counters begin anew: {} of the earlier process, which says whose they are, is missing or damaged",
                    paths.memory().display()
                );
                (SavedState { counters, ..SavedState::default() }, Some(lost))
            }
        };
        Ok(Some(Self { shared, link, second, memory, lost }))
    }
}

pub(super) fn remove_pins(paths: &Paths) -> Result<(), ShieldError> {
    Paths { state: paths.pins.clone(), pins: paths.pins.clone() }.remove()
}
