//! A run of the RFC 2544 bench: everything that its report (RFC 2544, section 26) says.
//!
//! Rates are units per second (a unit is a frame, or a datagram with all its fragments), and the totals of all directions unless a name says otherwise.

pub mod compare;
mod frame;
mod goal;
pub mod guest;
pub mod neighbour;
mod trial;

pub use frame::{ETHERNET_BYTES, FrameSpec, LINE_BYTES};
pub use goal::{COUNTED, Goal, Judged, NO_LOSS, SURE, judge};
pub use trial::{Aftermath, Counts, Delays, Direction, Drop, Observation, Pacing, Trial};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::{Arrangement, Machine};

/// The version of the schema `evenkeel.bench/<version>`.
pub const SCHEMA: u32 = 1;
/// From this share of the tester's ceiling on, a result says nothing about the box.
pub const TESTER_LIMITED: f64 = 0.95;

/// The finding of a goal's search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalResult {
    pub goal: Goal,
    /// The highest load that met it and every load below which none failed, in units per second offered; none when not even the least did.
    pub lower_pps: Option<f64>,
    /// The lowest load above it that failed; none when the highest load that the tester can make did not.
    pub upper_pps: Option<f64>,
    /// Units per second that came through at the lower bound (RFC 9971's conditional throughput), and its spread over the trials: lowest, median, highest.
    pub forwarded_pps: Option<[f64; 3]>,
    /// Trials that were made for it, and their time together in seconds.
    pub trials: u32,
    pub seconds: f64,
}

/// The standing of a throughput: the box's own, or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    Measured,
    /// The tester could not offer enough more than it: the box does at least this.
    TesterLimited {
        /// The tester's ceiling, in units per second.
        ceiling_pps: f64,
    },
    /// Nothing came through at the least load.
    Nothing,
    /// Units come through, but no load that was tried met the goal.
    NotMet {
        /// The least load that was tried, in units per second.
        #[serde(alias = "least_pps")]
        min_pps: f64,
        /// Units of the longest trial there.
        units: u64,
        /// Enough units to judge the goal. Otherwise the box may meet it at a lower load, and no trial can tell.
        judged: bool,
    },
    /// The same share of the units is lost at every load that was tried, and it is more than the goal allows.
    SameLoss {
        loss_ratio: f64,
        /// The least load of these trials, in units per second.
        #[serde(alias = "least_pps")]
        min_pps: f64,
        #[serde(alias = "most_pps")]
        max_pps: f64,
    },
    /// The time that the run may take was over before the bounds were close.
    Unfinished {
        /// State of the search by then, and the setting that helps.
        reason: String,
    },
    /// No trial could be believed.
    Void {
        reason: String,
    },
}

/// The throughput of a box for one kind of frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// A result for each goal, in their order.
    #[serde(alias = "found")]
    pub results: Vec<GoalResult>,
    /// Origin of the throughput: the box, or the tester.
    pub verdict: Verdict,
    /// The steps of the search, in words.
    pub steps: Vec<String>,
}

impl Throughput {
    /// Units per second that count as the throughput of goal `i`: the lower bound; none without one.
    pub fn pps(&self, goal: usize) -> Option<f64> {
        self.results.get(goal)?.lower_pps
    }
}

/// A point of the loss curve (RFC 2544, section 26.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossPoint {
    pub offered_pps: f64,
    /// Units per second that came through.
    pub received_pps: f64,
    pub loss_ratio: f64,
    /// Units that were sent; 0 in runs saved before this was kept.
    #[serde(default)]
    pub units: u64,
    /// Units as a share that came so late that the box has not kept pace ([`Counts::late`]).
    #[serde(default)]
    pub late_ratio: f64,
}

/// The longest burst without loss (RFC 2544, section 26.4; RFC 9004).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackToBack {
    /// Units of the longest burst without loss, for each repetition.
    pub bursts: Vec<u64>,
    /// Their mean, least and most.
    pub mean: f64,
    /// Units per second within the burst.
    pub burst_pps: f64,
    /// The time that the box's buffers last, in seconds: the mean burst over the burst's rate (RFC 9004, implied).
    pub implied_buffer_s: f64,
    /// The same without the units that were forwarded meanwhile (RFC 9004, corrected); none without a throughput.
    pub corrected_buffer_s: Option<f64>,
    /// The longest burst that was tried passed: then it is a lower bound.
    pub tester_limited: bool,
}

