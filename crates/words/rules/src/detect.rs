//! `[detection]` of the rule file.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use model::shield_event::{AttackClass, Measure};

/// No time is longer, in seconds (31 years): more than clocks count would end the process that runs the shield.
const TIME_MAX_S: f64 = 1e9;

/// The limits of an attack, and the measures against it.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectConfig {
    /// Time between two looks at the counters, in milliseconds; 20 to 1000. Default 50.
    pub every_ms: u64,
    /// Looks in a row that must be above a limit before it is an attack. Default 3: a burst of up to 50 ms is none.
    pub confirm: u32,
    /// An attack counts as over when all rates have been below this part of their limits ... Default 0.7.
    pub leave: f64,
    /// ... for this long, in seconds. Default 30.
    pub quiet_s: f64,
    /// Per protected prefix and second: more is an attack, whatever has been learned. What is not named has no such limit.
    pub threshold: BTreeMap<Measure, f64>,
    /// Limits that are learned per protected prefix.
    pub baseline: BaselineConfig,
    /// Steps by class of attack, each taken when those before were not enough. A class without an entry has the steps of [`default_ladder`]; an empty
    /// list does nothing.
    pub ladder: BTreeMap<AttackClass, Vec<StepConfig>>,
    /// The next step is taken when this long after the last one more than the limit still comes through, in seconds. Default 2.
    pub patience_s: f64,
    /// Mitigations only count at first.
    pub shadow: ShadowConfig,
    /// Each event runs this program, without a shell: its words in `EVENKEEL_*` of the environment, the event as JSON on standard input.
    pub hook: Option<HookConfig>,
    /// Each event is appended to this file as a line of JSON.
    pub events: Option<PathBuf>,
    pub metrics: MetricsConfig,
}

/// Limits from what is usual.
#[derive(Debug, Clone, PartialEq)]
pub struct BaselineConfig {
    /// Limits are learned at all. Default true.
    pub learn: bool,
    /// The limit is this many times what is usual. Default 5.
    pub factor: f64,
    /// Time constant of the baseline, in seconds. Default 600.
    pub memory_s: f64,
    /// Nothing learned is used before this long, in seconds. Default 60.
    pub after_s: f64,
    /// A CPU that spends more of its time than this on soft interrupts is as busy as it should be: the packets that do it are too many, learned limits or
    /// not; 0 to 1. Default 0.6; 1: never.
    pub busy_max: f64,
    /// No learned limit is below this, per second. What is not named has 10,000, bits 100,000,000.
    pub floor: BTreeMap<Measure, f64>,
}

/// The time in which mitigations only count.
#[derive(Debug, Clone, PartialEq)]
pub struct ShadowConfig {
    /// Seconds, after which they act. 0 (default): they act at once.
    pub first_s: f64,
    /// True: rules never act. Default false.
    pub only: bool,
    /// Share of the traffic of sources known before the attack above which the rules do not act and the next step is tried. Default 0.05. Used only
    /// after `first_s`.
    pub legitimate_max: f64,
}

