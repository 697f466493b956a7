//! Limits of one protected prefix: configured, and learned from what is usual there.

use std::time::Duration;

use model::shield_event::{Exceeded, Measure};
use rules::detect::DetectConfig;

use super::window::Rates;

/// Deviations above the mean that are still usual, whatever the factor says: bursts.
const DEVIATIONS_USUAL: f64 = 8.0;
/// Floors of learned limits, per second.
const LIMIT_MIN: f64 = 10_000.0;
const LIMIT_BITS_MIN: f64 = 100_000_000.0;

/// Rises are learned so many times slower than falls, once limits hold: what is usual does not follow an attack that grows.
const RISE_SLOWDOWN: f64 = 8.0;
/// Deviations are from the mean of so long, in seconds: what is usual lags behind a rise, which is no burst.
const SHORT_MEAN_S: f64 = 2.0;
/// A prefix whose usual rate is high may have so many times that, however busy the machine is.
const BUSY_FACTOR: f64 = 2.0;

/// The usual rates: exponentially forgetting means, and mean distances from what came lately.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Baseline {
    mean: Rates,
    short: Rates,
    deviation: Rates,
    learned: Duration,
    /// Packets per second that the machine takes in beside what others get.
    ceiling: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOrigin {
    Configured,
    Learned,
    /// Packet rate that the machine can receive with the CPU time available for packets.
    Headroom,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// The measure per second.
    pub rate: f64,
    pub of: LimitOrigin,
}

impl Baseline {
    /// Seconds until limits that are learned count; 0: they do, or none are learned.
    pub fn learning_s(&self, config: &DetectConfig) -> f64 {
        let left = config.baseline.after_s - self.learned.as_secs_f64();
        if config.baseline.learn { left.max(0.0) } else { 0.0 }
    }

    /// Limits hold that were learned.
    fn is_ready(&self, config: &DetectConfig) -> bool {
        config.baseline.learn && self.learning_s(config) == 0.0
    }

    /// The limit of a measure: the lowest of what was configured, what was learned and what the machine takes in. None: it has no limit (yet).
    pub fn limit(&self, measure: Measure, config: &DetectConfig) -> Option<Limit> {
        let configured = config.threshold.get(&measure).map(|&rate| Limit { rate, of: LimitOrigin::Configured });
        let ready = self.is_ready(config);
        let learned = ready.then(|| {
            let floor = if measure == Measure::Bits { LIMIT_BITS_MIN } else { LIMIT_MIN };
            let floor = config.baseline.floor.get(&measure).copied().unwrap_or(floor);
            let mean = self.mean.get(measure);
            let usual = (mean * config.baseline.factor).max(mean + DEVIATIONS_USUAL * self.deviation.get(measure));
            Limit { rate: usual.max(floor), of: LimitOrigin::Learned }
        });
        let ceiling = self.ceiling.filter(|_| measure == Measure::Packets && config.baseline.learn).map(|ceiling| {
            let usual = if ready { BUSY_FACTOR * self.mean.get(measure) } else { 0.0 };
            Limit { rate: ceiling.max(usual), of: LimitOrigin::Headroom }
        });
        [configured, learned, ceiling].into_iter().flatten().min_by(|a, b| a.rate.total_cmp(&b.rate))
    }

    /// Packets per second that the machine takes in beside what others get, from now on.
    pub(super) fn set_ceiling(&mut self, ceiling: Option<f64>) {
        self.ceiling = ceiling;
    }

