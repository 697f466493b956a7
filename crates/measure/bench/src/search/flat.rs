//! A loss that is the same at every load: no search finds a bound of it, and five trials show it.

use model::{
    bench::{COUNTED, Goal, Judged, SURE},
    share,
};

use super::{
    bounds::Loads,
    classify::{Counted, TrialResult},
};

/// Shares that differ by no more than this share of their mean, besides chance, are the same: of counts, and of a few units.
const ALIKE_SHARE_MAX: f64 = 0.05;
const ALIKE_FEW: f64 = 0.25;
/// Chance: so many standard deviations of a count; of few units the binomial distribution is asked. Of two loads that are the first it is
/// asked more strictly: on a noisy box two trials lose the same by accident, and a trial far below would spoil the search.
const DEVIATIONS_MAX: f64 = 3.0;
const DEVIATIONS_OF_TWO: f64 = 1.5;
/// Loads below the first two, at even distances of their logarithms down to the least.
const FURTHER_COUNT: u32 = 3;
/// A span of loads below this ratio shows nothing.
const SPAN_RATIO_MIN: f64 = 2.0;

/// A loss that is the same at all loads so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SameLoss {
    /// The lost share of all units.
    pub loss_ratio: f64,
    pub min_pps: f64,
    pub max_pps: f64,
}

/// The state of the question whether the loss is the same at every load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Flat {
    /// The loss is the same at all loads so far; this load is to be tried next.
    Look {
        pps: u64,
        loss_ratio: f64,
    },
    Same(SameLoss),
}

/// None where it is not, or is no more than the goal allows.
pub(super) fn flat(loads: &Loads, goal: &Goal, min: u64) -> Option<Flat> {
    // Where one trial makes a bound that others could outvote, one far below that went wrong by accident would spoil the search.
    if goal.exceed_ratio > 0.0 && goal.sum_s < 2.0 * goal.trial_s {
        return None;
    }
    // Loads at the upper end may be beyond the box: the question is asked of those below.
    let low = (2..=loads.len()).rev().map(|n| loads.iter().take(n).collect::<Vec<_>>());
    let (same, mean) = low.into_iter().find_map(|loads| alike(&loads, goal).map(|mean| (loads, mean)))?;
    let (&least, &most) = (same.first()?.0, same.last()?.0);
    // A box without loss would be known at this load by a trial of no more than the duration sum.
    let bottom = (goal.least_units() * 1.02 / goal.sum_s).max(min as f64);
    if most as f64 / bottom < SPAN_RATIO_MIN {
        return None;
    }
    let rung =
        |i: u32| (most as f64 * (bottom / most as f64).powf(f64::from(i) / f64::from(FURTHER_COUNT))).ceil() as u64;
    // Loads close to the highest one are one load.
    let next = (1..=FURTHER_COUNT).map(rung).find(|&pps| (pps as f64) < least as f64 * 0.9);
    Some(match next {
        Some(pps) if same.len() < 2 + FURTHER_COUNT as usize => Flat::Look { pps, loss_ratio: mean },
        _ if most as f64 / (least as f64) < SPAN_RATIO_MIN => return None,
        _ => Flat::Same(SameLoss { loss_ratio: mean, min_pps: least as f64, max_pps: most as f64 }),
    })
}

/// The share that is lost at these loads, if it is the same at all of them and more than the goal allows.
fn alike(loads: &[(&u64, &Vec<TrialResult>)], goal: &Goal) -> Option<f64> {
    let all = || loads.iter().flat_map(|(_, trials)| trials.iter());
    let (sent, failed) = all().fold((0, 0), |(s, f), t| (s + t.counted.sent, f + t.counted.failed));
    let mean = failed as f64 / sent.max(1) as f64;
    // Where everything is lost there is nothing to compare.
    if mean >= 1.0 || goal.judge(sent, failed) != Judged::Beyond {
        return None;
    }
    let deviations = if loads.len() == 2 { DEVIATIONS_OF_TWO } else { DEVIATIONS_MAX };
    let alike = |t: &TrialResult| {
        let Counted { sent, failed, .. } = t.counted;
        if sent as f64 * mean < COUNTED {
            return share::at_most(failed, sent, mean * (1.0 - ALIKE_FEW)) >= SURE
                && share::at_least(failed, sent, (mean * (1.0 + ALIKE_FEW)).min(1.0)) >= SURE;
        }
        let chance = deviations * (mean * (1.0 - mean) / sent as f64).sqrt();
        (t.counted.failed_ratio() - mean).abs() <= ALIKE_SHARE_MAX * mean.min(1.0 - mean) + chance
    };
    all().all(alike).then_some(mean)
}
