//! The plan of a comparison.

use std::{fmt, time::Duration};

use model::{CpuSet, bench::FrameSpec, route_compare::Skipped};

use crate::{
    BenchError, Cores,
    dut::{DutKind, RuleOrder},
    run::{Boxes, Request, Settings, Test, WIRE, What as Measurement, seconds_of},
};

/// Bytes of the frames, with FCS.
pub(super) const FRAME_BYTES: u32 = 64;
/// Flows that follow each other.
pub(super) const FLOW_COUNT: u32 = 256;
/// Rules of nftables that a new connection passes in mode stateful.
const RULE_COUNT: u32 = 25;
/// The load at which latency and memory are measured, as a share of the throughput.
pub const LATENCY_LOAD: f64 = 0.5;
/// Seconds that a box takes to be built and to go.
const BUILD_S: f64 = 1.0;
/// The most cores that a box has here.
const CORES_MAX: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forwarding {
    /// The kernel, without a program.
    None,
    /// The kernel, with the programs of `route` on its ports.
    Standard,
    Routed,
    /// The fast path for established connections.
    Stateful,
}

impl Forwarding {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::None, Self::Standard, Self::Routed, Self::Stateful];

    /// Name on the command line and in files.
    pub fn key(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Standard => "standard",
            Self::Routed => "routed",
            Self::Stateful => "stateful",
        }
    }

    pub fn name(self) -> &'static str {
        if self == Self::None { "no program" } else { self.key() }
    }

    /// The box that forwards in this way.
    pub fn kind(self) -> DutKind {
        match self {
            Self::None => DutKind::Router,
            Self::Standard => DutKind::RouteStandard,
            Self::Routed => DutKind::Route,
            Self::Stateful => DutKind::RouteStateful,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The ways, in any order.
    pub ways: Vec<Forwarding>,
    pub cpus: CpuSet,
    /// The length of each full trial and of each load.
    pub duration: Duration,
    pub rounds: u32,
    pub loads: u32,
    /// The loss that a throughput may have, where it is not the preset's.
    pub loss_ratio: Option<f64>,
}

/// A way on so many cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WayId {
    pub(super) forwarding: Forwarding,
    pub(super) cores: u32,
}

impl fmt::Display for WayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.forwarding.name(), cores_in_words(self.cores))
    }
}

/// `one core`, `two cores`.
pub(super) fn cores_in_words(cores: u32) -> &'static str {
    if cores == 1 { "one core" } else { "two cores" }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The tester's own ceiling, in the arrangement for so many cores of the box.
    Ceiling { cores: u32 },
    /// Throughput, latency, memory and CPU time of a way, in a round.
    Round {
        /// Number of the round, from 0.
        round: u32,
        /// The way, by its place in the plan.
        way: usize,
    },
    /// The loads of a way that have their turn in a pass.
    Loads {
        /// Number of the pass, from 0.
        pass: u32,
        /// The way, by its place in the plan.
        way: usize,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct PlannedStep {
    pub what: What,
    pub name: String,
    /// Seconds that it is expected to take.
    pub seconds: f64,
}

/// Everything that is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    pub options: Options,
    pub steps: Vec<PlannedStep>,
    /// Measurements that this machine does not allow.
    pub skipped: Vec<Skipped>,
    pub(super) ways: Vec<WayId>,
    pub(super) beds: Vec<(u32, Cores)>,
    pub(super) request: Request,
    pub(super) settings: Settings,
}

impl Plan {
    /// Plans the steps; `skipped` has what cannot be measured here.
    ///
    /// # Errors
    /// [`BenchError::Setting`] without a way or without a CPU.
    pub fn new(options: Options) -> Result<Self, BenchError> {
        if options.ways.is_empty() {
            return Err(BenchError::Setting("there is no mode to compare".into()));
        }
        let beds: Vec<(u32, Cores)> =
            (1..=CORES_MAX).filter_map(|n| Some((n, Cores::of_one_queue(&options.cpus, n == 2)?))).collect();
        if beds.is_empty() {
            return Err(BenchError::Setting("a comparison needs at least one CPU".into()));
        }
        let skipped = (beds.len() < CORES_MAX as usize).then(|| second_core(&options.cpus));
        let request = request(&options);
        let mut settings = Settings::of(&request)?;
        settings.preset.latency.loads = vec![LATENCY_LOAD];
        let of_bed = |&(cores, _): &(u32, Cores)| {
            let wanted = Forwarding::ALL.into_iter().filter(|f| options.ways.contains(f));
            wanted.map(move |forwarding| WayId { forwarding, cores }).collect::<Vec<_>>()
        };
        let ways: Vec<WayId> = beds.iter().flat_map(of_bed).collect();
        let steps = steps(&options, &ways, &beds, &settings);
        Ok(Self { options, steps, skipped: skipped.into_iter().collect(), ways, beds, request, settings })
    }

    /// Seconds that all steps take.
    pub fn seconds(&self) -> f64 {
        self.steps.iter().map(|s| s.seconds).sum()
    }

