//! Sources that have shown that they exist, asked and told by all threads without a lock.

use std::{
    hash::Hasher,
    net::IpAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use siphasher::sip::SipHasher13;

/// Sets of places, a power of two; a source has its place in one set.
const SET_COUNT: usize = 1 << 15;
/// Places of a set: a cache line.
const WAY_COUNT: usize = 8;
/// A source stays known for so long after its last SYN.
const KNOWN_TIMEOUT_S: u32 = 600;

/// A cache line: in each place the mark of a source above the second it was last seen in; 0 where there is none.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAY_COUNT]);

/// 262,144 sources in 2 MB. Who finds a set full takes the place of the one that was seen the longest ago.
///
/// Sources are told apart by 47 bits of a keyed hash (SipHash-1-3): one that is not known is taken for one that is in one of 500 million
/// cases at most, and nobody without the key can choose it. IPv6 sources are known per /64.
#[derive(Debug)]
pub(super) struct Known {
    sets: Box<[Set]>,
    hasher: SipHasher13,
    /// True if it changed since it was last saved.
    changed: AtomicBool,
}

impl Known {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let sets = (0..SET_COUNT).map(|_| Set::default()).collect();
        Self { sets, hasher: SipHasher13::new_with_key(key), changed: AtomicBool::new(false) }
    }

    /// Bytes that [`Known::write`] gives.
    pub(super) const BYTES: usize = SET_COUNT * size_of::<Set>();

    /// All sources, to be read by another process of this boot under the same key.
    pub(super) fn write(&self) -> Vec<u8> {
        let words = self.sets.iter().flat_map(|set| &set.0);
        words.flat_map(|place| place.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    /// Takes the sources that another one has written.
    pub(super) fn read(&self, bytes: &[u8]) {
        let places = self.sets.iter().flat_map(|set| &set.0);
        for (place, word) in places.zip(bytes.as_chunks().0) {
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
    }

    /// True if sources have come, or were seen again, since the last call.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    fn change(&self) {
        // A line that all threads read is written to once.
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the source is known at second `now_s` of any clock that runs forward; a SYN of it keeps it known.
    pub(super) fn contains(&self, source: IpAddr, now_s: u32, is_syn: bool) -> bool {
        let (set, mark) = self.place(source);
        let is_it = |word: u64| (word >> 32) as u32 == mark && age_s(word, now_s) < KNOWN_TIMEOUT_S && word != 0;
        let Some(place) = set.0.iter().find(|place| is_it(place.load(Ordering::Relaxed))) else { return false };
        if is_syn && age_s(place.load(Ordering::Relaxed), now_s) > 0 {
            place.store(word(mark, now_s), Ordering::Relaxed);
            self.change();
        }
        true
    }

    /// Another thread may take the same place at the same time: one of both is then asked again.
    pub(super) fn learn(&self, source: IpAddr, now_s: u32) {
        let (set, mark) = self.place(source);
        let age = |place: &&AtomicU64| {
            let word = place.load(Ordering::Relaxed);
            let is_free = word == 0 || (word >> 32) as u32 == mark;
            if is_free { u32::MAX } else { age_s(word, now_s) }
        };
        if let Some(place) = set.0.iter().max_by_key(age) {
            place.store(word(mark, now_s), Ordering::Relaxed);
            self.change();
        }
    }

    fn place(&self, source: IpAddr) -> (&Set, u32) {
        let mut hasher = self.hasher;
        match source {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()[..8]),
        }
        let hash = hasher.finish();
        (&self.sets[(hash >> 32) as usize % SET_COUNT], hash as u32)
    }
}

/// For how many seconds a source was not seen. A thread reads its clock once per block: another may have seen the source in a second that
/// this one has not come to, which is no age.
fn age_s(word: u64, now_s: u32) -> u32 {
    now_s.wrapping_sub(word as u32).cast_signed().max(0).cast_unsigned()
}

fn word(mark: u32, now_s: u32) -> u64 {
    u64::from(mark) << 32 | u64::from(now_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    #[test]
    fn a_source_is_known_for_ten_minutes_after_its_last_syn() {
        let known = Known::new(&[7; 16]);
        assert!(!known.contains(v4(1), 1, true));
        known.learn(v4(1), 1);
        assert!(
            known.contains(v4(1), 600, false) && !known.contains(v4(1), 601, false) && !known.contains(v4(2), 1, true)
        );
        assert!(
            known.contains(v4(1), 500, true)
                && known.contains(v4(1), 1099, false)
                && !known.contains(v4(1), 1100, true)
        );
        known.learn(v4(3), 100);
        assert!(known.contains(v4(3), 99, true) && known.contains(v4(3), 699, false), "by a thread that is behind");
        let address = |text: &str| text.parse().unwrap();
        known.learn(address("2001:2::1"), 5);
        assert!(
            known.contains(address("2001:2::ffff:0:0:1"), 5, true)
                && !known.contains(address("2001:2:0:1::1"), 5, true)
        );
    }

    #[test]
    fn the_newest_stay_when_there_are_too_many() {
        let known = Known::new(&[7; 16]);
        let all = (SET_COUNT * WAY_COUNT) as u32;
        (0..4 * all).for_each(|n| known.learn(v4(n), 1 + n / (all / 8)));
        let of = |range: std::ops::Range<u32>| range.filter(|&n| known.contains(v4(n), 40, false)).count();
        // A set has 8 places, and here 8 newest sources on the average, 4 of them among the last half.
        assert!(of(7 * all / 2..4 * all) as u32 > all / 2 * 95 / 100, "{}", of(7 * all / 2..4 * all));
        assert!(of(0..all) < 10, "a few sets are never full");
        assert_eq!(of(4 * all..8 * all), 0, "strangers");
    }

    #[test]
    fn another_process_takes_what_was_written() {
        let known = Known::new(&[7; 16]);
        assert!(!known.has_changed());
        (0..1000).for_each(|n| known.learn(v4(n), 5));
        assert!(known.has_changed() && !known.has_changed());
        let bytes = known.write();
        assert_eq!(bytes.len(), Known::BYTES);
        let (next, stranger) = (Known::new(&[7; 16]), Known::new(&[8; 16]));
        next.read(&bytes);
        stranger.read(&bytes);
        assert!((0..1000).all(|n| next.contains(v4(n), 6, false)) && !next.has_changed());
        assert!(!(0..1000).any(|n| stranger.contains(v4(n), 6, false)));
        assert!(next.contains(v4(0), 6, true) && next.has_changed());
    }

    #[test]
    fn sources_that_threads_learn_at_the_same_time_stay_apart() {
        let known = Known::new(&[9; 16]);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let known = &known;
                scope.spawn(move || (0..1000).for_each(|n| known.learn(v4(thread << 24 | n), 3)));
            }
        });
        let found = (0..4000).filter(|n| known.contains(v4(((n / 1000) << 24) | (n % 1000)), 3, true)).count();
        assert!(found > 3990, "{found}");
    }
}
