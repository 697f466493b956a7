//! Cost of a noisy neighbour, and effect of remedies: the result of `evenkeel bench --neighbour`.
//!
//! In each round every condition has its turn, in an order drawn anew. The cost of a condition is the mean of its differences from the quiet box of
//! the same round.

pub mod compare;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::FrameSpec;
use crate::{
    machine::Machine,
    paired::{Paired, beyond_chance},
    run::CoreRole,
    sweep::Published,
};

/// The version of the schema `evenkeel.bench.neighbour/<version>`.
pub const SCHEMA: u32 = 1;

/// Measures of a box. More is worse of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The share of frames lost or late at the fixed rate.
    Loss,
    /// The median of the one-way delays there.
    Median,
    /// The 99th percentile of the delays.
    P99,
    Max,
    /// The interarrival jitter of the delays (RFC 3550).
    Jitter,
    /// The mean round trip through an idle box.
    IdleTrip,
    /// The mean round trip at 95 % of the throughput.
    LoadedTrip,
    /// Processor time of the box's threads per frame that came through, at the fixed rate.
    Cpu,
    /// The share of that time for which a thread of the box waited for its CPU: the mean of its threads. They wait for each other, too.
    Waiting,
}

impl Measure {
    pub const COUNT: usize = 9;

    /// All, as they are shown.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Loss,
        Self::Median,
        Self::P99,
        Self::Max,
        Self::Jitter,
        Self::IdleTrip,
        Self::LoadedTrip,
        Self::Cpu,
        Self::Waiting,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Median => "delay, median",
            Self::P99 => "delay, 99 %",
            Self::Max => "delay, most",
            Self::Jitter => "jitter",
            Self::IdleTrip => "idle round trip",
            Self::LoadedTrip => "round trip at 95 %",
            Self::Cpu => "CPU per frame",
            Self::Waiting => "waiting for the CPU",
        }
    }

    /// True for a share of 1; otherwise nanoseconds.
    pub fn is_share(self) -> bool {
        matches!(self, Self::Loss | Self::Waiting)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The neighbour, such as `cpu:1`; none: the box is quiet.
    pub neighbour: Option<String>,
    /// Place of the neighbour: `box`, `sibling`, `other`; none without one.
    pub on: Option<String>,
    /// The CPUs of that place, in the kernel's notation.
    pub cpus: Option<String>,
    /// Protection of the box: `none`, `nice`, …
    pub remedy: String,
}

impl Condition {
    /// True for the same neighbour in the same place with the same remedy, on whichever CPUs.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.neighbour, &self.on, &self.remedy) == (&other.neighbour, &other.on, &other.remedy)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub values: BTreeMap<Measure, f64>,
    /// CPU time of the neighbour, in CPUs.
    pub neighbour_cpus: f64,
    /// The share of the periods in which its limit on CPU time held it back; none without a limit.
    pub throttled: Option<f64>,
    /// The most that a hypervisor took of a CPU in one of the trials, in percent.
    pub steal_percent: f64,
    /// Measures that are missing, with the reasons.
    pub missing: Vec<String>,
}

/// The difference that a condition makes to a measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub measure: Measure,
    /// Its mean on the other side of the pairs: the quiet box, or the neighbour without a remedy.
    pub before: f64,
    /// Mean of the measure under the condition.
    pub after: f64,
    pub difference: Paired,
    /// True if it is more than chance, by Holm's correction for all measures of the condition.
    pub beyond_chance: bool,
}

impl Cost {
    /// The difference over what it was before; none where that is 0, and of shares.
    pub fn ratio(&self) -> Option<f64> {
        (self.before > 0.0 && !self.measure.is_share()).then(|| self.difference.mean / self.before)
    }
}