    /// Each arrangement of cores: how many of them are the box's, and the work of each in words.
    pub fn arrangements(&self) -> impl Iterator<Item = (u32, model::run::Arrangement)> + '_ {
        self.beds.iter().map(|(cores, of)| (*cores, of.arrangement(false)))
    }

    /// The turn of load `i`: passes take the loads alternately, so that a disturbance does not meet one part of a curve alone.
    pub(super) fn is_turn(&self, pass: u32, load: usize) -> bool {
        load as u32 % self.options.rounds == pass
    }
}

fn second_core(usable: &CpuSet) -> Skipped {
    Skipped {
        what: "with the second core".into(),
        reason: format!(
            "it takes three CPUs, one that sends and two of the box; usable here: {usable}. With fewer CPUs sender and box share a core, and \
             the figure mixes both"
        ),
    }
}

fn request(options: &Options) -> Request {
    let keys = options.ways.iter().map(|way| way.kind().key().to_owned());
    Request {
        boxes: Boxes::Lab(std::iter::once(WIRE.to_owned()).chain(keys).collect()),
        frames: vec![FrameSpec::Size { bytes: FRAME_BYTES }],
        tests: vec![Test::Throughput, Test::Latency],
        preset: "quick".into(),
        loss_ratio: options.loss_ratio,
        trial_s: Some(options.duration.as_secs_f64()),
        repeats: None,
        one_way: true,
        flows: FLOW_COUNT,
        ipv6: false,
        rules: RULE_COUNT,
        rule_order: RuleOrder::Study,
        bridged: false,
        cpus: options.cpus.clone(),
    }
}

fn steps(options: &Options, ways: &[WayId], beds: &[(u32, Cores)], settings: &Settings) -> Vec<PlannedStep> {
    let more = settings.preset.drain.quiet + Duration::from_millis(120);
    let load_s = (options.duration + more).as_secs_f64();
    let of = |what| seconds_of(what, settings);
    let ceilings = beds.iter().map(|&(cores, _)| PlannedStep {
        what: What::Ceiling { cores },
        name: format!("the tester's ceiling, {} of the box", cores_in_words(cores)),
        seconds: BUILD_S + of(Measurement::Ceiling),
    });
    // Latency is measured at two loads; memory and CPU time at the throughput are a load each.
    let round_s =
        BUILD_S + of(Measurement::Test(Test::Throughput)) + 2.0 * of(Measurement::Test(Test::Latency)) + 2.0 * load_s;
    let rounds = (0..options.rounds).flat_map(|round| {
        ways.iter().enumerate().map(move |(way, id)| PlannedStep {
            what: What::Round { round, way },
            name: format!("{id}, round {} of {}", round + 1, options.rounds),
            seconds: round_s,
        })
    });
    let passes = options.rounds.min(options.loads);
    let loads = (0..passes).flat_map(|pass| {
        let number = (0..options.loads).filter(|load| load % options.rounds == pass).count();
        ways.iter().enumerate().map(move |(way, id)| PlannedStep {
            what: What::Loads { pass, way },
            name: format!("{id}, {number} of {} loads", options.loads),
            seconds: BUILD_S + load_s * number as f64,
        })
    });
    ceilings.chain(rounds).chain(loads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(cpus: &str, rounds: u32, loads: u32) -> Plan {
        let options = Options {
            ways: vec![Forwarding::Routed, Forwarding::None],
            cpus: cpus.parse().unwrap(),
            duration: Duration::from_millis(300),
            rounds,
            loads,
            loss_ratio: None,
        };
        Plan::new(options).unwrap()
    }

    #[test]
    fn the_ways_take_turns_in_each_round_and_each_load_has_one_turn() {
        let plan = plan("0-1", 2, 5);
        let names: Vec<&str> = plan.steps.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names[1..3], ["no program, one core, round 1 of 2", "routed, one core, round 1 of 2"]);
        assert_eq!(
            (names.len(), names[5], names[7]),
            (9, "no program, one core, 3 of 5 loads", "no program, one core, 2 of 5 loads")
        );
        for load in 0..5 {
            assert_eq!((0..2).filter(|&pass| plan.is_turn(pass, load)).count(), 1);
        }
        assert!(plan.steps.iter().all(|s| s.seconds > 0.0) && plan.seconds() > 5.0);
    }

    #[test]
    fn a_second_core_is_left_out_with_the_reason_where_the_sender_would_share_it() {
        let two = plan("0-1", 1, 1);
        assert!(two.ways.iter().all(|w| w.cores == 1));
        assert!(two.skipped[0].reason.contains("three CPUs") && two.skipped[0].reason.contains("0-1"));
        let three = plan("0-2", 1, 1);
        assert_eq!(three.ways.iter().map(|w| w.cores).collect::<Vec<_>>(), [1, 1, 2, 2]);
        assert!(three.skipped.is_empty());
    }

    #[test]
    fn nothing_to_compare_is_an_error() {
        let options = Options { ways: Vec::new(), ..plan("0", 1, 1).options };
        assert!(Plan::new(options).is_err());
    }
}
