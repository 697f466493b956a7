//! A sweep: one box under rising load, in a standard and in an optimised configuration, and what its CPU time went to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    profile::Class,
    run::{Arrangement, Generator, Machine},
};

/// The version of the schema `evenkeel.sweep/<version>`.
pub const SCHEMA: u32 = 1;

/// An offered load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Step {
    /// Packets per second that were asked for.
    #[serde(alias = "wanted_pps")]
    pub intended_pps: f64,
    /// Packets per second that the generator offered.
    pub offered_pps: f64,
    /// Packets per second that came out of the box (capture: that reached the reader).
    pub forwarded_pps: f64,
    /// The share of the offered packets that did not come out, 0 to 1.
    pub loss_ratio: f64,
    /// Share of the time of the box's cores by class of the box's own work, idle and steal among them, in percent; classes without any
    /// are left out.
    pub classes: BTreeMap<Class, f64>,
    /// Share of the time that the generator took of these cores, in percent: not the box's work.
    pub generator_percent: f64,
    /// Share of the time that the receiving end of the lab took of these cores, in percent: not the box's work.
    pub receiver_percent: f64,
    /// Share of the time that other programs and the kernel's work for them took of these cores, in percent.
    pub others_percent: f64,
    /// Share of the time that /proc/stat counts as idle, in percent: beside the samples, to hold them against.
    #[serde(default)]
    pub stat_idle_percent: f64,
    /// Samples on which the shares rest.
    pub samples: u64,
    /// Samples that were taken and could not be kept.
    pub lost_samples: u64,
}

impl Step {
    /// The share of a class, in percent of the time of the box's cores.
    pub fn percent(&self, class: Class) -> f64 {
        self.classes.get(&class).copied().unwrap_or(0.0)
    }

    /// The box's own work, in percent of the time of its cores.
    pub fn busy_percent(&self) -> f64 {
        self.classes.iter().filter(|(class, _)| class.is_busy()).map(|(_, percent)| percent).sum()
    }

    /// A class as a percentage of the box's own work; 0 without any.
    pub fn percent_of_busy(&self, class: Class) -> f64 {
        let busy = self.busy_percent();
        if busy > 0.0 && class.is_busy() { 100.0 * self.percent(class) / busy } else { 0.0 }
    }
}

/// The steps of one configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Setup {
    /// `standard` or `optimised`.
    pub key: String,
    pub name: String,
    /// A sentence about it.
    pub what: String,
    /// The settings, as shell commands inside of the box; empty for what the kernel does by itself.
    pub settings: Vec<String>,
    /// The highest load of which no more was lost than [`Sweep::loss_goal`], in packets per second: the median of all searches.
    pub ceiling_pps: f64,
    /// The finding of each search, in the order of the searches.
    #[serde(default)]
    pub ceilings_pps: Vec<f64>,
    /// The load just below the ceiling, measured again after each search.
    #[serde(default)]
    pub at_ceiling: Vec<Step>,
    /// The steps, by rising load; the median of [`at_ceiling`](Self::at_ceiling) is one of them.
    pub steps: Vec<Step>,
}

impl Setup {
    /// CPU time of the box's `cores` cores that `percent` of a step stands for, per packet that came out, in nanoseconds: lowest, mean and highest of
    /// the measurements at the ceiling. None without any.
    pub fn ns_per_packet(&self, cores: u32, percent: impl Fn(&Step) -> f64) -> Option<[f64; 3]> {
        let ns = |time: f64, packets: f64| time / 100.0 * f64::from(cores) * 1e9 / packets;
        let measured = || self.at_ceiling.iter().filter(|s| s.forwarded_pps > 0.0);
        let each = || measured().map(|step| ns(percent(step), step.forwarded_pps));
        let (time, packets) =
            measured().fold((0.0, 0.0), |(time, packets), s| (time + percent(s), packets + s.forwarded_pps));
        let range = each().fold(None, |range: Option<(f64, f64)>, ns| {
            Some(range.map_or((ns, ns), |(low, high)| (low.min(ns), high.max(ns))))
        });
        range.map(|(low, high)| [low, ns(time, packets), high])
    }
}

