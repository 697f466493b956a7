//! What the tester can do without a box: no figure near it says anything about one.

use model::{bench::Trial, units};

use super::{Answer, Bench, Tried};
use crate::{BenchError, Load, search::Repeated};

/// How much less is tried when the tester lost units at a rate.
const DOWN: f64 = 0.95;
/// After so many of these steps its ends do not get on with each other.
const STEPS: u32 = 40;

/// The highest rate that the tester sends and receives itself, in units per second over all directions: what comes through when it
/// sends as fast as it can, then paced, as the trials of a box are, and lowered until the median of the trials loses no more than
/// `loss_ratio`. The steps make it too low by a twentieth at most, which errs on the side of the verdict "tester-limited".
///
/// To be called with a tester without a box between its ports.
///
/// # Errors
/// What the tester says.
pub fn ceiling(bench: &mut Bench<'_>, settings: &Repeated, loss_ratio: f64) -> Result<Answer<f64>, BenchError> {
    let order = bench.order("the tester's ceiling: as fast as it can", Load::Max, settings.trial);
    let first = match bench.attempt(&order)? {
        Tried::Good(trial) => trial,
        Tried::Void { reason, .. } => return Ok(Answer::not(reason)),
    };
    if first.total().received == 0 {
        return Ok(Answer::not("nothing that the tester sent arrived at its other port"));
    }
    let mut pps = first.received_pps;
    for _ in 0..STEPS {
        if let Some(offered) = holds(bench, settings, loss_ratio, pps)? {
            return Ok(Answer::Measured(offered));
        }
        pps *= DOWN;
    }
    let lowest = units::pps(pps);
    Ok(Answer::not(format!("the tester loses units by itself even at {lowest}: no rate of it can be trusted")))
}

/// The rate offered when most trials at `pps` lose no more than allowed.
fn holds(bench: &mut Bench<'_>, settings: &Repeated, loss_ratio: f64, pps: f64) -> Result<Option<f64>, BenchError> {
    let repeats = settings.repeats.max(1);
    let most = repeats / 2 + 1;
    let (mut good, mut bad) = (Vec::new(), 0);
    for number in 1..=repeats {
        let purpose = format!("the tester's ceiling: {}, trial {number}", units::pps(pps));
        match bench.attempt(&bench.order(purpose, Load::Pps(pps), settings.trial))? {
            Tried::Good(trial) if trial.loss_ratio() <= loss_ratio => good.push(trial.offered_pps),
            _ => bad += 1,
        }
        if good.len() as u32 >= most {
            good.sort_by(f64::total_cmp);
            return Ok(Some(good[good.len() / 2]));
        }
        if bad > repeats - most {
            break;
        }
    }
    Ok(None)
}

/// The highest rate that the tester sends, whatever becomes of it: all that can be known where a box is always in between.
///
/// # Errors
/// What the tester says.
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
        assert!((2.37e6..=2.5e6).contains(&found), "{found}");
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
