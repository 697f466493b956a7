//! Settings of two interfaces while frames cross between them, restored afterwards: promiscuous mode, and the link state of one
//! carried over to the other.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sys::link::{self, LinkFlags};

use super::Pair;
use crate::{error::ShieldError, state_file::write_whole};

/// An interface may take so long until its link is there: autonegotiation takes seconds.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);
/// The file in which it is written down, among what outlives the control process.
const STATE_FILE: &str = "between.json";

/// Changes to the interfaces; each is written down before it is made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Changed {
    names: [String; 2],
    /// Was not promiscuous before.
    promiscuous: [bool; 2],
    /// The interface that was taken down, as the other one has lost its link.
    held_down: Option<usize>,
}

#[derive(Debug)]
pub struct LinkState {
    changed: Changed,
    path: PathBuf,
    was_running: [bool; 2],
    /// Before this time no link is nothing to carry over.
    settled: [Instant; 2],
}

impl LinkState {
    /// Makes both promiscuous, unless somebody else does; `state` is a folder for what outlives this process. What an earlier process has changed there is known.
    pub fn start(pair: &Pair, promiscuous: bool, state: &Path) -> Result<Self, ShieldError> {
        let names = pair.names().map(ToOwned::to_owned);
        let left = read(state).filter(|left| left.names == names);
        let taken_over = left.is_some();
        let mut changed = left.unwrap_or_else(|| Changed { names, ..Changed::default() });
        if !taken_over && promiscuous {
            for (name, ours) in changed.names.iter().zip(&mut changed.promiscuous) {
                *ours = !flags(name)?.promiscuous;
            }
        }
        let settled = [Instant::now() + LINK_TIMEOUT; 2];
        let sides = Self { changed, path: state.join(STATE_FILE), was_running: [false; 2], settled };
        sides.write()?;
        for name in sides.changed.names.iter().filter(|_| promiscuous) {
            let set = link::set_promiscuous(name, true);
            set.map_err(failed("set promiscuous mode on", name))?;
        }
        Ok(sides)
    }

    /// Takes one side down when the other has lost its link, and up again when it is back. What was done, in words.
    pub fn carry(&mut self) -> Result<Option<String>, ShieldError> {
        // That an interface is gone is noticed elsewhere.
        let [Ok(first), Ok(second)] = [0, 1].map(|side: usize| link::flags(&self.changed.names[side])) else {
            return Ok(None);
        };
        let now = [first, second];
        if let Some(held) = self.changed.held_down {
            let other = 1 - held;
            if !is_there(now[other]) {
                return Ok(None);
            }
            self.set(held, true)?;
            self.changed.held_down = None;
            self.was_running[held] = false;
            self.settled[held] = Instant::now() + LINK_TIMEOUT;
            self.write()?;
            let names = &self.changed.names;
            return Ok(Some(format!("{} has its link back: {} is up again", names[other], names[held])));
        }
        for side in [0, 1] {
            let other = 1 - side;
            let lost = !is_there(now[side]) && (self.was_running[side] || Instant::now() >= self.settled[side]);
            self.was_running[side] = is_there(now[side]);
            if lost && now[other].up {
                self.changed.held_down = Some(other);
                self.write()?;
                self.set(other, false)?;
                let names = &self.changed.names;
                return Ok(Some(format!("{} has lost its link: {} is taken down", names[side], names[other])));
            }
        }
        Ok(None)
    }

    /// The side that is held down, and the one whose link is missed.
    pub fn held_down(&self) -> Option<(&str, &str)> {
        let held = self.changed.held_down?;
        Some((&self.changed.names[held], &self.changed.names[1 - held]))
    }

    fn set(&self, side: usize, up: bool) -> Result<(), ShieldError> {
        let name = &self.changed.names[side];
        let operation = if up { "bring up" } else { "take down" };
        link::set_up(name, up).map_err(failed(operation, name))
    }

    fn write(&self) -> Result<(), ShieldError> {
        let failed = |source| ShieldError::File { operation: "write", path: self.path.clone(), source };
        let text = serde_json::to_vec(&self.changed).map_err(|e| failed(io::Error::from(e)))?;
        write_whole(&self.path, &text)
    }
}

/// Brings up what an earlier process took down, so that it is not taken for an interface that somebody else wants down. Whether the other
/// side still has no link shows afterwards, as it does at each start.
pub(crate) fn bring_up(pair: &Pair, state: &Path) -> Result<(), ShieldError> {
    let left = read(state).filter(|left| left.names == pair.names());
    let Some((changed, held)) = left.and_then(|left| Some((left.clone(), left.held_down?))) else { return Ok(()) };
    let sides =
        LinkState { changed, path: state.join(STATE_FILE), was_running: [false; 2], settled: [Instant::now(); 2] };
    sides.set(held, true)?;
    LinkState { changed: Changed { held_down: None, ..sides.changed.clone() }, ..sides }.write()
}

pub(super) fn failed(operation: &'static str, name: &str) -> impl FnOnce(io::Error) -> ShieldError {
    move |source| ShieldError::Link { operation, interface: name.to_owned(), source }
}

fn is_there(flags: LinkFlags) -> bool {
    flags.up && flags.running
}

pub(super) fn flags(name: &str) -> Result<LinkFlags, ShieldError> {
    link::flags(name).map_err(failed("read the flags of", name))
}

fn read(state: &Path) -> Option<Changed> {
    serde_json::from_slice(&fs::read(state.join(STATE_FILE)).ok()?).ok()
}

/// The interfaces of the shield that has its state there, if it is one of two.
pub(crate) fn names(state: &Path) -> Option<[String; 2]> {
    read(state).map(|changed| changed.names)
}

/// Puts back what is written down in `state`, if anything is. Interfaces that are gone need nothing.
pub(crate) fn put_back(state: &Path) {
    let Some(changed) = read(state) else { return };
    if let Some(held) = changed.held_down {
        let _ = link::set_up(&changed.names[held], true);
    }
    for (name, promiscuous) in changed.names.iter().zip(changed.promiscuous) {
        if promiscuous {
            let _ = link::set_promiscuous(name, false);
        }
    }
}