/// Series of probes that were thrown away, by cause. All 0 in runs saved before this was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Discarded {
    /// The tester could not measure them.
    #[serde(alias = "void")]
    pub invalid: u32,
    /// More of the load was lost than a throughput may lose.
    pub overloaded: u32,
    /// Half of the probes or more did not come back.
    #[serde(alias = "silent")]
    pub unanswered: u32,
    /// The round trips did not agree with each other.
    #[serde(alias = "unsteady")]
    pub inconsistent: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The load as a share of the throughput: 0 is an idle box.
    pub load: f64,
    pub offered_pps: f64,
    /// One-way delays, forward then backward; none on an idle box.
    pub one_way: [Option<Delays>; 2],
    /// Variation of the delay against the least (RFC 5481, PDV), percentile 99, forward then backward, in nanoseconds.
    pub pdv_p99_ns: [Option<u64>; 2],
    /// Differences between neighbours (RFC 5481, IPDV).
    pub ipdv: [Option<Delays>; 2],
    /// Mean round trip of each series of probes that agrees with itself, in nanoseconds.
    pub series_ns: Vec<f64>,
    /// Series that were thrown away, for whatever cause.
    #[serde(alias = "thrown_away")]
    pub discarded: u32,
    #[serde(default)]
    pub causes: Discarded,
    /// Series that were wanted; 0 in runs saved before this was kept.
    #[serde(default)]
    #[serde(alias = "series_wanted")]
    pub series_planned: u32,
    /// The mean of the best of them, in nanoseconds (as the study takes it: six of nine); none without series, or when they contradict each
    /// other.
    pub round_trip_ns: Option<f64>,
    /// The least and the highest of the series that contradict each other, in nanoseconds; none when they do not. No delay of such a load
    /// stands for it.
    pub contradiction_ns: Option<[f64; 2]>,
    /// Probes that were sent and did not come back.
    pub probes_lost: u64,
    /// Notes for the reader, such as an idle latency above the loaded one.
    pub flags: Vec<String>,
}

/// The time after which a box loses nothing again after overload (RFC 2544, section 26.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Units per second of the overload.
    pub overload_pps: f64,
    pub after_pps: f64,
    /// Times from the change to the last loss, in seconds, for each repetition.
    pub seconds: Vec<f64>,
    pub mean_s: f64,
    /// Repetitions in which losses went on to the end: their time is a lower bound.
    #[serde(default)]
    pub unfinished: u32,
}

/// Jitter at the throughput (RFC 3550, section 6.4.1), by readings one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Jitter {
    pub offered_pps: f64,
    /// The length of each reading, in seconds.
    pub reading_s: f64,
    /// The jitter at the end of each reading, forward then backward, in nanoseconds.
    pub readings_ns: Vec<[Option<f64>; 2]>,
    pub mean_ns: [Option<f64>; 2],
}

/// The time in which a box forwards nothing after a reset (RFC 6201).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reset {
    /// The reset, such as `link of the second port down and up`.
    pub what: String,
    pub offered_pps: f64,
    /// The reset time from lost units over the rate, in seconds, for each repetition (RFC 6201, section 4).
    pub by_loss_s: Vec<f64>,
    /// The longest time without an arrival, in seconds, for each repetition.
    pub by_time_s: Vec<f64>,
}

/// Everything about one kind of frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub frame: FrameSpec,
    /// The tester's own ceiling in the same arrangement, in units per second.
    pub ceiling_pps: Option<f64>,
    pub throughput: Option<Throughput>,
    /// The loss curve, by falling load.
    pub loss_curve: Vec<LossPoint>,
    pub back_to_back: Option<BackToBack>,
    /// Latency by rising load.
    pub latency: Vec<Latency>,
    pub jitter: Option<Jitter>,
    pub recovery: Option<Recovery>,
    pub resets: Vec<Reset>,
    /// All trials in their order, those that do not count among them.
    pub trials: Vec<Trial>,
}

