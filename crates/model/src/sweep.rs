//! A sweep: one box under rising load, in a standard and in an optimised configuration, and what its CPU time went to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    profile::Class,
    run::{Arrangement, Generator, Machine},
};

/// The version of the schema `evenkeel.sweep/<version>`.
pub const SCHEMA: u32 = 1;

/// One offered load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Packets per second that were asked for.
    pub wanted_pps: f64,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// `standard` or `optimised`.
    pub key: String,
    /// The name for people.
    pub name: String,
    /// What it is, in a sentence.
    pub what: String,
    /// What was set, as shell commands inside of the box; empty for what the kernel does by itself.
    pub settings: Vec<String>,
    /// The most that came out in any measurement, in packets per second.
    pub ceiling_pps: f64,
    /// The steps, by rising load.
    pub steps: Vec<Step>,
}

impl Setup {
    /// The steps in which at least half of the most came out: those that tell what a packet costs under load.
    pub fn loaded(&self) -> impl Iterator<Item = &Step> {
        let most = self.steps.iter().map(|s| s.forwarded_pps).fold(0.0, f64::max);
        self.steps.iter().filter(move |s| s.forwarded_pps > 0.0 && s.forwarded_pps >= most / 2.0)
    }

    /// CPU time of the box's `cores` cores that `percent` of a step stands for, per packet that came out, in nanoseconds, over all
    /// [`loaded`](Self::loaded) steps; 0 without any.
    pub fn ns_per_packet(&self, cores: u32, percent: impl Fn(&Step) -> f64) -> f64 {
        let (time, packets) = self.loaded().fold((0.0, 0.0), |(time, packets), step| {
            (time + percent(step) / 100.0 * f64::from(cores) * 1e9, packets + step.forwarded_pps)
        });
        if packets > 0.0 { time / packets } else { 0.0 }
    }
}

/// A published figure of somebody else, on their machine: to be laid beside ours, never to be taken for ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// What they measured.
    pub what: String,
    /// Their standard configuration.
    pub standard: String,
    /// Their optimised configuration.
    pub optimised: String,
    /// Who, on what.
    pub citation: String,
}

/// One run of `evenkeel profile sweep`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// When it began (RFC 3339, UTC).
    pub when: String,
    /// Where it ran.
    pub machine: Machine,
    /// The box: `router`, `filter`, `bridge` or `capture`.
    #[serde(rename = "box")]
    pub box_key: String,
    /// What the box is, in a few words.
    pub box_name: String,
    /// The length of a frame in bytes, without its checksum.
    pub frame_bytes: u32,
    /// How many flows followed each other in turn.
    pub flows: u32,
    /// How long each step was measured.
    pub seconds_per_step: f64,
    /// Samples per second and core.
    pub frequency_hz: u32,
    /// Which core did what.
    pub arrangement: Arrangement,
    /// How many cores the box had.
    pub box_cores: u32,
    /// The generator and its ceiling.
    pub generator: Generator,
    /// Standard, then optimised.
    pub setups: Vec<Setup>,
    /// What others have published.
    pub sources: Vec<Published>,
    /// What it means, in plain words.
    pub conclusion: String,
    /// What a reader should know.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(forwarded_pps: f64, busy: f64) -> Step {
        Step {
            wanted_pps: 1e6,
            offered_pps: 1e6,
            forwarded_pps,
            loss_ratio: 0.0,
            classes: BTreeMap::from([
                (Class::Ip, busy * 0.75),
                (Class::Memory, busy * 0.25),
                (Class::Idle, 100.0 - busy),
            ]),
            generator_percent: 0.0,
            receiver_percent: 0.0,
            others_percent: 0.0,
            samples: 1000,
            lost_samples: 0,
        }
    }

    #[test]
    fn shares_are_of_the_boxs_own_work() {
        let step = step(5e5, 40.0);
        assert_eq!((step.busy_percent(), step.percent(Class::Ip)), (40.0, 30.0));
        assert_eq!((step.percent_of_busy(Class::Memory), step.percent_of_busy(Class::Idle)), (25.0, 0.0));
    }

    #[test]
    fn the_cost_of_a_packet_is_that_under_load() {
        let mut setup = Setup {
            key: "standard".into(),
            name: String::new(),
            what: String::new(),
            settings: Vec::new(),
            ceiling_pps: 5e5,
            steps: vec![step(2e5, 90.0), step(5e5, 100.0), step(3e5, 60.0)],
        };
        assert_eq!(setup.ns_per_packet(1, Step::busy_percent), 2000.0);
        assert_eq!(setup.ns_per_packet(2, |s| s.percent(Class::Memory)), 1000.0);
        setup.steps.clear();
        assert_eq!(setup.ns_per_packet(1, Step::busy_percent), 0.0);
    }

    #[test]
    fn a_sweep_survives_json() {
        let step = step(1.0, 50.0);
        let text = serde_json::to_string(&step).unwrap();
        assert!(text.contains("\"memory\":12.5"), "{text}");
        assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
    }
}
