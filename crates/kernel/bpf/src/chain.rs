//! The chain: several features' programs on one interface, each in its place.
//!
//! A small resident program ([`ENTRY`]) is attached; it calls the program of each place in turn, in the order of [`Place::ALL`]. A program
//! that lets a frame pass hands it to the places behind its own. A feature takes a place by [`Slot::take`], fills it and empties it by itself
//! while traffic flows; the chain goes with its last user.
//!
//! Nothing keeps the chain but its users: each holds a descriptor of the link and one of its own place, or a name for them in a BPF file
//! system. The kernel empties a program array whose last descriptor and name are gone, a little later. So a place whose owner was killed is
//! empty soon after. Three things follow. Whoever sits elsewhere must not hold a descriptor of it. Who closes the last one leaves something
//! in it, so that the next one, who waits until it is empty, is not emptied out with it. And as anybody can open and close the array of an
//! empty place (`bpftool map show` does), an owner looks again ([`Slot::put_back`]). docs/protocol/chain.md has the whole protocol.

mod end;
mod front;
mod maps;
mod repair;
mod slot;
mod state;

pub use end::AtEnd;
pub(crate) use front::behind;
pub(crate) use maps::{Maps, RESTS};
pub use slot::{Slot, SlotMaps};
pub use state::RuleNames;
pub(crate) use state::{ChainState, STATE};

use std::{os::fd::AsFd, sync::atomic::Ordering, thread::sleep, time::Duration};

use crate::{
    link::{CHAIN, program_name},
    program::Program,
};

/// The name of the resident program.
pub const ENTRY: &str = "ek_chain1";
const PROGRAM: Program = Program(ENTRY);

/// A place in an interface's chain, in the order of `enum chain_place` (src/chain/chain.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A capture of what comes.
    Before,
    Filter,
    /// A capture of what the shield lets through.
    Behind,
    /// The same capture, of frames that leave by another interface.
    Crossing,
    /// A router's fast path.
    Route,
    Link,
    /// A receiver that counts and drops frames.
    End,
}

impl Place {
    /// All, in the order in which frames pass them.
    pub const ALL: [Self; 7] =
        [Self::Before, Self::Filter, Self::Behind, Self::Crossing, Self::Route, Self::Link, Self::End];

    /// The name of its map in the kernel.
    fn map(self) -> &'static str {
        match self {
            Self::Before => "ek_before",
            Self::Filter => "ek_filter",
            Self::Behind => "ek_behind",
            Self::Crossing => "ek_crossing",
            Self::Route => "ek_route",
            Self::Link => "ek_link",
            Self::End => "ek_end",
        }
    }

    /// Description of the user of the place.
    fn words(self) -> &'static str {
        match self {
            Self::Before => "a capture (before the shield)",
            Self::Filter => "a shield",
            Self::Behind => "a capture (behind the shield)",
            Self::Crossing => "a capture (behind the shield, of what crosses)",
            Self::Route => "a router's fast path",
            Self::Link => "messages between nodes",
            Self::End => "a receiver",
        }
    }
}

/// Retries `start`, for about a second, while it fails because another feature attached its chain first: the next try joins that chain.
pub fn retry_if_raced<T, E>(is_raced: impl Fn(&E) -> bool, mut start: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    const RETRIES_MAX: u32 = 20;
    const RETRY_PERIOD: Duration = Duration::from_millis(50);
    for _ in 0..RETRIES_MAX {
        match start() {
            Err(error) if is_raced(&error) => sleep(RETRY_PERIOD),
            done => return done,
        }
    }
    start()
}

/// True if `name` is that of a chain's resident program, of this or another version.
pub fn is_chain(name: &str) -> bool {
    name.starts_with(CHAIN)
}

/// Users of the chain whose resident program has that id, with the id of the program in each place. Empty: it is no chain of this version,
/// or may not be read.
pub fn users(entry: u32) -> Vec<(Place, u32)> {
    if program_name(entry) != ENTRY {
        return Vec::new();
    }
    let state = maps::Maps::of_chain(entry, |name| name == state::STATE);
    let Ok(state) = state.and_then(|maps| ChainState::of(maps.get(state::STATE)?)) else { return Vec::new() };
    // Who was killed has left the number of a program that is gone; who has not filled its place, that of what stands in for it.
    let is_filled =
        |place: &Place| !matches!(program_name(state.user(*place).load(Ordering::Relaxed)).as_str(), "" | maps::NONE);
    let filled: Vec<_> = Place::ALL.into_iter().filter(is_filled).collect();
    // A place without an owner is not opened.
    let maps = maps::Maps::of_chain(entry, |name| filled.iter().any(|place| place.map() == name)).unwrap_or_default();
    let sits = |place: Place| {
        let id = maps::sits(maps.get(place.map()).ok()?, 0)?;
        (program_name(id) != maps::NONE).then_some((place, id))
    };
    filled.into_iter().filter_map(sits).collect()
}

/// The name of the program that judges an interface's frames: of the chain whose resident program has that id, the shield's or else its first
/// one; of any other program its own. Empty: there is none, or it may not be read.
pub fn judge_name(id: u32) -> String {
    let users = users(id);
    let judge = users.iter().find(|(place, _)| *place == Place::Filter).or_else(|| users.first());
    judge.map_or_else(|| program_name(id), |(_, id)| program_name(*id))
}

/// The users of a chain in words, for messages.
pub(crate) fn users_in_words(entry: u32) -> String {
    let words: Vec<_> =
        users(entry).into_iter().map(|(place, id)| format!("{} (program {id})", place.words())).collect();
    if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
}

/// A descriptor as a map's value or an option of a call.
fn raw(fd: impl AsFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&fd.as_fd())
}
