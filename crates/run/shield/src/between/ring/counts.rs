//! Counters of frames: one set for each thread, summed when read.

use std::sync::atomic::{AtomicU64, Ordering};

use bpf::filter::ShieldCounts;
use model::shield::Totals;
use rules::compile::COUNTERS_MAX;
use rules::tables::RuleCount;

/// A counter of a thread, which alone writes it.
#[derive(Debug, Default)]
pub(super) struct ThreadCounter(AtomicU64);

impl ThreadCounter {
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.get() + n, Ordering::Relaxed);
    }

    fn take(&self, n: u64) {
        self.0.store(self.get().saturating_sub(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes a place of each counter of all packets.
macro_rules! thread_totals {
    ($(#[$meta:meta])* pub struct Totals { $($field:ident: $unit:ident $metric:literal $help:literal $({ $($more:tt)* })?;)+ }) => {
        /// Counters of one thread for all frames.
        #[derive(Debug, Default)]
        #[allow(dead_code, reason = "some are counted by the kernel program alone")]
        pub(super) struct ThreadTotals {
            $(pub(super) $field: ThreadCounter,)+
        }

        impl ThreadTotals {
            fn read(&self) -> Totals {
                Totals { $($field: self.$field.get(),)+ }
            }
        }
    };
}
model::shield_totals!(thread_totals);

/// Packets, bytes, those beyond the limit.
const COUNTERS_PER_RULE: usize = 3;

/// Counters of one thread, which alone writes them.
#[derive(Debug)]
pub(super) struct Counts {
    rules: Vec<[ThreadCounter; COUNTERS_PER_RULE]>,
    pub(super) totals: ThreadTotals,
}

impl Default for Counts {
    fn default() -> Self {
        Self { rules: (0..COUNTERS_MAX).map(|_| Default::default()).collect(), totals: Default::default() }
    }
}

impl Counts {
    /// Frames that passed the rules did not leave in the end: they count as dropped, and no more as passed.
    pub(super) fn refused(&self, frames: usize, bytes: usize) {
        let (t, frames, bytes) = (&self.totals, frames as u64, bytes as u64);
        for (from, to, n) in [(&t.passed, &t.dropped, frames), (&t.passed_bytes, &t.dropped_bytes, bytes)] {
            from.take(n);
            to.add(n);
        }
    }

    pub(super) fn rule(&self, slot: u16, bytes: u64) {
        let [packets, all, _] = &self.rules[usize::from(slot)];
        packets.add(1);
        all.add(bytes);
    }

    pub(super) fn limited(&self, slot: u16) {
        self.rules[usize::from(slot)][2].add(1);
    }
}

/// Sums of all threads.
pub(super) struct Sums<'a>(&'a [Counts]);

impl<'a> Sums<'a> {
    pub(super) fn new(counts: &'a [Counts]) -> Self {
        Self(counts)
    }

    /// Counts of the first `slots` rules.
    pub(super) fn rules(&self, slots: usize) -> Vec<RuleCount> {
        let of = |slot: usize, n: usize| self.0.iter().map(|c| c.rules[slot][n].get()).sum();
        let rule = |slot| RuleCount { packets: of(slot, 0), bytes: of(slot, 1), limited: of(slot, 2) };
        (0..slots.min(COUNTERS_MAX)).map(rule).collect()
    }

    /// Sums in the form of the kernel program's counters.
    pub(super) fn shield_counts(&self, slots: usize) -> ShieldCounts {
        ShieldCounts { rules: self.rules(slots), totals: self.totals() }
    }

    pub(super) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        self.0.iter().for_each(|counts| sum += counts.totals.read());
        sum
    }
}
