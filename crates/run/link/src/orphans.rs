//! Orphans: connections of ended programs, whose peers the broker notifies.

use std::collections::VecDeque;

use transport::Endpoints;
use wire::Mac;

/// Connections of one ended program of a user other than root whose peers are notified, and of all such programs.
const ORPHANS_OF_PROGRAM_MAX: usize = 1024;
const ORPHANS_OF_OTHERS_MAX: usize = 16 * ORPHANS_OF_PROGRAM_MAX;
/// Peers notified in one poll of the broker.
const ORPHANS_PER_POLL_MAX: usize = 64;

/// Connections of ended programs. A program of a user other than root may have entered anything.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    of_root: VecDeque<Endpoints<Mac>>,
    of_others: VecDeque<Endpoints<Mac>>,
}

impl Orphans {
    /// Peers beyond the bounds learn it by the answers to their next frames.
    pub(crate) fn add(&mut self, is_root: bool, mut ends: Vec<Endpoints<Mac>>) {
        ends.retain(|ends| ends.peer.0[0] & 1 == 0);
        if is_root {
            self.of_root.extend(ends);
        } else {
            let room = ORPHANS_OF_OTHERS_MAX.saturating_sub(self.of_others.len());
            self.of_others.extend(ends.into_iter().take(ORPHANS_OF_PROGRAM_MAX.min(room)));
        }
    }

    /// The next peers to notify.
    pub(crate) fn next(&mut self) -> Vec<Endpoints<Mac>> {
        let of_root = self.of_root.len().min(ORPHANS_PER_POLL_MAX);
        let of_others = self.of_others.len().min(ORPHANS_PER_POLL_MAX - of_root);
        self.of_root.drain(..of_root).chain(self.of_others.drain(..of_others)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(peer: u8, count: usize) -> Vec<Endpoints<Mac>> {
        vec![Endpoints { peer: Mac([peer, 0, 0, 0, 0, 1]), port: 1, peer_port: 2, peer_number: 3, epoch: 4 }; count]
    }

    #[test]
    fn orphans_of_others_are_bounded_and_come_behind_roots() {
        let mut orphans = Orphans::default();
        for _ in 0..20 {
            orphans.add(false, ends(2, 1 << 16));
        }
        // Nobody's other end has a group address.
        orphans.add(true, ends(3, 10));
        orphans.add(true, ends(4, 3));
        assert_eq!(orphans.of_others.len(), ORPHANS_OF_OTHERS_MAX);
        let first = orphans.next();
        assert_eq!((first.len(), first.iter().filter(|ends| ends.peer.0[0] == 4).count()), (ORPHANS_PER_POLL_MAX, 3));
        let rest: usize = std::iter::from_fn(|| Some(orphans.next().len()).filter(|&count| count > 0)).sum();
        assert_eq!(first.len() + rest, 3 + ORPHANS_OF_OTHERS_MAX);
    }
}
