//! Baselines of protected prefixes, kept in a file for later processes.

use std::{collections::BTreeMap, fs, io, path::Path, time::Duration};

use model::shield_event::Measure;
use rules::Prefix;
use serde::{Deserialize, Serialize};

use super::{Detector, baseline::Baseline, window::Rates};

/// Changes whenever the meaning of the file does.
const VERSION: u32 = 1;
/// No machine runs for as long: three hundred years, in seconds.
const LEARNED_MAX_S: f64 = 1e10;

/// The usual of all protected prefixes at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    version: u32,
    /// CLOCK_MONOTONIC in seconds when it was written down: of this boot, as the file is.
    at_s: f64,
    /// Usual rates by prefix, as `ADDRESS/LENGTH`.
    prefixes: BTreeMap<String, Usual>,
}

/// Usual rates of one prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Usual {
    /// Seconds for which it was learned.
    learned_s: f64,
    /// Means per second.
    mean: BTreeMap<Measure, f64>,
    /// Deviations per second.
    deviation: BTreeMap<Measure, f64>,
}

impl Learned {
    /// Everything that `detector` has learned until `now` (CLOCK_MONOTONIC).
    pub fn of(detector: &Detector, now: Duration) -> Self {
        let usual = |baseline: &Baseline| Usual {
            learned_s: baseline.learned().as_secs_f64(),
            mean: Measure::ALL.map(|m| (m, baseline.mean(m))).into(),
            deviation: Measure::ALL.map(|m| (m, baseline.deviation(m))).into(),
        };
        let prefixes = detector.baselines().map(|(prefix, baseline)| (name(prefix), usual(baseline)));
        Self { version: VERSION, at_s: now.as_secs_f64(), prefixes: prefixes.collect() }
    }

    pub fn text(&self) -> String {
        // Numbers and names alone, all of them finite.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads `path`; none: there is no such file.
    ///
    /// # Errors
    /// The reason why it cannot be used: damaged, of another version, or older than `memory`.
    pub fn read(path: &Path, now: Duration, memory: Duration) -> Result<Option<Self>, String> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, now, memory).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn parse(text: &str, now: Duration, memory: Duration) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged = |error: serde_json::Error| format!("it is damaged ({error})");
        let Version { version } = serde_json::from_str(text).map_err(damaged)?;
        if version != VERSION {
            return Err(format!("it is of version {version}, this program writes {VERSION}"));
        }
        let learned: Self = serde_json::from_str(text).map_err(damaged)?;
        let numbers = learned
            .prefixes
            .values()
            .flat_map(|usual| [usual.learned_s / LEARNED_MAX_S].into_iter().chain(usual.deviation.values().copied()));
        let means = learned.prefixes.values().flat_map(|usual| usual.mean.values().copied());
        let sane = |number: f64| number.is_finite() && number >= 0.0;
        if !numbers.chain(means).all(sane) || learned.prefixes.values().any(|usual| usual.learned_s > LEARNED_MAX_S) {
            return Err("it is damaged (a number is out of its bounds)".to_owned());
        }
        let age = now.as_secs_f64() - learned.at_s;
        if !(0.0..=memory.as_secs_f64()).contains(&age) {
            return Err(format!("it is {age:.0} s old, and baseline.memory-s is {:.0}", memory.as_secs_f64()));
        }
        Ok(learned)
    }

    pub(super) fn get(&self, prefix: Prefix) -> Option<Baseline> {
        let usual = self.prefixes.get(&name(prefix))?;
        let rates = |of: &BTreeMap<Measure, f64>| Rates(Measure::ALL.map(|m| of.get(&m).copied().unwrap_or_default()));
        Some(Baseline::of(rates(&usual.mean), rates(&usual.deviation), Duration::from_secs_f64(usual.learned_s)))
    }
}

fn name(prefix: Prefix) -> String {
    format!("{}/{}", prefix.address, prefix.len)
}

#[cfg(test)]
mod tests {
    use rules::detect::DetectConfig;

    use super::{
        super::{
            baseline::{Limit, LimitOrigin},
            *,
        },
        *,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    fn prefix(text: &str) -> Prefix {
        Prefix { address: text.parse().unwrap(), len: 24 }
    }

    /// Has seen 2,000 packets/s for a minute.
    fn taught() -> Detector {
        let mut detector = Detector::new(DetectConfig::default(), &[prefix("198.18.0.0"), prefix("198.18.1.0")]);
        for look in 1..=1200u32 {
            let time = Duration::from_millis(50);
            let prefixes = vec![Counts { packets: 100, ..Counts::default() }, Counts::default()];
            let window = Window { time, prefixes, ..Window::default() };
            detector.step(&window, time * look, jiff::Timestamp::UNIX_EPOCH);
        }
        detector
    }

    #[test]
    fn what_was_learned_is_known_again_by_the_prefixs_name() {
        let before = taught();
        let text = Learned::of(&before, MINUTE).text();
        let learned = Learned::parse(&text, MINUTE, MINUTE * 10).unwrap();
        let mut after = Detector::new(DetectConfig::default(), &[prefix("198.18.2.0"), prefix("198.18.0.0")]);
        after.recall(&learned);
        let limits = |detector: &Detector| {
            let learned = detector.baselines().map(|(_, baseline)| baseline.learned());
            learned.zip(detector.states()).map(|(learned, s)| (learned, s.limits[0])).collect::<Vec<_>>()
        };
        let (before, after) = (limits(&before), limits(&after));
        let floor = Limit { rate: 10_000.0, of: LimitOrigin::Learned };
        assert_eq!(before[0], (MINUTE, Some(floor)), "the floor");
        assert_eq!((after[0], after[1]), ((Duration::ZERO, None), before[0]));
    }

    #[test]
    fn what_is_damaged_of_another_version_or_old_is_not_used() {
        let text = Learned::of(&taught(), MINUTE).text();
        let why = |text: &str, now: Duration| Learned::parse(text, now, MINUTE * 10).unwrap_err();
        assert!(why(&text[..text.len() / 2], MINUTE).contains("damaged"));
        assert!(why("", MINUTE).contains("damaged"));
        assert!(why(&text.replace("\"learned_s\":60.0", "\"learned_s\":-60.0"), MINUTE).contains("out of its bounds"));
        assert!(why(&text.replace("\"learned_s\":60.0", "\"learned_s\":1e300"), MINUTE).contains("out of its bounds"));
        assert!(why(&text.replace("\"version\":1", "\"version\":2"), MINUTE).contains("version 2"));
        assert!(why(&text, MINUTE * 12).contains("660 s old"));
        assert!(why(&text, MINUTE / 2).contains("-30 s old"), "of an earlier boot");
    }
}
