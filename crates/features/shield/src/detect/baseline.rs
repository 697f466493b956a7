//! Limits of one protected prefix: configured, and learned from what is usual there.

use std::time::Duration;

use model::shield_event::{Above, Measure};
use rules::detect::DetectConfig;

use super::window::Rates;

/// Deviations above the mean that are still usual, whatever the factor says: bursts.
const DEVIATIONS: f64 = 8.0;
/// Floors of learned limits, per second.
const FLOOR: f64 = 10_000.0;
const FLOOR_BITS: f64 = 100_000_000.0;

/// The usual rates: exponentially forgetting means, and mean distances from them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Baseline {
    mean: Rates,
    deviation: Rates,
    learned: Duration,
}

impl Baseline {
    /// The limit of a measure and whether it was learned; none: it has no limit (yet).
    pub fn limit(&self, measure: Measure, config: &DetectConfig) -> Option<(f64, bool)> {
        let told = config.threshold.get(&measure).map(|&limit| (limit, false));
        let ready = config.baseline.learn && self.learned.as_secs_f64() >= config.baseline.after_s;
        let learned = ready.then(|| {
            let floor = if measure == Measure::Bits { FLOOR_BITS } else { FLOOR };
            let floor = config.baseline.floor.get(&measure).copied().unwrap_or(floor);
            let mean = self.mean.get(measure);
            let usual = (mean * config.baseline.factor).max(mean + DEVIATIONS * self.deviation.get(measure));
            (usual.max(floor), true)
        });
        match (told, learned) {
            (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// The rates that are above `part` of their limits, the one that is furthest above first.
    pub fn above(&self, rates: &Rates, part: f64, config: &DetectConfig) -> Vec<Above> {
        let mut above: Vec<Above> = Measure::ALL
            .into_iter()
            .filter_map(|measure| {
                let (limit, learned) = self.limit(measure, config)?;
                let rate = rates.get(measure);
                (rate > limit * part).then_some(Above { measure, rate, limit, learned })
            })
            .collect();
        above.sort_by(|a, b| (b.rate / b.limit).total_cmp(&(a.rate / a.limit)));
        above
    }

    /// Learns from a look that belongs to no attack. What exceeds a limit moves the mean no further than the limit does, so that
    /// the beginning of an attack is not taken for usual.
    pub fn learn(&mut self, rates: &Rates, time: Duration, config: &DetectConfig) {
        // Until as much was seen as is remembered, all of it counts the same: a plain mean.
        let seen = (self.learned + time).as_secs_f64().min(config.baseline.memory_s.max(1.0));
        let weight = (time.as_secs_f64() / seen).min(1.0);
        for measure in Measure::ALL {
            let i = measure as usize;
            let limit = self.limit(measure, config).map_or(f64::INFINITY, |(limit, _)| limit);
            let rate = rates.0[i].min(limit);
            let distance = (rate - self.mean.0[i]).abs();
            self.mean.0[i] += weight * (rate - self.mean.0[i]);
            if self.learned > Duration::ZERO {
                self.deviation.0[i] += weight * (distance - self.deviation.0[i]);
            }
        }
        self.learned += time;
    }

    /// The mean of a measure, per second.
    pub fn mean(&self, measure: Measure) -> f64 {
        self.mean.get(measure)
    }

    /// The mean distance of a measure from its mean, per second.
    pub fn deviation(&self, measure: Measure) -> f64 {
        self.deviation.get(measure)
    }

    /// As it was learned before.
    pub(super) fn of(mean: Rates, deviation: Rates, learned: Duration) -> Self {
        Self { mean, deviation, learned }
    }

    /// The time for which it has learned.
    pub fn learned(&self) -> Duration {
        self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(100);

    fn rates(pps: f64) -> Rates {
        let mut rates = Rates::default();
        rates.0[Measure::Packets as usize] = pps;
        rates
    }

    #[test]
    fn a_learned_limit_is_a_multiple_of_what_is_usual_and_not_below_the_floor() {
        let config = DetectConfig::default();
        let mut baseline = Baseline::default();
        for i in 0..599 {
            baseline.learn(&rates(20_000.0 + f64::from(i % 2) * 1000.0), LOOK, &config);
        }
        assert_eq!(baseline.limit(Measure::Packets, &config), None, "59.9 s are below 60 s");
        baseline.learn(&rates(20_500.0), LOOK, &config);
        let (limit, learned) = baseline.limit(Measure::Packets, &config).expect("learned");
        assert!(learned && (limit - 102_500.0).abs() < 500.0, "{limit}");
        assert_eq!(baseline.limit(Measure::Syn, &config), Some((10_000.0, true)), "the floor");
    }

    #[test]
    fn the_lower_of_two_limits_holds() {
        let mut config = DetectConfig::default();
        config.threshold.insert(Measure::Packets, 5_000.0);
        let mut baseline = Baseline::default();
        assert_eq!(baseline.limit(Measure::Packets, &config), Some((5_000.0, false)));
        (0..700).for_each(|_| baseline.learn(&rates(10.0), LOOK, &config));
        assert_eq!(baseline.limit(Measure::Packets, &config), Some((5_000.0, false)), "the floor is above it");
        config.baseline.floor.insert(Measure::Packets, 1_000.0);
        assert_eq!(baseline.limit(Measure::Packets, &config), Some((1_000.0, true)));
    }

    #[test]
    fn an_attack_is_not_learned() {
        let config = DetectConfig::default();
        let mut baseline = Baseline::default();
        (0..6000).for_each(|_| baseline.learn(&rates(1_000.0), LOOK, &config));
        (0..2).for_each(|_| baseline.learn(&rates(4e6), LOOK, &config));
        let (limit, _) = baseline.limit(Measure::Packets, &config).expect("learned");
        assert!(limit < 11_000.0, "{limit}");
    }
}
