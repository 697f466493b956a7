//! What a process before this one left.

use std::sync::Arc;

use bpf::filter::{ShieldLink, ShieldShared};
use rules::compile::Counters;

use super::{
    memory::{Memory, read_memory},
    places::Places,
    settings::Settings,
};
use crate::error::ShieldError;

/// What a process before this one left in front of the interface.
pub(super) struct Left {
    pub(super) shared: Arc<ShieldShared>,
    pub(super) link: ShieldLink,
    pub(super) second: Option<ShieldLink>,
    pub(super) memory: Memory,
    /// What it knew and this process does not, in words.
    pub(super) lost: Option<String>,
}

impl Left {
    pub(super) fn find(settings: &Settings) -> Result<Option<Self>, ShieldError> {
        let places = &settings.places;
        places.check()?;
        if !places.link().exists() {
            // The rest of a start that was broken off.
            if places.pins.exists() {
                remove_pins(places)?;
            }
            return Ok(None);
        }
        let link = match ShieldLink::open(&places.link()) {
            Ok(link) if link.is_alive() => link,
            // The interface is another one of the same name.
            _ => {
                remove_pins(places)?;
                return Ok(None);
            }
        };
        if link.mode() != settings.mode {
            return Err(ShieldError::Usage(format!(
                "the shield that was left in front of {0} runs in {1} mode: ask for that by --xdp-mode {1}, or end it by `evenkeel shield stop {0}`",
                settings.interface,
                link.mode()
            )));
        }
        let second = match places.second_link() {
            path if path.exists() => Some(ShieldLink::open(&path)?),
            _ => None,
        };
        let (was, is) =
            (second.as_ref().map(ShieldLink::interface), settings.between.as_ref().map(|pair| &pair.second));
        if was != is.map(String::as_str) {
            let name = &settings.interface;
            let was = was.map_or_else(|| format!("{name} alone"), |other| format!("{name},{other}"));
            return Err(ShieldError::Usage(format!(
                "the shield that was left there is of {was}: take it over as it is, or end it by `evenkeel shield stop {name}`"
            )));
        }
        let shared = Arc::new(ShieldShared::open(&places.pins)?);
        shared.beat();
        let (memory, lost) = match read_memory(places) {
            Some(memory) => (memory, None),
            None => {
                let counters = Counters::behind(&shared.counts().rules);
                let lost = format!(
                    "which rules the shield that was left there had counted for is lost with {}: all counters begin anew",
                    places.memory().display()
                );
                (Memory { counters, ..Memory::default() }, Some(lost))
            }
        };
        Ok(Some(Self { shared, link, second, memory, lost }))
    }
}

pub(super) fn remove_pins(places: &Places) -> Result<(), ShieldError> {
    Places { state: places.pins.clone(), pins: places.pins.clone() }.remove()
}
