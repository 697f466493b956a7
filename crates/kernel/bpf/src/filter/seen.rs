//! Sources that were seen before, as bits by a hash (`src/filter/seen.h`).

use std::{
    net::IpAddr,
    sync::atomic::Ordering,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sys::map_mmap::SharedMemory;

/// SEEN_WORDS: of a generation.
const WORDS: usize = 1 << 17;
/// Offsets in the map, in bytes.
const YOUNG: usize = 0;
const SINCE: usize = 8;
const AT: usize = 64;
const WORD_BITS: f64 = 64.0;
/// A generation is written for so long: who is in it was seen within twice that time.
const GENERATION_PERIOD: Duration = Duration::from_secs(12 * 3600);

/// Sources that were seen within the last 12 to 24 hours; of IPv6 their /64. What is forgotten is never one alone.
#[derive(Debug)]
pub struct SeenSources<'a> {
    memory: &'a SharedMemory,
    seed: u64,
}

impl<'a> SeenSources<'a> {
    /// Bytes of the map.
    pub(super) const BYTES: usize = AT + 2 * 8 * WORDS;

    pub(super) fn of(memory: &'a SharedMemory, seed: u64) -> Self {
        Self { memory, seed }
    }

    pub fn note(&self, source: IpAddr) {
        let (word, bits) = place(source, self.seed);
        self.word(self.young(), word).fetch_or(bits, Ordering::Relaxed);
    }

    /// True if it was seen, or others that share its bits.
    pub fn has(&self, source: IpAddr) -> bool {
        let (word, bits) = place(source, self.seed);
        (0..2).any(|generation| self.word(generation, word).load(Ordering::Relaxed) & bits == bits)
    }

    /// Begins another generation when the present one is old enough, and forgets the one before it.
    pub fn age(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let since = self.memory.word(SINCE).load(Ordering::Relaxed);
        if since == 0 {
            self.memory.word(SINCE).store(now, Ordering::Relaxed);
        } else if now.saturating_sub(since) >= GENERATION_PERIOD.as_secs() {
            let next = 1 - self.young();
            (0..WORDS).for_each(|word| self.word(next, word).store(0, Ordering::Relaxed));
            self.memory.word(YOUNG).store(next as u64, Ordering::Relaxed);
            self.memory.word(SINCE).store(now, Ordering::Relaxed);
        }
    }

    /// About how many sources are in it, and the share of strangers that are taken for one of them. Reads all of it (2 MB).
    pub fn share(&self) -> (u64, f64) {
        let (mut ones, mut taken) = (0.0, 0.0);
        for word in 0..WORDS {
            let of =
                |generation| f64::from(self.word(generation, word).load(Ordering::Relaxed).count_ones()) / WORD_BITS;
            let [a, b]: [f64; 2] = [of(0), of(1)];
            ones += (a + b) * WORD_BITS;
            // Both bits of a stranger are set, in either.
            taken += 1.0 - (1.0 - a * a) * (1.0 - b * b);
        }
        // Each has two bits; those that fall together are few while it is of use.
        ((ones / 2.0) as u64, taken / WORDS as f64)
    }

    fn young(&self) -> usize {
        (self.memory.word(YOUNG).load(Ordering::Relaxed) & 1) as usize
    }

    fn word(&self, generation: usize, word: usize) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(AT + 8 * (generation * WORDS + word))
    }
}

/// The word of a source, and its bits there.
fn place(source: IpAddr, seed: u64) -> (usize, u64) {
    let word = |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from(u32::from_ne_bytes(*b)));
    let mut hash = match source.to_canonical() {
        IpAddr::V4(v4) => word(&v4.octets(), 0),
        IpAddr::V6(v6) => word(&v6.octets(), 0) | word(&v6.octets(), 4) << 32,
    };
    for _ in 0..2 {
        hash = hash.wrapping_mul(seed);
        hash ^= hash >> 32;
    }
    ((hash >> 40) as usize & (WORDS - 1), 1 << (hash & 63) | 1 << (hash >> 6 & 63))
}