impl Point {
    /// A point with nothing measured yet.
    pub fn new(frame: FrameSpec) -> Self {
        Self {
            frame,
            ceiling_pps: None,
            throughput: None,
            loss_curve: Vec::new(),
            back_to_back: None,
            latency: Vec::new(),
            jitter: None,
            recovery: None,
            resets: Vec::new(),
            trials: Vec::new(),
        }
    }
}

/// A box under test in one mode.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mode {
    /// `wire`, `router`, `stateful`, `stateless`, `bridge`, `xdp-fib`, `route-standard`, `route`, `route-rules`, `route-stateful`, `nat`, `route-nat` or `ports`.
    pub key: String,
    pub name: String,
    /// A sentence about it.
    pub what: String,
    /// Settings of the box, as commands or `name = value`.
    pub settings: Vec<String>,
    /// A point for each kind of frame, in their order.
    pub points: Vec<Point>,
}

/// The cost and the resolution of the tester's stamps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Stamps {
    /// The cost of reading the clock once, in nanoseconds, measured on this machine.
    pub cost_ns: f64,
    /// The least difference between two readings, in nanoseconds.
    pub resolution_ns: f64,
    /// In trials of throughput one unit in this many is stamped; in trials of latency every one.
    pub one_in: u32,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Setup {
    /// `quick`, `study`, `rfc2544`, `mlr` or `custom`.
    pub preset: String,
    /// The goals, the main one first.
    pub goals: Vec<Goal>,
    /// Units go both ways at once.
    #[serde(alias = "both_ways")]
    pub bidirectional: bool,
    /// 4 or 6.
    pub ip_version: u8,
    /// Different flows of each direction.
    pub flows: u32,
    /// Rules of the filter.
    pub rules: u32,
    /// `study` or `rfc2544`.
    pub rule_order: String,
    /// Each port: interface, driver, speed, MTU, queues, in words.
    pub ports: Vec<String>,
    /// The line rate of the slower port in bits per second; none where there is none, as on a veth.
    pub line_bits_per_s: Option<f64>,
    /// The protocol of the units: UDP, destination port 7 (RFC 2544, appendix C) …
    pub protocol: String,
    /// The way in which the box was told of addresses, or found.
    pub addressing: String,
    /// The work of each core.
    pub arrangement: Arrangement,
    pub stamps: Stamps,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Status {
    /// All that was asked for was measured.
    Complete,
    Partial {
        /// The reason, and what is missing.
        reason: String,
        /// The step that was begun and has not ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        begun: Option<Unfinished>,
    },
}

/// A step that was begun and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    pub mode: String,
    pub frame: FrameSpec,
    /// The quantity that was to be measured, such as `throughput`.
    pub test: String,
    /// The number of its trials that have ended.
    pub trials: u32,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, frame, test, trials } = self;
        let plural = if *trials == 1 { "" } else { "s" };
        write!(f, "begun and not finished: {mode}, {frame}, {test}, with {trials} trial{plural}")
    }
}

/// A published result of somebody else, on their hardware: to be laid beside ours, never to be taken for ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRate {
    /// The key of the mode that it is comparable with.
    pub mode: String,
    /// Bytes of the frame with FCS.
    pub frame_bytes: u32,
    /// The machine of their measurement, such as `bare metal` or `VirtIO`.
    #[serde(alias = "on")]
    pub platform: String,
    pub pps: f64,
    /// True for one direction only.
    pub per_direction: bool,
    pub citation: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRun {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    pub ended: Option<String>,
    pub version: String,
    /// The machine on which it ran.
    pub machine: Machine,
    pub setup: Setup,
    pub modes: Vec<Mode>,
    pub status: Status,
    /// Published figures of others.
    pub sources: Vec<PublishedRate>,
    /// Meaning of the run, in plain words.
    pub conclusion: String,
    pub notes: Vec<String>,
}
