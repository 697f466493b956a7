//! Half-open connections: offered by another node, and their answer not acknowledged. Their number is limited, in all and by peer, as offers may have
//! forged addresses.

use std::collections::VecDeque;

use super::Handle;
use crate::Nanos;

/// Half-open connections of a node.
const HALF_OPEN_MAX: usize = 1024;
/// Half-open connections with one peer.
const HALF_OPEN_OF_PEER_MAX: usize = 256;
/// Age from which a full table evicts its oldest entry: a live peer acknowledges sooner. Otherwise the new offer is dropped, and made again.
const EVICTION_AGE_MIN: Nanos = 10_000_000;

/// Room for one more entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// The new entry replaces this one.
    Evict(Handle),
    /// All entries are too young.
    Full,
}

/// Half-open connections of a node, oldest first.
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
        let oldest = if self.all.len() >= HALF_OPEN_MAX {
            self.all.front()
        } else if self.all.len() >= HALF_OPEN_OF_PEER_MAX && of_peer.clone().count() >= HALF_OPEN_OF_PEER_MAX {
            of_peer.next()
        } else {
            return Room::Free;
        };
        match oldest {
            Some(&(_, handle, since)) if since + EVICTION_AGE_MIN <= now => Room::Evict(handle),
            _ => Room::Full,
        }
    }

    /// True from half of the limit on: answers are not retransmitted then.
    pub(super) fn is_crowded(&self) -> bool {
        self.all.len() >= HALF_OPEN_MAX / 2
    }

    pub(super) fn add(&mut self, now: Nanos, peer: P, handle: Handle) {
        self.all.push_back((peer, handle, now));
    }

    /// Removes a connection that opened or ended.
    pub(super) fn remove(&mut self, handle: Handle) {
        // Searched from the end, as acknowledged entries are young.
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
        (0..HALF_OPEN_OF_PEER_MAX).for_each(|at| half.add(1, 0, handle(at)));
        assert_eq!(
            (half.room(EVICTION_AGE_MIN, 0), half.room(EVICTION_AGE_MIN + 1, 0)),
            (Room::Full, Room::Evict(handle(0)))
        );
        assert_eq!((half.room(EVICTION_AGE_MIN, 7), half.is_crowded()), (Room::Free, false));
        (HALF_OPEN_OF_PEER_MAX..HALF_OPEN_MAX).for_each(|at| half.add(2, at, handle(at)));
        assert_eq!(
            (half.room(EVICTION_AGE_MIN, 7), half.room(EVICTION_AGE_MIN + 1, 7)),
            (Room::Full, Room::Evict(handle(0)))
        );
        assert!(half.is_crowded());
        half.remove(handle(0));
        assert_eq!(half.room(EVICTION_AGE_MIN, 7), Room::Free);
        half.remove(handle(0));
        assert_eq!(half.all.len(), HALF_OPEN_MAX - 1);
    }
}
