//! The ends of packets.

use std::{mem::offset_of, sync::atomic::Ordering};

use model::shield::Totals;
use rules::tables::{COUNTERS, RuleCount};
use sys::map_mmap::SharedMemory;

use crate::{
    counters::{PerCpu as _, per_cpu},
    skel::shield::types::{shield_count, shield_counts, shield_total},
};

const _: () = assert!(size_of::<shield_total>() == 128 && offset_of!(shield_counts, rule) == size_of::<shield_total>());

/// Bytes of all counters of one CPU (struct shield_cpu).
pub(super) const CPU_BYTES: usize = size_of::<shield_total>() + COUNTERS * size_of::<shield_count>();

/// The ends of all packets since the shared maps were made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShieldCounts {
    /// Counts by number of the counter ([`super::RuleEntry::counter`]); as many as were asked for.
    pub rules: Vec<RuleCount>,
    /// All of them together.
    pub totals: Totals,
}

/// Adds up what all CPUs have, of the rules that count in the first `slots`.
pub(super) fn read(memory: &SharedMemory, cpus: usize, slots: usize) -> ShieldCounts {
    let word = |at: usize| memory.word(at).load(Ordering::Relaxed);
    let mut counts = ShieldCounts { rules: vec![RuleCount::default(); slots.min(COUNTERS)], totals: Totals::default() };
    for cpu in (0..cpus).map(|cpu| cpu * CPU_BYTES) {
        counts.totals.add_words(|field| word(cpu + field));
        for (n, rule) in counts.rules.iter_mut().enumerate() {
            let at = cpu + offset_of!(shield_counts, rule) + n * size_of::<shield_count>();
            *rule += RuleCount {
                packets: word(at + offset_of!(shield_count, packets)),
                bytes: word(at + offset_of!(shield_count, bytes)),
                limited: word(at + offset_of!(shield_count, limited)),
            };
        }
    }
    counts
}

model::shield_totals!(per_cpu shield_total);
