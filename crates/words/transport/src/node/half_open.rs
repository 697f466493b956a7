//! Connections that another node offered and whose acknowledgement is still missing: anybody can offer one from an address that nobody has, so their
//! number has a bound, in all and by peer.

use std::collections::VecDeque;

use super::Handle;
use crate::Nanos;

/// So many are kept at once.
const MAX: usize = 1024;
/// Of these with one peer.
const OF_PEER_MAX: usize = 256;
/// Beyond that the oldest goes, if it is so old: a peer that is there acknowledges sooner. Otherwise the new offer is left without an answer, and made
/// again.
const OLD: Nanos = 10_000_000;

/// Whether there is room for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// In the place of this one.
    Evict(Handle),
    /// No: all are too young.
    Full,
}

/// Those of a node, the oldest first.
#[derive(Debug)]
pub(super) struct HalfOpen<P> {
    all: VecDeque<(P, Handle, Nanos)>,
}

impl<P: Copy + Eq> HalfOpen<P> {
    pub(super) fn new() -> Self {
        Self { all: VecDeque::new() }
    }

    pub(super) fn room(&self, now: Nanos, peer: P) -> Room {
        let mut of_peer = self.all.iter().filter(|(other, ..)| *other == peer);
        let oldest = if self.all.len() >= MAX {
            self.all.front()
        } else if self.all.len() >= OF_PEER_MAX && of_peer.clone().count() >= OF_PEER_MAX {
            of_peer.next()
        } else {
            return Room::Free;
        };
        match oldest {
            Some(&(_, handle, since)) if since + OLD <= now => Room::Evict(handle),
            _ => Room::Full,
        }
    }

    /// True beyond half of the room: answers to offers are not sent again by themselves, but to an offer that is made again alone.
    pub(super) fn is_crowded(&self) -> bool {
        self.all.len() >= MAX / 2
    }

    pub(super) fn add(&mut self, now: Nanos, peer: P, handle: Handle) {
        self.all.push_back((peer, handle, now));
    }

    /// It is open, or gone.
    pub(super) fn remove(&mut self, handle: Handle) {
        // Those that are acknowledged are young.
        if let Some(at) = self.all.iter().rposition(|&(_, other, _)| other == handle) {
            self.all.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_takes_a_part_and_all_take_no_more_than_there_is() {
        let mut half = HalfOpen::new();
        let handle = |at: usize| Handle(at as u32 + 1);
        (0..OF_PEER_MAX).for_each(|at| half.add(1, 0, handle(at)));
        assert_eq!((half.room(OLD, 0), half.room(OLD + 1, 0)), (Room::Full, Room::Evict(handle(0))));
        assert_eq!((half.room(OLD, 7), half.is_crowded()), (Room::Free, false));
        (OF_PEER_MAX..MAX).for_each(|at| half.add(2, at, handle(at)));
        assert_eq!((half.room(OLD, 7), half.room(OLD + 1, 7)), (Room::Full, Room::Evict(handle(0))));
        assert!(half.is_crowded());
        half.remove(handle(0));
        assert_eq!(half.room(OLD, 7), Room::Free);
        half.remove(handle(0));
        assert_eq!(half.all.len(), MAX - 1);
    }
}