/// The gain of one configuration over the other, as a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The median over the repeats of the optimised ceiling over the standard one of the same repeat.
    pub ratio: f64,
    /// The lowest of them, less what the search cannot tell.
    pub lowest: f64,
    /// The highest of them, more what the search cannot tell.
    pub highest: f64,
    /// The measurements bear a verdict: both ends lie on one side of 1, and both ceilings held when they were offered again.
    #[serde(alias = "told")]
    pub significant: bool,
}

/// A published figure of somebody else, on their machine: to be laid beside ours, never to be taken for ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub what: String,
    pub standard: String,
    pub optimised: String,
    pub citation: String,
}

/// A run of `evenkeel profile sweep`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Other programs took so much of the CPUs that the figures mean little: how much, which, what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// The box: `router`, `filter`, `bridge` or `capture`.
    #[serde(rename = "box")]
    pub box_key: String,
    /// The box, in a few words.
    pub box_name: String,
    /// The length of a frame in bytes, without its checksum.
    pub frame_bytes: u32,
    /// The number of flows that followed each other in turn.
    pub flows: u32,
    /// The time of each step.
    pub seconds_per_step: f64,
    /// Samples per second and core.
    pub frequency_hz: u32,
    /// The work of each core.
    pub arrangement: Arrangement,
    pub box_cores: u32,
    /// The share of the offered packets that may be lost at a ceiling, 0 to 1.
    #[serde(default)]
    pub loss_goal: f64,
    /// Optimised beside standard; none without both.
    pub gain: Option<Gain>,
    /// The generator and its ceiling.
    pub generator: Generator,
    pub setups: Vec<Setup>,
    /// Published figures of others.
    pub sources: Vec<Published>,
    /// Meaning of the run, in plain words.
    pub conclusion: String,
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(forwarded_pps: f64, busy: f64) -> Step {
        Step {
            intended_pps: 1e6,
            offered_pps: 1e6,
            forwarded_pps,
            classes: BTreeMap::from([
                (Class::Ip, busy * 0.75),
                (Class::Memory, busy * 0.25),
                (Class::Idle, 100.0 - busy),
            ]),
            samples: 1000,
            ..Step::default()
        }
    }

    #[test]
    fn shares_are_of_the_boxs_own_work() {
        let step = step(5e5, 40.0);
        assert_eq!((step.busy_percent(), step.percent(Class::Ip)), (40.0, 30.0));
        assert_eq!((step.percent_of_busy(Class::Memory), step.percent_of_busy(Class::Idle)), (25.0, 0.0));
    }

    #[test]
    fn the_cost_of_a_packet_is_that_at_the_ceiling() {
        let mut setup = Setup {
            key: "standard".into(),
            ceiling_pps: 5e5,
            ceilings_pps: vec![5e5; 2],
            at_ceiling: vec![step(5e5, 100.0), step(3e5, 60.0), step(4e5, 100.0)],
            steps: vec![step(2e5, 90.0)],
            ..Setup::default()
        };
        let [low, mean, high] = setup.ns_per_packet(1, Step::busy_percent).unwrap();
        assert_eq!((low, high), (2000.0, 2500.0));
        assert!((mean - 260.0 / 100.0 * 1e9 / 12e5).abs() < 1e-6);
        assert_eq!(setup.ns_per_packet(2, |s| s.percent(Class::Memory)).unwrap()[0], 1000.0);
        setup.at_ceiling.clear();
        assert_eq!(setup.ns_per_packet(1, Step::busy_percent), None);
    }

    #[test]
    fn a_sweep_survives_json() {
        let step = step(1.0, 50.0);
        let text = serde_json::to_string(&step).unwrap();
        assert!(text.contains("\"memory\":12.5"), "{text}");
        assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
    }
}
