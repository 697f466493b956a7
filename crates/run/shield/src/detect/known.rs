//! Sources that were there before an attack: by them the harm of a mitigation is estimated.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

/// Sources that are remembered for all prefixes together, about a hundred bytes each.
const SOURCES_MAX: usize = 1 << 20;
/// A source counts as known when it was seen this long before the attack, and not only in its first moments.
const KNOWN_AGE_MIN: Duration = Duration::from_secs(2);

/// The number of sources that each of so many prefixes may remember.
pub fn room(prefixes: usize) -> usize {
    (SOURCES_MAX / prefixes.max(1)).clamp(256, 1 << 16)
}

/// Sources of one prefix, with the time at which each was first seen; the oldest are forgotten first.
#[derive(Debug, Clone, Default)]
pub struct Known {
    first_seen: HashMap<IpAddr, Duration>,
    order: VecDeque<IpAddr>,
}

impl Known {
    /// A packet of `source` came at `now`, while there was no attack; there is `room` for as many.
    pub fn see(&mut self, source: IpAddr, now: Duration, room: usize) {
        if self.first_seen.contains_key(&source) {
            return;
        }
        while self.order.len() >= room
            && let Some(oldest) = self.order.pop_front()
        {
            self.first_seen.remove(&oldest);
        }
        self.first_seen.insert(source, now);
        self.order.push_back(source);
    }

    /// Returns whether `source` was known before an attack that began at `began`.
    pub fn was_known(&self, source: IpAddr, began: Duration) -> bool {
        self.first_seen.get(&source).is_some_and(|&first| first + KNOWN_AGE_MIN <= began)
    }

    /// The number of sources that are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_the_attacks_first_moment_is_not_known() {
        let mut known = Known::default();
        let (old, new) = (IpAddr::from([198, 18, 0, 1]), IpAddr::from([198, 18, 0, 2]));
        known.see(old, Duration::from_secs(1), 9);
        known.see(new, Duration::from_secs(9), 9);
        known.see(old, Duration::from_secs(9), 9);
        let began = Duration::from_secs(10);
        assert!(known.was_known(old, began));
        assert!(!known.was_known(new, began));
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut known = Known::default();
        let source = |n: u32| IpAddr::V4((0xc612_0000 + n).into());
        (0..=room(1) as u32).for_each(|n| known.see(source(n), Duration::ZERO, room(1)));
        assert_eq!(known.len(), room(1));
        assert!(!known.was_known(source(0), Duration::from_secs(60)));
        assert!(known.was_known(source(1), Duration::from_secs(60)));
    }
}