impl ShadowConfig {
    /// True if steps may only count.
    pub fn is_used(&self) -> bool {
        self.only || self.first_s > 0.0
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum StepConfig {
    /// Packets of the attack's kind, each source by itself.
    LimitPerSource {
        /// Packets per second of one source.
        pps: u64,
        /// Packets that may come at once; a tenth of `pps` if not told, 20 at least.
        burst: Option<u64>,
    },
    /// Packets of the attack's kind, all together.
    Limit {
        pps: u64,
        /// Packets that may come at once; a tenth of `pps` if not told, 20 at least.
        burst: Option<u64>,
    },
    Challenge {},
    /// The sources that send most.
    DropSources {},
    /// UDP from the ports that most of it comes from.
    DropPorts {},
    DropFragments {},
    /// Drops packets of the attack's kind that nobody here waits for: TCP of no connection, SYNs and UDP to ports that nobody listens on. Taken with
    /// the step behind it, unless that is [`StepConfig::DropStrangers`].
    DropUnknown {},
    /// Drops packets of the attack's kind from sources that were never seen while there was no attack.
    DropStrangers {},
    /// All of the attack's kind.
    Drop {},
}

#[derive(Debug, Clone, PartialEq)]
pub struct HookConfig {
    /// The program and its arguments.
    pub run: Vec<String>,
    /// Time after which the hook is ended, in seconds. Default 10.
    pub timeout_s: f64,
}

impl HookConfig {
    /// The time after which it is ended.
    pub fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::MAX)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricsConfig {
    /// Written whole, once a second.
    pub file: Option<PathBuf>,
    /// Answered over HTTP on 127.0.0.1.
    pub port: Option<u16>,
}

impl Default for DetectConfig {
    fn default() -> Self {
        Self {
            every_ms: 50,
            confirm: 3,
            leave: 0.7,
            quiet_s: 30.0,
            threshold: BTreeMap::new(),
            baseline: BaselineConfig::default(),
            ladder: BTreeMap::new(),
            patience_s: 2.0,
            shadow: ShadowConfig::default(),
            hook: None,
            events: None,
            metrics: MetricsConfig::default(),
        }
    }
}

impl Default for BaselineConfig {
    fn default() -> Self {
        Self { learn: true, factor: 5.0, memory_s: 600.0, after_s: 60.0, busy_max: 0.6, floor: BTreeMap::new() }
    }
}

impl Default for ShadowConfig {
    fn default() -> Self {
        Self { first_s: 0.0, only: false, legitimate_max: 0.05 }
    }
}

impl DetectConfig {
    /// The steps against a class of attack.
    pub fn ladder(&self, class: AttackClass) -> Vec<StepConfig> {
        self.ladder.get(&class).cloned().unwrap_or_else(|| default_ladder(class))
    }

    /// Returns whether some ladder has such a step.
    pub fn has(&self, step: &StepConfig) -> bool {
        AttackClass::ALL.into_iter().any(|class| self.ladder(class).contains(step))
    }

    /// Leaves out the steps that challenge; whether there were any.
    pub fn leave_out_challenges(&mut self) -> bool {
        self.leave_out(&StepConfig::Challenge {})
    }

    /// Leaves out such a step; whether there was one.
    pub fn leave_out(&mut self, step: &StepConfig) -> bool {
        let mut found = false;
        for class in AttackClass::ALL {
            let all = self.ladder(class);
            let others: Vec<_> = all.iter().filter(|one| *one != step).cloned().collect();
            if others.len() < all.len() {
                found = true;
                self.ladder.insert(class, others);
            }
        }
        found
    }

    /// The faults in it, as (key, reason); the file's reader puts the line to each.
    pub fn faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut bad = |key: &str, why: String| faults.push((key.to_owned(), why));
        if !(20..=1000).contains(&self.every_ms) {
            bad("every-ms", format!("{} ms, but 20 to 1000 are possible", self.every_ms));
        }
        if self.confirm == 0 {
            bad("confirm", "0 looks, but at least 1 must be above a limit".into());
        }
        for (key, value, of) in [
            ("leave", self.leave, "the limit"),
            ("shadow.legitimate-max", self.shadow.legitimate_max, "the traffic of known sources"),
            ("baseline.busy-max", self.baseline.busy_max, "a CPU's time"),
        ] {
            if !(0.0..=1.0).contains(&value) {
                bad(key, format!("{value}, but it is a part of {of}, 0 to 1"));
            }
        }
        let positive = [
            ("quiet-s", self.quiet_s),
            ("patience-s", self.patience_s),
            ("baseline.memory-s", self.baseline.memory_s),
            ("baseline.after-s", self.baseline.after_s),
            ("shadow.first-s", self.shadow.first_s),
        ];
        for (key, value) in positive {
            if !(0.0..=TIME_MAX_S).contains(&value) {
                bad(key, format!("{value}, but it is a time of 0 to {TIME_MAX_S} s"));
            }
        }
        if !self.baseline.factor.is_finite() || self.baseline.factor <= 1.0 {
            bad("baseline.factor", format!("{}, but it must be above 1", self.baseline.factor));
        }
        for (name, limits) in [("threshold", &self.threshold), ("baseline.floor", &self.baseline.floor)] {
            for (measure, value) in limits.iter().filter(|(_, v)| !v.is_finite() || **v <= 0.0) {
                bad(&format!("{name}.{}", measure.word()), format!("{value}, but a limit is above 0"));
            }
        }
        for (class, steps) in &self.ladder {
            let zero = |s: &StepConfig| {
                matches!(s, StepConfig::Limit { pps: 0, .. } | StepConfig::LimitPerSource { pps: 0, .. })
                    || matches!(
                        s,
                        StepConfig::Limit { burst: Some(0), .. } | StepConfig::LimitPerSource { burst: Some(0), .. }
                    )
            };
            if steps.iter().any(zero) {
                bad(&format!("ladder.{}", class.word()), "a limit of 0 packets: use `do = \"drop\"`".into());
            }
        }
        match &self.hook {
            Some(hook) if hook.run.is_empty() => bad("hook.run", "names no program".into()),
            Some(hook) if !(hook.timeout_s > 0.0 && hook.timeout_s <= TIME_MAX_S) => {
                bad("hook.timeout-s", format!("{}, but it must be above 0, and {TIME_MAX_S} at most", hook.timeout_s));
            }
            _ => {}
        }
        faults
    }
}

/// The measures against a class of attack if the file says nothing.
pub fn default_ladder(class: AttackClass) -> Vec<StepConfig> {
    let per_source = |pps| StepConfig::LimitPerSource { pps, burst: None };
    match class {
        AttackClass::SynFlood => vec![StepConfig::DropUnknown {}, StepConfig::Challenge {}, per_source(20)],
        // Limited, and never dropped: a carrier's NAT, a CDN and a proxy are few sources, too.
        AttackClass::FewSources => {
            vec![StepConfig::DropUnknown {}, StepConfig::Challenge {}, per_source(2000)]
        }
        AttackClass::Reflection => vec![StepConfig::DropUnknown {}, StepConfig::DropPorts {}, per_source(1000)],
        AttackClass::Fragments => vec![StepConfig::DropFragments {}],
        AttackClass::Unknown => {
            vec![StepConfig::DropUnknown {}, StepConfig::DropStrangers {}, per_source(1000)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_challenge_are_left_out_and_no_others() {
        let mut config = DetectConfig::default();
        let before = AttackClass::ALL.map(|class| config.ladder(class));
        assert!(config.leave_out_challenges());
        assert!(!config.leave_out_challenges(), "there are none any more");
        for (class, before) in AttackClass::ALL.into_iter().zip(before) {
            let others: Vec<_> = before.into_iter().filter(|step| *step != StepConfig::Challenge {}).collect();
            assert_eq!(config.ladder(class), others, "{}", class.word());
        }
    }
}
