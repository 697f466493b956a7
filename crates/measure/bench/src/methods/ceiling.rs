//! The tester's ceiling without a box: no figure near it says anything about one.

use model::bench::{Goal, Trial, Verdict};

use super::{Answer, Bench, Tried, throughput};
use crate::{BenchError, Load, search::Repeated};

/// A search begins so much above what came through when it was sent unpaced: a paced sender may lose less.
const START_FACTOR: f64 = 1.05;
/// The distance of its bounds. The result is too low by that at most, which errs on the side of the verdict "tester-limited".
const WIDTH_MAX: f64 = 0.05;
/// A trial of a slow tester becomes so many times as long to have enough units.
const LENGTH_FACTOR_MAX: f64 = 10.0;
/// Below this share of what came through unpaced, trials lose nothing only because they have so few units.
const SHARE_MIN: f64 = 0.01;

/// The highest rate that the tester sends and receives itself, in units per second over all directions: what comes through when it
/// sends as fast as it can, from where on a search finds the rate at which it loses no more than `loss_ratio`, paced as the trials of a
/// box are.
///
/// To be called with a tester without a box between its ports.
pub fn ceiling(bench: &mut Bench<'_>, settings: &Repeated, loss_ratio: f64) -> Result<Answer<f64>, BenchError> {
    let order = bench.order("the tester's ceiling, as fast as it can", Load::Max, settings.trial);
    let first = match bench.attempt(&order)? {
        Tried::Good(trial) => trial,
        Tried::Void { reason, .. } => return Ok(Answer::not(reason)),
    };
    if first.total().received == 0 {
        return Ok(Answer::not("nothing that the tester sent arrived at its other port"));
    }
    let trial_s = settings.trial.as_secs_f64();
    let goal = Goal {
        name: "the tester's ceiling".into(),
        loss_ratio,
        exceed_ratio: 0.5,
        initial_s: trial_s,
        trial_s,
        sum_s: trial_s * f64::from(settings.repeats.max(1)),
        width: WIDTH_MAX,
        longest_s: trial_s * LENGTH_FACTOR_MAX,
    };
    let highest_pps = first.offered_pps.min(first.received_pps * START_FACTOR);
    let found = throughput(bench, &[goal], highest_pps)?;
    Ok(match (found.pps(0), found.verdict) {
        (Some(pps), _) if pps >= first.received_pps * SHARE_MIN => Answer::Measured(pps),
        (None, Verdict::Void { reason } | Verdict::Unfinished { reason }) => Answer::Not { reason },
        _ => Answer::not("the tester loses units by itself at every rate: none of it can be trusted"),
    })
}

/// The highest rate that the tester sends, whatever becomes of it: all that can be known where a box is always in between.
pub fn sender_ceiling(bench: &mut Bench<'_>, settings: &Repeated) -> Result<Answer<f64>, BenchError> {
    let order = bench.order("the sender's ceiling: as fast as it can", Load::Max, settings.trial);
    let offered = |trial: Box<Trial>| Answer::Measured(trial.offered_pps);
    Ok(match bench.attempt(&order)? {
        Tried::Good(trial) => offered(trial),
        Tried::Void { reason, .. } => Answer::not(reason),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{methods::simulated::SimBox, search::Preset};

    #[test]
    fn it_is_what_both_ends_can_do() {
        let settings = Preset::quick().ceiling;
        // The sender is faster than the receiver.
        let mut wire = SimBox { ceiling_pps: 4e6, capacity_pps: 2.5e6, ..SimBox::default() };
        let found = wire.with(|b| ceiling(b, &settings, 0.001)).unwrap().measured().unwrap();
        assert!((2.37e6..=2.51e6).contains(&found), "{found}");
        // The receiver is faster than the sender.
        let mut wire = SimBox { ceiling_pps: 2e6, capacity_pps: 9e6, ..SimBox::default() };
        let found = wire.with(|b| ceiling(b, &settings, 0.001)).unwrap().measured().unwrap();
        assert!((1.9e6..=2e6).contains(&found), "{found}");
        assert_eq!(wire.with(|b| sender_ceiling(b, &settings)).unwrap(), Answer::Measured(2e6));
    }

    #[test]
    fn a_wire_that_carries_nothing_or_always_loses_has_none() {
        let settings = Preset::quick().ceiling;
        let mut cut = SimBox { capacity_pps: 0.0, buffer_units: 0.0, ..SimBox::default() };
        assert!(
            matches!(cut.with(|b| ceiling(b, &settings, 0.0)).unwrap(), Answer::Not { reason } if reason.contains("nothing"))
        );
        let mut lossy = SimBox { lose_one_in: 100, ..SimBox::default() };
        assert!(
            matches!(lossy.with(|b| ceiling(b, &settings, 0.001)).unwrap(), Answer::Not { reason } if reason.contains("by itself"))
        );
    }
}
