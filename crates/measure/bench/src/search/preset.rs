//! Presets: all that a run's length and strictness depend on, as data.

use std::time::Duration;

use model::bench::Goal;

use crate::Drain;

/// The settings of a whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// `quick`, `study`, `rfc2544` or `mlr`.
    pub name: &'static str,
    /// A sentence about the preset, for help and report.
    pub what: &'static str,
    /// The goals of the search for the throughput, the main one first.
    pub goals: Vec<Goal>,
    /// The drain after each trial.
    pub drain: Drain,
    /// The pause before each trial (RFC 2544, section 23: 5 s).
    pub settle: Duration,
    /// Repeats of a void trial before the test is given up.
    pub void_repeats: u32,
    pub ceiling: Repeated,
    pub loss_curve: CurveOrder,
    pub back_to_back: BurstOrder,
    pub latency: LatencyOrder,
    /// Jitter at the throughput.
    pub jitter: Readings,
    pub recovery: RecoveryOrder,
    pub reset: ResetOrder,
}

/// Trials of one length, several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeated {
    /// The length of each.
    pub trial: Duration,
    pub repeats: u32,
}

/// Readings of one long trial at even distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readings {
    /// Time between two readings.
    pub every: Duration,
    pub readings: u32,
}

/// Loss against offered load (RFC 2544, section 26.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveOrder {
    /// The length of each trial.
    pub trial: Duration,
    /// Distance of the loads, as a share of the highest (RFC 2544: at most 0.1).
    pub step: f64,
    /// The highest load, as a multiple of the throughput; the tester's ceiling bounds it too.
    pub from: f64,
    /// The curve ends after so many loads in a row without loss (RFC 2544: 2).
    pub clean: u32,
}

/// Bursts (RFC 2544, section 26.4; RFC 9004).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstOrder {
    /// The length of the longest burst (RFC 2544: at least 2 s).
    pub longest: Duration,
    /// Searches of the longest burst without loss (RFC 2544: 50).
    pub repeats: u32,
    /// The resolution of the search for it, as a share of the burst.
    pub width: f64,
}

/// Latency at several loads.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyOrder {
    /// The loads as shares of the throughput; 0 is an idle box.
    pub loads: Vec<f64>,
    /// The length of a series.
    pub load: Duration,
    /// Time from the start of the load to the first probe.
    pub probes_after: Duration,
    /// Time between two probes.
    pub probes_every: Duration,
    pub probes: u32,
    pub series: u32,
    /// Number of series, those with the lowest means, that are the result.
    pub best: u32,
    /// A series agrees with itself when its quartiles lie at most this share of its median apart.
    pub agreement: f64,
    /// A series in which more of the load is lost, as a share, was one of an overloaded box, and is thrown away.
    pub loss_ratio: f64,
    /// So many series of a load may be thrown away and made again.
    pub discarded: u32,
}

/// Recovery after overload (RFC 2544, section 26.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecoveryOrder {
    /// The overload, as a multiple of the throughput (RFC 2544: 1.1).
    pub overload: f64,
    /// Length of the overload (RFC 2544: at least 60 s).
    pub overloaded: Duration,
    /// The load afterwards, as a share of the overload (RFC 2544: 0.5).
    pub after: f64,
    /// The length of that load.
    pub watched: Duration,
    pub repeats: u32,
}

/// Resets (RFC 6201).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResetOrder {
    /// The load, as a share of the throughput.
    pub load: f64,
    /// Time from the start of the load to the reset.
    pub after: Duration,
    /// The length of the load.
    pub trial: Duration,
    pub repeats: u32,
}

/// The names, for help and completion.
pub const NAMES: [&str; 4] = ["quick", "study", "rfc2544", "mlr"];

