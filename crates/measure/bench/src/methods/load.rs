//! A load, and the use of the box's cores under it.

use std::time::Duration;

use model::{bench::Trial, sweep::Step};

use super::{Answer, Bench, Tried};
use crate::{BenchError, Load};

/// Offers `pps` for `duration`, and says what came out and what the cores `of_box` did.
pub fn load(
    bench: &mut Bench<'_>,
    of_box: &[u32],
    why: &str,
    pps: f64,
    duration: Duration,
) -> Result<Answer<Step>, BenchError> {
    let order = bench.order(why, Load::Pps(pps), duration);
    Ok(match bench.attempt(&order)? {
        Tried::Good(trial) => Answer::Measured(step(of_box, pps, &trial)),
        Tried::Void { reason, .. } => Answer::Not { reason },
    })
}

/// A trial as a step of a rising load. The tester's own ends stand for the receiving end; other programs are in the classes.
fn step(of_box: &[u32], intended_pps: f64, trial: &Trial) -> Step {
    let observed = &trial.observed;
    let cores = observed.cores.iter().filter(|c| of_box.contains(&c.cpu));
    let idle: f64 = cores.map(|c| c.idle_percent).sum();
    Step {
        intended_pps,
        offered_pps: trial.offered_pps,
        forwarded_pps: trial.received_pps,
        loss_ratio: trial.failed_ratio(),
        classes: observed.classes.clone(),
        receiver_percent: observed.tester_percent,
        stat_idle_percent: idle / of_box.len().max(1) as f64,
        samples: observed.samples,
        ..Step::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::simulated::SimBox;

    #[test]
    fn a_load_beyond_the_box_loses_the_rest() {
        let mut tester = SimBox { capacity_pps: 5e5, ..SimBox::default() };
        let mut at = |pps| {
            let found = tester.with(|b| load(b, &[1], "x", pps, Duration::from_secs(1))).unwrap();
            found.measured().unwrap()
        };
        let (below, beyond) = (at(4e5), at(1e6));
        assert_eq!((below.loss_ratio, below.intended_pps), (0.0, 4e5));
        assert!((beyond.loss_ratio - 0.5).abs() < 0.01 && (beyond.forwarded_pps - 5e5).abs() < 1e4, "{beyond:?}");
    }

    #[test]
    fn a_load_that_cannot_be_believed_has_no_figures() {
        let mut tester = SimBox { void_trials: 9, ..SimBox::default() };
        let found = tester.with(|b| load(b, &[1], "x", 1e5, Duration::from_secs(1))).unwrap();
        assert!(matches!(found, Answer::Not { .. }), "{found:?}");
    }
}
