//! The longest burst without loss (RFC 2544, section 26.4), and what it says of buffers (RFC 9004).

use model::bench::BackToBack;
use rig::repeat::sorted;

use super::{Answer, Bench, Tried};
use crate::{BenchError, Load, search::BurstOrder};

/// The first burst that is tried, in units.
const FIRST_UNITS: u64 = 64;
/// Searches that begin where the last one ended look this far to either side.
const NEIGHBOURHOOD_FACTOR: f64 = 1.25;

/// Searches for the longest burst that comes through whole, sent as fast as the tester can: doubled until one fails, then halved in.
/// `burst_pps` is the tester's highest rate, from which the longest burst that is tried follows; `throughput_pps` corrects the
/// buffer's time by what was forwarded meanwhile (RFC 9004, section 6.4).
pub fn back_to_back(
    bench: &mut Bench<'_>,
    settings: &BurstOrder,
    burst_pps: f64,
    throughput_pps: Option<f64>,
) -> Result<Answer<BackToBack>, BenchError> {
    let longest = ((burst_pps * settings.longest.as_secs_f64()) as u64).max(1);
    let mut search = Bursts { bench, settings, longest, rates: Vec::new() };
    let mut bursts = Vec::new();
    for _ in 0..settings.repeats.max(1) {
        match search.once(bursts.last().copied())? {
            Answer::Measured(burst) => bursts.push(burst),
            Answer::Not { reason } => return Ok(Answer::Not { reason }),
        }
    }
    let mean = bursts.iter().sum::<u64>() as f64 / bursts.len() as f64;
    // Short bursts are sent within a moment whose length is badly known: the longest ones say how fast they were.
    let burst_pps = search.rate().unwrap_or(burst_pps);
    let implied_buffer_s = mean / burst_pps;
    Ok(Answer::Measured(BackToBack {
        tester_limited: bursts.contains(&longest),
        mean,
        burst_pps,
        implied_buffer_s,
        corrected_buffer_s: throughput_pps.map(|t| (implied_buffer_s * (1.0 - t / burst_pps)).max(0.0)),
        bursts,
    }))
}

struct Bursts<'a, 'b> {
    bench: &'a mut Bench<'b>,
    settings: &'a BurstOrder,
    longest: u64,
    /// Units and rate of each burst so far.
    rates: Vec<(u64, f64)>,
}

impl Bursts<'_, '_> {
    /// Units of the longest burst without loss; 0 when not even one unit came through.
    fn once(&mut self, before: Option<u64>) -> Result<Answer<u64>, BenchError> {
        let near = |factor: f64| before.map(|b| ((b as f64 * factor) as u64).clamp(1, self.longest));
        let (mut passed, mut failed) = (0, None::<u64>);
        let mut next = near(1.0 / NEIGHBOURHOOD_FACTOR).unwrap_or(FIRST_UNITS.min(self.longest));
        let above = near(NEIGHBOURHOOD_FACTOR);
        loop {
            match self.comes_through(next)? {
                Answer::Not { reason } => return Ok(Answer::Not { reason }),
                Answer::Measured(true) => passed = next,
                Answer::Measured(false) => failed = Some(next),
            }
            next = match failed {
                None if passed == self.longest => return Ok(Answer::Measured(passed)),
                None => match above {
                    Some(above) if above > passed => above,
                    _ => (passed * 2).min(self.longest),
                },
                Some(failed) => {
                    let width = ((failed as f64 * self.settings.width) as u64).max(1);
                    if failed - passed <= width {
                        return Ok(Answer::Measured(passed));
                    }
                    passed + (failed - passed) / 2
                }
            };
        }
    }

    fn comes_through(&mut self, units: u64) -> Result<Answer<bool>, BenchError> {
        let order = self.bench.order(format!("a burst of {units}"), Load::Burst(units), self.settings.longest * 4);
        Ok(match self.bench.attempt(&order)? {
            Tried::Good(trial) => {
                self.rates.push((units, trial.offered_pps));
                Answer::Measured(trial.total().lost() == 0)
            }
            Tried::Void { reason, .. } => Answer::Not { reason },
        })
    }

    /// The median rate of the longer half of the bursts.
    fn rate(&self) -> Option<f64> {
        let most = self.rates.iter().map(|r| r.0).max()?;
        let rates = sorted(self.rates.iter().filter(|r| r.0 * 2 >= most && r.1 > 0.0).map(|r| r.1));
        rates.get(rates.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{methods::simulated::SimBox, search::Preset};

    fn quick() -> BurstOrder {
        Preset::quick().back_to_back
    }

    fn measure(tester: &mut SimBox, settings: &BurstOrder, throughput: Option<f64>) -> BackToBack {
        let (settings, ceiling) = (*settings, tester.ceiling_pps);
        tester.with(|b| back_to_back(b, &settings, ceiling, throughput)).unwrap().measured().unwrap()
    }

    #[test]
    fn the_buffer_is_found_and_corrected() {
        // A queue of 5000 in front of a server of 1 Mpps, filled at 4 Mpps: bursts of 5000 / (1 - 1/4) just fit.
        let mut tester = SimBox { capacity_pps: 1e6, ceiling_pps: 4e6, buffer_units: 5000.0, ..SimBox::default() };
        let settings = BurstOrder { width: 0.001, repeats: 3, ..quick() };
        let found = measure(&mut tester, &settings, Some(1e6));
        assert_eq!(found.bursts.len(), 3);
        assert!((found.mean - 6666.0).abs() < 10.0, "{found:?}");
        assert!((found.burst_pps - 4e6).abs() < 1.0 && !found.tester_limited);
        let units = found.corrected_buffer_s.unwrap() * found.burst_pps;
        assert!((units - 5000.0).abs() < 10.0, "{found:?}");
    }

    #[test]
    fn a_box_as_fast_as_the_tester_has_no_longest_burst() {
        let mut tester = SimBox { capacity_pps: 9e6, ceiling_pps: 4e6, ..SimBox::default() };
        let found = measure(&mut tester, &quick(), Some(4e6));
        assert!(found.tester_limited, "{found:?}");
        assert_eq!(found.bursts, [2_000_000; 5]);
        assert_eq!(found.corrected_buffer_s, Some(0.0));
    }

    #[test]
    fn a_box_that_forwards_nothing_has_bursts_of_none() {
        let mut tester = SimBox { capacity_pps: 0.0, buffer_units: 0.0, ..SimBox::default() };
        let found = measure(&mut tester, &quick(), None);
        assert_eq!((found.mean, found.corrected_buffer_s), (0.0, None));
    }
}
