//! The loads that were tried, as a goal sees them.

use std::collections::BTreeMap;

use model::bench::Goal;

use super::classify::{Bound, Evidence, TrialResult};

/// All trials by load, in whole units per second.
pub(super) type Loads = BTreeMap<u64, Vec<TrialResult>>;

/// A load as a goal sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub pps: u64,
    pub trials: &'a [TrialResult],
    pub evidence: Evidence,
    pub bound: Bound,
    /// True if it is above the throughput, or would be if all went on as it began.
    pub upper: bool,
}

/// All of them, by rising load.
pub(super) fn seen<'a>(loads: &'a Loads, goal: &Goal) -> Vec<Seen<'a>> {
    loads
        .iter()
        .map(|(&pps, trials)| {
            let evidence = Evidence::of(trials, goal);
            Seen { pps, trials, evidence, bound: evidence.bound(goal), upper: evidence.leans_upper(goal) }
        })
        .collect()
}

/// The bounds that count (RFC 9971): the lowest upper one, and the highest lower one below it.
pub(super) fn relevant<'s, 'a>(seen: &'s [Seen<'a>]) -> (Option<&'s Seen<'a>>, Option<&'s Seen<'a>>) {
    let at = seen.iter().position(|s| s.bound == Bound::Upper);
    let below = &seen[..at.unwrap_or(seen.len())];
    (below.iter().rev().find(|s| s.bound == Bound::Lower), at.map(|i| &seen[i]))
}

/// True if two loads are close enough for the goal.
pub(super) fn narrow(lower: u64, upper: u64, goal: &Goal) -> bool {
    // Loads are whole numbers.
    (upper - lower) as f64 <= goal.width * upper as f64 + 1.0
}
