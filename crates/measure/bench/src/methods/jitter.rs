//! Jitter at the throughput (RFC 3550, section 6.4.1): the mean of readings one after the other (FW-4).

use model::bench::Jitter;

use super::{Answer, Bench, Tried};
use crate::{BenchError, Load, Stamping, search::Readings};

/// Reads the jitter of both directions again and again at `throughput_pps`.
pub fn jitter(bench: &mut Bench<'_>, settings: &Readings, throughput_pps: f64) -> Result<Answer<Jitter>, BenchError> {
    let mut readings_ns = Vec::new();
    let mut why = None;
    for number in 1..=settings.readings.max(1) {
        let mut order = bench.order(format!("jitter, reading {number}"), Load::Pps(throughput_pps), settings.every);
        order.stamping = Stamping::Every;
        match bench.attempt(&order)? {
            Tried::Good(trial) => {
                bench.require_life(&trial)?;
                readings_ns.push(trial.one_way.map(|d| d?.jitter_ns));
            }
            Tried::Void { reason, .. } => why = Some(reason),
        }
    }
    if readings_ns.iter().flatten().all(Option::is_none) {
        return Ok(Answer::not(why.unwrap_or_else(|| "no two stamped units in a row came through".into())));
    }
    let mean = |direction: usize| {
        let of: Vec<f64> = readings_ns.iter().filter_map(|r| r[direction]).collect();
        (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
    };
    let mean_ns = [mean(0), mean(1)];
    let reading_s = settings.every.as_secs_f64();
    Ok(Answer::Measured(Jitter { offered_pps: throughput_pps, reading_s, readings_ns, mean_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{methods::simulated::SimBox, search::Preset};

    #[test]
    fn it_is_the_mean_of_the_readings() {
        let mut tester = SimBox { jitter_ns: 700.0, ..SimBox::default() };
        let settings = Readings { readings: 3, ..Preset::quick().jitter };
        let found = tester.with(|b| jitter(b, &settings, 1e5)).unwrap().measured().unwrap();
        assert_eq!((found.readings_ns.len(), found.mean_ns), (3, [Some(700.0), None]));
    }

    #[test]
    fn a_tester_that_cannot_offer_the_rate_says_so() {
        let mut tester = SimBox { ceiling_pps: 1e5, ..SimBox::default() };
        let settings = Preset::quick().jitter;
        let answer = tester.with(|b| jitter(b, &settings, 2e5)).unwrap();
        assert!(matches!(answer, Answer::Not { reason } if reason.contains("saturated")));
    }
}
