//! Translates an order for the sender.

use std::time::Duration;

use bpf::bench_tx::{BenchEntry, BenchPace, BenchProbe, STEPS_MAX};

use crate::{BenchError, Load, Order, Stamping};

use super::STAMPED_ONE_IN;

pub(super) fn pace(order: &Order, tag: u16, probe: Option<BenchProbe>) -> Result<BenchPace, BenchError> {
    let (steps, count) = match &order.load {
        Load::Pps(pps) => (vec![(Some(*pps), order.duration)], None),
        Load::Max => (vec![(None, order.duration)], None),
        Load::Burst(units) => (vec![(None, order.duration)], Some(*units)),
        Load::Steps(steps) => (steps.iter().map(|&(pps, duration)| (Some(pps), duration)).collect(), None),
        Load::Idle => (vec![(Some(0.0), order.duration)], None),
    };
    if steps.is_empty() || steps.len() > STEPS_MAX {
        return Err(BenchError::Setting(format!(
            "a trial has 1 to {STEPS_MAX} rates one after the other, not {}",
            steps.len()
        )));
    }
    let stamp_every = match order.stamping {
        Stamping::Sampled => STAMPED_ONE_IN,
        Stamping::Every => 1,
    };
    Ok(BenchPace { tag, steps, count, stamp_every, probe })
}

pub(super) fn probe(entry: &BenchEntry, every: Duration, after: Duration) -> BenchProbe {
    BenchProbe { entry: entry.clone(), every, after }
}

/// The one rate that was wanted.
pub(super) fn wanted(load: &Load) -> Option<f64> {
    match load {
        Load::Pps(pps) => Some(*pps),
        Load::Idle => Some(0.0),
        Load::Max | Load::Burst(_) | Load::Steps(_) => None,
    }
}

/// Units that should have been sent within `seconds`; none where no rate was wanted.
pub(super) fn expected(load: &Load, seconds: f64) -> Option<f64> {
    let units = match load {
        Load::Pps(pps) => pps * seconds,
        Load::Steps(steps) => steps.iter().map(|(pps, duration)| pps * duration.as_secs_f64()).sum(),
        Load::Max | Load::Burst(_) | Load::Idle => return None,
    };
    (units > 0.0).then_some(units)
}
