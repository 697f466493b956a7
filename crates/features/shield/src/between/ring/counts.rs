//! What became of frames: each thread counts for itself, and whoever asks adds up.

use std::sync::atomic::{AtomicU64, Ordering};

use bpf::filter::ShieldCounts;
use model::shield::Totals;
use rules::compile::COUNTERS_MAX;
use rules::tables::RuleCount;

/// What a thread counts of frames at large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Total {
    Passed,
    PassedBytes,
    Dropped,
    DroppedBytes,
    ByDefault,
    Malformed,
    NotIp,
    Limited,
    Challenged,
    /// Of those dropped: SYNs of unknown sources that are answered when they come again.
    Unanswered,
    /// Came while the ring was full.
    Missed,
    /// Sources that took the place of another in the table of limits.
    Crowded,
}

const TOTALS: usize = Total::Crowded as usize + 1;
/// Packets, bytes, those beyond the limit.
const OF_RULE: usize = 3;

/// Of one thread, which alone writes.
#[derive(Debug)]
pub(super) struct Counts {
    rules: Vec<[AtomicU64; OF_RULE]>,
    totals: [AtomicU64; TOTALS],
}

impl Default for Counts {
    fn default() -> Self {
        Self { rules: (0..COUNTERS_MAX).map(|_| Default::default()).collect(), totals: Default::default() }
    }
}

fn add(place: &AtomicU64, n: u64) {
    place.store(place.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn add(&self, total: Total, n: u64) {
        add(&self.totals[total as usize], n);
    }

    /// Frames that passed the rules did not leave in the end: they count as dropped, and no more as passed.
    pub(super) fn refused(&self, frames: usize, bytes: usize) {
        for (from, to, n) in [(Total::Passed, Total::Dropped, frames), (Total::PassedBytes, Total::DroppedBytes, bytes)]
        {
            let place = &self.totals[from as usize];
            place.store(place.load(Ordering::Relaxed).saturating_sub(n as u64), Ordering::Relaxed);
            self.add(to, n as u64);
        }
    }

    pub(super) fn rule(&self, slot: u16, bytes: u64) {
        let [packets, all, _] = &self.rules[usize::from(slot)];
        add(packets, 1);
        add(all, bytes);
    }

    pub(super) fn limited(&self, slot: u16) {
        add(&self.rules[usize::from(slot)][2], 1);
    }
}

/// Of all threads.
pub(super) struct Sums<'a>(&'a [Counts]);

impl<'a> Sums<'a> {
    pub(super) fn new(counts: &'a [Counts]) -> Self {
        Self(counts)
    }

    /// What has been counted in the first `slots`.
    pub(super) fn rules(&self, slots: usize) -> Vec<RuleCount> {
        let of = |slot: usize, n: usize| self.0.iter().map(|c| c.rules[slot][n].load(Ordering::Relaxed)).sum();
        let rule = |slot| RuleCount { packets: of(slot, 0), bytes: of(slot, 1), limited: of(slot, 2) };
        (0..slots.min(COUNTERS_MAX)).map(rule).collect()
    }

    /// As the kernel program's counters are read.
    pub(super) fn shield_counts(&self, slots: usize) -> ShieldCounts {
        ShieldCounts { rules: self.rules(slots), totals: self.totals() }
    }

    fn of(&self, total: Total) -> u64 {
        self.0.iter().map(|c| c.totals[total as usize].load(Ordering::Relaxed)).sum()
    }

    pub(super) fn totals(&self) -> Totals {
        let of = |total: Total| self.of(total);
        Totals {
            passed: of(Total::Passed),
            passed_bytes: of(Total::PassedBytes),
            dropped: of(Total::Dropped),
            dropped_bytes: of(Total::DroppedBytes),
            by_default: of(Total::ByDefault),
            malformed: of(Total::Malformed),
            not_ip: of(Total::NotIp),
            limited: of(Total::Limited),
            challenged: of(Total::Challenged),
            unanswered: of(Total::Unanswered),
            missed: of(Total::Missed),
            failed_open: 0,
            failed_closed: 0,
            crowded: of(Total::Crowded),
        }
    }
}