    /// The rates that are above `part` of their limits, the one that is furthest above first.
    pub fn above(&self, rates: &Rates, part: f64, config: &DetectConfig) -> Vec<Exceeded> {
        let mut above: Vec<Exceeded> = Measure::ALL
            .into_iter()
            .filter_map(|measure| {
                let limit = self.limit(measure, config)?;
                let rate = rates.get(measure);
                (rate > limit.rate * part).then_some(Exceeded {
                    measure,
                    rate,
                    limit: limit.rate,
                    learned: limit.of == LimitOrigin::Learned,
                    headroom: limit.of == LimitOrigin::Headroom,
                })
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
        let short = (time.as_secs_f64() / seen.min(SHORT_MEAN_S)).min(1.0);
        let ready = self.is_ready(config);
        for measure in Measure::ALL {
            let i = measure as usize;
            let limit = self.limit(measure, config).map_or(f64::INFINITY, |limit| limit.rate);
            let rate = rates.0[i].min(limit);
            let distance = (rate - self.short.0[i]).abs();
            self.short.0[i] += short * (rate - self.short.0[i]);
            let way = self.short.0[i] - self.mean.0[i];
            self.mean.0[i] += way * if ready && way > 0.0 { weight / RISE_SLOWDOWN } else { weight };
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

    /// A baseline that was learned before.
    pub(super) fn of(mean: Rates, deviation: Rates, learned: Duration) -> Self {
        Self { mean, short: mean, deviation, learned, ceiling: None }
    }

    /// The time for which it has learned.
    pub fn learned(&self) -> Duration {
        self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_PERIOD: Duration = Duration::from_millis(100);

    fn learned(rate: f64) -> Option<Limit> {
        Some(Limit { rate, of: LimitOrigin::Learned })
    }

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
            baseline.learn(&rates(20_000.0 + f64::from(i % 2) * 1000.0), WINDOW_PERIOD, &config);
        }
        assert_eq!(baseline.limit(Measure::Packets, &config), None, "59.9 s are below 60 s");
        baseline.learn(&rates(20_500.0), WINDOW_PERIOD, &config);
        let limit = baseline.limit(Measure::Packets, &config).expect("learned");
        assert!(limit.of == LimitOrigin::Learned && (limit.rate - 102_500.0).abs() < 500.0, "{limit:?}");
        assert_eq!(baseline.limit(Measure::Syn, &config), learned(10_000.0), "the floor");
    }

    #[test]
    fn the_lower_of_two_limits_holds() {
        let mut config = DetectConfig::default();
        config.threshold.insert(Measure::Packets, 5_000.0);
        let mut baseline = Baseline::default();
        let configured = Some(Limit { rate: 5_000.0, of: LimitOrigin::Configured });
        assert_eq!(baseline.limit(Measure::Packets, &config), configured);
        (0..700).for_each(|_| baseline.learn(&rates(10.0), WINDOW_PERIOD, &config));
        assert_eq!(baseline.limit(Measure::Packets, &config), configured, "the floor is above it");
        config.baseline.floor.insert(Measure::Packets, 1_000.0);
        assert_eq!(baseline.limit(Measure::Packets, &config), learned(1_000.0));
    }

    #[test]
    fn an_attack_is_not_learned() {
        let config = DetectConfig::default();
        let mut baseline = Baseline::default();
        (0..6000).for_each(|_| baseline.learn(&rates(1_000.0), WINDOW_PERIOD, &config));
        (0..2).for_each(|_| baseline.learn(&rates(4e6), WINDOW_PERIOD, &config));
        let limit = baseline.limit(Measure::Packets, &config).expect("learned");
        assert!(limit.rate < 11_000.0, "{limit:?}");
    }

    #[test]
    fn a_fall_is_learned_sooner_than_a_rise() {
        let config = DetectConfig::default();
        let mut baseline = Baseline::default();
        let mut learn = |pps: f64| {
            (0..600).for_each(|_| baseline.learn(&rates(pps), WINDOW_PERIOD, &config));
            baseline.mean(Measure::Packets)
        };
        assert!((learn(20_000.0) - 20_000.0).abs() < 1.0);
        // A minute at twice of that, after the first: half of the difference by a plain mean.
        let risen = learn(40_000.0);
        assert!((21_000.0..23_000.0).contains(&risen), "{risen}");
        let fallen = learn(20_000.0);
        assert!(fallen - 20_000.0 < 0.75 * (risen - 20_000.0), "{fallen} after {risen}");
    }

    #[test]
    fn a_slow_rise_is_above_its_limit_and_an_equal_fall_is_not() {
        let config = DetectConfig::default();
        let mut baseline = Baseline::default();
        // 200 packets/s more in each second, from the first on.
        let found = (1..=6000).find(|look| {
            let now = rates(20.0 * f64::from(*look));
            let above = baseline.above(&now, 1.0, &config);
            baseline.learn(&now, WINDOW_PERIOD, &config);
            !above.is_empty()
        });
        let found_s = f64::from(found.expect("found")) / 10.0;
        assert!((120.0..300.0).contains(&found_s), "{found_s}");
    }

    #[test]
    fn the_machines_ceiling_holds_from_the_first_second_unless_more_is_usual() {
        let config = DetectConfig::default();
        let mut baseline = Baseline::default();
        baseline.set_ceiling(Some(50_000.0));
        let busy = |rate| Some(Limit { rate, of: LimitOrigin::Headroom });
        assert_eq!(baseline.limit(Measure::Packets, &config), busy(50_000.0));
        assert_eq!(baseline.limit(Measure::Bits, &config), None, "of packets alone");
        (0..600).for_each(|_| baseline.learn(&rates(40_000.0), WINDOW_PERIOD, &config));
        let limit = baseline.limit(Measure::Packets, &config).expect("busy");
        assert!(limit.of == LimitOrigin::Headroom && (limit.rate - 80_000.0).abs() < 1.0, "{limit:?}");
    }
}
