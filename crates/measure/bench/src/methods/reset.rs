//! The time that a reset is felt (RFC 6201).

use model::bench::Reset;

use super::{Answer, Bench, Tried};
use crate::{BenchError, Load, Meanwhile, Stamping, search::ResetOrder};

/// Sends steadily, does `act` in the midst of it, and takes the reset time in both ways of RFC 6201, section 4: lost units over the
/// rate, and the longest time without an arrival. `what` says what is reset.
pub fn reset(
    bench: &mut Bench<'_>,
    settings: &ResetOrder,
    throughput_pps: f64,
    what: &str,
    act: &(dyn Fn() -> Result<(), BenchError> + Sync),
) -> Result<Answer<Reset>, BenchError> {
    let offered_pps = throughput_pps * settings.load;
    let (mut by_loss_s, mut by_time_s) = (Vec::new(), Vec::new());
    let mut why = String::new();
    let meanwhile = Meanwhile { after: settings.after, work: act };
    for number in 1..=settings.repeats.max(1) {
        let purpose = format!("reset, {what}, repetition {number}");
        let mut order = bench.order(purpose, Load::Pps(offered_pps), settings.trial);
        order.stamping = Stamping::Every;
        match bench.attempt_with(&order, Some(meanwhile))? {
            Tried::Good(trial) if trial.total().received == 0 => {
                why = "nothing came through, neither before the reset nor after it".into();
            }
            Tried::Good(trial) => {
                // Each direction for itself: the box is back when both are.
                let rate = |sent: u64| sent as f64 / trial.seconds.max(f64::MIN_POSITIVE);
                let lost = trial.counts.iter().filter(|c| c.sent > 0).map(|c| c.lost() as f64 / rate(c.sent));
                by_loss_s.push(lost.fold(0.0, f64::max));
                let silence = trial.max_gap_ns.iter().flatten().max();
                by_time_s.extend(silence.map(|&ns| ns as f64 / 1e9));
            }
            Tried::Void { reason, .. } => why = reason,
        }
    }
    if by_loss_s.is_empty() {
        return Ok(Answer::Not { reason: why });
    }
    Ok(Answer::Measured(Reset { what: what.to_owned(), offered_pps, by_loss_s, by_time_s }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{methods::simulated::SimBox, search::Preset};

    #[test]
    fn a_box_that_dies_for_three_seconds_takes_three_seconds() {
        let mut tester = SimBox { dies_for_s: 3.0, ..SimBox::default() };
        let done = AtomicU32::new(0);
        let act = || {
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let settings = ResetOrder { repeats: 2, ..Preset::quick().reset };
        let found = tester.with(|b| reset(b, &settings, 2e5, "the box", &act)).unwrap().measured().unwrap();
        assert_eq!((done.into_inner(), found.by_loss_s.len(), found.by_time_s.len()), (2, 2, 2));
        for s in found.by_loss_s.iter().chain(&found.by_time_s) {
            assert!((s - 3.0).abs() < 0.01, "{found:?}");
        }
        assert_eq!(found.offered_pps, 1e5);
    }

    #[test]
    fn what_the_reset_says_is_reported() {
        let act = || Err(BenchError::Machine("the port is gone".into()));
        let settings = Preset::quick().reset;
        let error = SimBox::default().with(|b| reset(b, &settings, 2e5, "the box", &act)).unwrap_err();
        assert_eq!(error.to_string(), "the port is gone");
    }
}