/// A condition, round by round, and what it costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disturbed {
    pub condition: Condition,
    /// Readings under the condition, round by round.
    pub readings: Vec<Reading>,
    /// Costs beside the quiet box.
    pub costs: Vec<Cost>,
    /// Effect of the remedy, beside the same neighbour without one; empty without a remedy.
    pub remedy: Vec<Cost>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boxed {
    /// `router`, `stateful`, …
    pub key: String,
    pub name: String,
    /// A description, in a sentence.
    pub what: String,
    /// Its throughput while it was quiet, in frames per second, both directions together.
    pub throughput_pps: f64,
    /// The tester's own ceiling was the limit of that.
    pub tester_limited: bool,
    pub rate_pps: f64,
    /// Readings of the quiet box, round by round.
    pub quiet: Vec<Reading>,
    /// The conditions; the first is a quiet box once more, which shows what the method finds where there is nothing.
    pub rows: Vec<Disturbed>,
}

/// A run of `evenkeel bench --neighbour`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighbourRun {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    pub version: String,
    pub machine: Machine,
    /// Threads that ran or wanted to run when it began, as a mean of a minute.
    pub load_average: f64,
    pub preset: String,
    pub frame: FrameSpec,
    /// The work of each CPU.
    pub cores: Vec<CoreRole>,
    /// Rounds that were wanted.
    pub rounds: u32,
    pub trial_s: f64,
    /// The number from which the orders of the rounds were drawn.
    pub seed: u64,
    /// Trials that were thrown away because a hypervisor took the CPU.
    pub stolen: u32,
    pub boxes: Vec<Boxed>,
    /// Reason why it ended before its time; none: it is whole.
    pub partial: Option<String>,
    /// Conditions that the machine, or the arrangement, does not let be measured.
    #[serde(alias = "left_out")]
    pub skipped: Vec<String>,
    /// Meaning of the figures, in sentences.
    pub conclusions: Vec<String>,
    /// Notes on the origin of the figures.
    pub notes: Vec<String>,
    /// Published figures of others.
    pub sources: Vec<Published>,
}

/// Differences between the readings of two conditions, paired by their round.
pub fn costs(before: &[Reading], after: &[Reading]) -> Vec<Cost> {
    judged(Measure::ALL.into_iter().filter_map(|measure| cost(measure, before, after)).collect())
}

/// The same costs, each with whether it is beyond chance among all of them.
fn judged(mut costs: Vec<Cost>) -> Vec<Cost> {
    let probabilities: Vec<Option<f64>> = costs.iter().map(|cost| cost.difference.probability).collect();
    for (cost, beyond) in costs.iter_mut().zip(beyond_chance(&probabilities)) {
        cost.beyond_chance = beyond;
    }
    costs
}

fn cost(measure: Measure, before: &[Reading], after: &[Reading]) -> Option<Cost> {
    let value = |reading: &Reading| reading.values.get(&measure).copied();
    let pairs: Vec<(f64, f64)> = before.iter().zip(after).filter_map(|(a, b)| Some((value(a)?, value(b)?))).collect();
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    let difference = Paired::of(&differences)?;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    Some(Cost { measure, before: mean(|p| p.0), after: mean(|p| p.1), difference, beyond_chance: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(measure: Measure, values: &[Option<f64>]) -> Vec<Reading> {
        let one = |value: &Option<f64>| Reading {
            values: value.iter().map(|&v| (measure, v)).collect(),
            ..Reading::default()
        };
        values.iter().map(one).collect()
    }

    #[test]
    fn a_cost_is_that_of_the_rounds_in_which_both_were_measured() {
        let quiet = readings(Measure::P99, &[Some(100.0), Some(200.0), None, Some(300.0)]);
        let loud = readings(Measure::P99, &[Some(150.0), Some(251.0), Some(1e9), Some(349.0)]);
        let found = costs(&quiet, &loud);
        assert_eq!(found.len(), 1);
        let cost = &found[0];
        assert_eq!((cost.difference.pairs, cost.before, cost.after, cost.difference.mean), (3, 200.0, 250.0, 50.0));
        assert!(cost.beyond_chance && cost.ratio() == Some(0.25));
    }

    #[test]
    fn what_differs_by_chance_is_no_cost() {
        let quiet = readings(Measure::Jitter, &[Some(10.0), Some(12.0), Some(9.0), Some(11.0), Some(10.0)]);
        let again = readings(Measure::Jitter, &[Some(11.0), Some(10.0), Some(10.0), Some(10.0), Some(11.0)]);
        assert!(costs(&quiet, &again).iter().all(|cost| !cost.beyond_chance));
    }
}