impl Preset {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "quick" => Some(Self::quick()),
            "study" => Some(Self::study()),
            "rfc2544" => Some(Self::rfc2544()),
            "mlr" => Some(Self::mlr()),
            _ => None,
        }
    }

    /// A first look within minutes: short trials, and the better two of three decide.
    pub fn quick() -> Self {
        Self {
            name: "quick",
            what: "a first look within minutes: trials of 0.3 s, loss 0.1 %, the better two of three decide, width 3 %",
            goals: vec![goal("0.1 %", 0.001, 0.5, (0.3, 0.3, 0.9, 5.0), 0.03)],
            drain: Drain { quiet: ms(20), longest: secs(10), slack: 0.03 },
            settle: Duration::ZERO,
            void_repeats: 3,
            ceiling: Repeated { trial: ms(300), repeats: 3 },
            loss_curve: CurveOrder { trial: ms(400), step: 0.1, from: 1.5, clean: 2 },
            back_to_back: BurstOrder { longest: ms(500), repeats: 5, width: 0.05 },
            latency: LatencyOrder {
                loads: vec![0.0, 0.1, 0.5, 0.9, 0.95],
                load: ms(250),
                probes_after: ms(40),
                probes_every: ms(20),
                probes: 10,
                series: 2,
                best: 2,
                agreement: 1.0,
                loss_ratio: 0.001,
                discarded: 3,
            },
            jitter: Readings { every: ms(500), readings: 1 },
            recovery: RecoveryOrder { overload: 1.1, overloaded: secs(1), after: 0.5, watched: secs(2), repeats: 2 },
            reset: ResetOrder { load: 0.5, after: secs(1), trial: secs(5), repeats: 2 },
        }
    }

    /// As the study of firewalls on KVM measured (2017): 100 s, three times, loss 0.1 %.
    pub fn study() -> Self {
        let quick = Self::quick();
        Self {
            name: "study",
            what: "as the 2017 study of firewalls: trials of 100 s, three per rate of which two decide, loss 0.1 %, width 1 %",
            goals: vec![goal("0.1 %", 0.001, 0.5, (10.0, 100.0, 300.0, 100.0), 0.01)],
            drain: Drain { quiet: ms(200), longest: secs(30), slack: 0.01 },
            settle: secs(1),
            ceiling: Repeated { trial: secs(10), repeats: 3 },
            loss_curve: CurveOrder { trial: secs(100), ..quick.loss_curve },
            back_to_back: BurstOrder { longest: secs(2), repeats: 50, width: 0.02 },
            latency: LatencyOrder {
                load: secs(120),
                probes_after: secs(60),
                probes_every: secs(1),
                series: 9,
                best: 6,
                agreement: 0.5,
                discarded: 9,
                ..quick.latency
            },
            jitter: Readings { every: secs(10), readings: 10 },
            recovery: RecoveryOrder { overload: 1.1, overloaded: secs(60), after: 0.5, watched: secs(20), repeats: 3 },
            reset: ResetOrder { load: 0.5, after: secs(10), trial: secs(120), repeats: 3 },
            ..quick
        }
    }

    /// RFC 2544 as written: 60 s, not one frame lost, the waits of section 23.
    pub fn rfc2544() -> Self {
        let study = Self::study();
        Self {
            name: "rfc2544",
            what: "RFC 2544 as written: trials of 60 s without a single loss, width 1 %, waits of 2 and 5 s",
            goals: vec![goal("no loss", 0.0, 0.0, (5.0, 60.0, 60.0, 60.0), 0.01)],
            drain: Drain { quiet: secs(2), ..study.drain },
            settle: secs(5),
            loss_curve: CurveOrder { trial: secs(60), ..study.loss_curve },
            latency: LatencyOrder {
                loads: vec![0.0, 0.1, 0.5, 0.9, 0.95, 1.0],
                probes: 1,
                series: 20,
                best: 20,
                discarded: 0,
                ..study.latency
            },
            jitter: Readings { readings: 6, ..study.jitter },
            recovery: RecoveryOrder { repeats: 5, ..study.recovery },
            reset: ResetOrder { load: 1.0, repeats: 5, ..study.reset },
            ..study
        }
    }

    /// RFC 9971 with the goals of its authors' lab (FD.io CSIT): no loss and 0.5 % in one search, 21 trials of 1 s per load at most.
    pub fn mlr() -> Self {
        let quick = Self::quick();
        Self {
            name: "mlr",
            what: "RFC 9971: no loss and 0.5 % in one search, up to 21 trials of 1 s per load of which half may be worse, width 0.5 %",
            goals: vec![
                goal("no loss", 0.0, 0.5, (1.0, 1.0, 21.0, 10.0), 0.005),
                goal("0.5 %", 0.005, 0.5, (1.0, 1.0, 21.0, 10.0), 0.005),
            ],
            drain: Drain { quiet: ms(100), longest: secs(10), slack: 0.005 },
            settle: ms(100),
            void_repeats: 5,
            ceiling: Repeated { trial: secs(1), repeats: 5 },
            loss_curve: CurveOrder { trial: secs(1), step: 0.05, from: 1.5, clean: 2 },
            back_to_back: BurstOrder { longest: secs(2), repeats: 20, width: 0.02 },
            latency: LatencyOrder {
                load: secs(10),
                probes_after: secs(2),
                probes_every: ms(500),
                series: 3,
                best: 2,
                agreement: 0.5,
                ..quick.latency
            },
            jitter: Readings { every: secs(1), readings: 10 },
            recovery: RecoveryOrder { overload: 1.1, overloaded: secs(10), after: 0.5, watched: secs(5), repeats: 3 },
            reset: ResetOrder { load: 0.5, after: secs(2), trial: secs(15), repeats: 3 },
        }
    }
}

/// A goal; `seconds` are those of a trial that finds the way, of a full-length trial, of all those of a load, and of the longest trial.
fn goal(name: &str, loss_ratio: f64, exceed_ratio: f64, seconds: (f64, f64, f64, f64), width: f64) -> Goal {
    let (initial_s, trial_s, sum_s, longest_s) = seconds;
    Goal { name: name.into(), loss_ratio, exceed_ratio, initial_s, trial_s, sum_s, width, longest_s }
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_preset_that_makes_sense() {
        for name in NAMES {
            let preset = Preset::named(name).unwrap();
            assert_eq!(preset.name, name);
            for goal in &preset.goals {
                assert!(
                    0.0 < goal.initial_s
                        && goal.initial_s <= goal.trial_s
                        && goal.trial_s <= goal.sum_s
                        && goal.trial_s <= goal.longest_s,
                    "{goal:?}"
                );
                // RFC 9971, Goal Width: not lower than the loss ratio.
                assert!(goal.width >= goal.loss_ratio && (0.0..1.0).contains(&goal.exceed_ratio), "{goal:?}");
            }
            let latency = &preset.latency;
            assert!(latency.probes_after + latency.probes_every * (latency.probes - 1) <= latency.load, "{name}");
            assert!(latency.best <= latency.series && preset.reset.after < preset.reset.trial, "{name}");
        }
        assert_eq!(Preset::named("slow"), None);
    }

    #[test]
    fn the_study_is_followed() {
        let study = Preset::study();
        let goal = &study.goals[0];
        assert_eq!((goal.trial_s, goal.sum_s, goal.loss_ratio), (100.0, 300.0, 0.001));
        let latency = &study.latency;
        assert_eq!((latency.load, latency.probes_after, latency.probes), (secs(120), secs(60), 10));
        assert_eq!((latency.series, latency.best), (9, 6));
        assert!(latency.loads.contains(&0.0) && latency.loads.contains(&0.95));
    }
}
