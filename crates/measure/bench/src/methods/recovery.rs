//! The time that an overload is felt (RFC 2544, section 26.5).

use model::bench::Recovery;

use super::{Answer, Bench, Tried};
use crate::{BenchError, Load, search::RecoveryOrder};

/// A loss so close to the end of the trial, as a share of the time after the overload, means that it would have gone on.
const TO_THE_END: f64 = 0.98;

/// Offers more than the throughput (but no more than `highest_pps`), then about half of it, and takes the time from the change to the
/// last unit that is lost.
pub fn recovery(
    bench: &mut Bench<'_>,
    settings: &RecoveryOrder,
    throughput_pps: f64,
    highest_pps: Option<f64>,
) -> Result<Answer<Recovery>, BenchError> {
    let overload_pps = (throughput_pps * settings.overload).min(highest_pps.unwrap_or(f64::INFINITY));
    if overload_pps <= throughput_pps {
        return Ok(Answer::not("the tester cannot offer more than the box's throughput: no overload"));
    }
    let after_pps = overload_pps * settings.after;
    let steps = vec![(overload_pps, settings.overloaded), (after_pps, settings.watched)];
    let mut seconds = Vec::new();
    let mut unfinished = 0;
    let mut why = String::new();
    for number in 1..=settings.repeats.max(1) {
        let purpose = format!("recovery after overload, repetition {number}");
        let order = bench.order(purpose, Load::Steps(steps.clone()), settings.overloaded + settings.watched);
        match bench.attempt(&order)? {
            Tried::Good(trial) => {
                bench.require_life(&trial)?;
                let last_ns = trial.last_loss_after_ns.iter().flatten().max().copied().unwrap_or(0);
                let last_s = last_ns as f64 / 1e9;
                unfinished += u32::from(last_s >= settings.watched.as_secs_f64() * TO_THE_END);
                seconds.push(last_s);
            }
            Tried::Void { reason, .. } => why = reason,
        }
    }
    if seconds.is_empty() {
        return Ok(Answer::Not { reason: why });
    }
    let mean_s = seconds.iter().sum::<f64>() / seconds.len() as f64;
    Ok(Answer::Measured(Recovery { overload_pps, after_pps, seconds, mean_s, unfinished }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{methods::simulated::SimBox, search::Preset};

    fn measure(tester: &mut SimBox, highest: Option<f64>) -> Answer<Recovery> {
        let settings = Preset::quick().recovery;
        tester.with(|b| recovery(b, &settings, 4e5, highest)).unwrap()
    }

    #[test]
    fn a_box_that_drops_for_a_second_takes_a_second() {
        let mut tester = SimBox { capacity_pps: 4e5, recovers_after_s: 1.0, ..SimBox::default() };
        let found = measure(&mut tester, None).measured().unwrap();
        assert!((found.mean_s - 1.0).abs() < 0.01 && found.unfinished == 0, "{found:?}");
        assert!(
            (found.overload_pps - 4.4e5).abs() < 1.0
                && (found.after_pps - 2.2e5).abs() < 1.0
                && found.seconds.len() == 2
        );
    }

    #[test]
    fn a_box_that_goes_on_dropping_has_a_lower_bound() {
        let mut tester = SimBox { capacity_pps: 4e5, recovers_after_s: 60.0, ..SimBox::default() };
        assert_eq!(measure(&mut tester, None).measured().unwrap().unfinished, 2);
    }

    #[test]
    fn without_more_than_the_throughput_there_is_no_overload() {
        assert!(matches!(measure(&mut SimBox::default(), Some(4e5)), Answer::Not { .. }));
        let found = measure(&mut SimBox::default(), Some(4.2e5)).measured().unwrap();
        assert_eq!((found.overload_pps, found.mean_s), (4.2e5, 0.0));
    }
}
