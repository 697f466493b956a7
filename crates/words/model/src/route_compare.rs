//! The ways in which a router can forward, beside each other: one run of `evenkeel route compare`.

use serde::{Deserialize, Serialize};

use crate::{
    bench::{Goal, Latency, Verdict},
    run::{Arrangement, Machine},
    sweep::{Gain, Published, Setup},
};

/// The version of the schema `evenkeel.route.compare/<version>`.
pub const SCHEMA: u32 = 1;

/// Memory that was taken for each packet that came out, on the cores of the box.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Allocations {
    /// Packets that came out meanwhile.
    pub packets: u64,
    /// Pages from the page allocator per packet, without those that a page pool took in bulk.
    pub pages: f64,
    /// Pages that came new to a page pool, per packet.
    pub pool_pages: f64,
    /// Socket buffers that ended, per packet: in a steady state as many as were made.
    pub socket_buffers: f64,
}

/// Result of a round for a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The highest load that met the goal, in packets per second; none when none did.
    pub throughput_pps: Option<f64>,
    /// The lowest load above it that did not.
    pub fails_at_pps: Option<f64>,
    /// The throughput is the box's, or the reason why not.
    pub verdict: Verdict,
    /// Latency at [`RouteCompare::latency_load`].
    pub latency: Option<Latency>,
    /// Latency at [`RouteCompare::latency_load`] of the throughput of no program on as many cores in the same round: one load for all ways.
    #[serde(alias = "latency_beside")]
    pub latency_at_reference: Option<Latency>,
    /// Memory at the load of `latency`, counted in a trial of its own.
    pub allocations: Option<Allocations>,
}

/// A way to forward, on one core or on two.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Configuration {
    /// `none`, `standard`, `routed` or `stateful`.
    pub mode: String,
    pub cores: u32,
    /// Key (`routed-1`), name, settings, throughput ([`Setup::ceiling_pps`], the median of all rounds; 0 without any), and what the CPU time went to:
    /// at the throughput of each round, and over the load.
    #[serde(flatten)]
    pub setup: Setup,
    /// The throughput beside that of no program on as many cores; none for that one itself, and without both.
    pub gain: Option<Gain>,
    /// Round trip of probes at [`RouteCompare::latency_load`], in nanoseconds: the median of all rounds.
    pub round_trip_ns: Option<f64>,
    /// One-way delay of the load itself there, percentile 50, in nanoseconds: the median of all rounds.
    pub delay_p50_ns: Option<f64>,
    /// Percentile 99 of that delay.
    pub delay_p99_ns: Option<f64>,
    /// One-way delay at the load of [`Round::latency_at_reference`], percentile 50, in nanoseconds: the median of all rounds.
    #[serde(alias = "beside_p50_ns")]
    pub reference_p50_ns: Option<f64>,
    /// Percentile 99 of that delay.
    #[serde(alias = "beside_p99_ns")]
    pub reference_p99_ns: Option<f64>,
    /// Memory for each packet: medians of all rounds, and the packets of all.
    pub allocations: Option<Allocations>,
    pub rounds: Vec<Round>,
}

/// Something that this machine does not let be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub what: String,
    /// The reason, and what it takes.
    #[serde(alias = "why")]
    pub reason: String,
}

/// The tester on so many cores of the box.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bed {
    pub cores: u32,
    /// The work of each core.
    pub arrangement: Arrangement,
    /// Throughput of the tester without a box, in packets per second; none when it could not be measured.
    pub ceiling_pps: Option<f64>,
}

/// A run of `evenkeel route compare`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteCompare {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    pub version: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// The length of a frame in bytes, with its checksum.
    pub frame_bytes: u32,
    /// Flows that follow each other in turn, one way.
    pub flows: u32,
    /// Goal of a throughput.
    pub goal: Goal,
    pub rounds: u32,
    /// The load at which latency and memory are measured, as a share of each way's own throughput in the same round.
    pub latency_load: f64,
    /// The time of each step of the load, in seconds.
    pub seconds_per_step: f64,
    /// Samples per second and core.
    pub frequency_hz: u32,
    /// The tester, for one core of the box and for two.
    pub beds: Vec<Bed>,
    #[serde(alias = "ways")]
    pub configurations: Vec<Configuration>,
    /// Configurations that this machine does not let be measured.
    #[serde(alias = "left_out")]
    pub skipped: Vec<Skipped>,
    /// Method of counting memory, and its limits.
    pub allocations_method: String,
    /// Published figures of others.
    pub sources: Vec<Published>,
    /// Meaning of the run, in plain words.
    pub conclusion: String,
    pub notes: Vec<String>,
}

impl Configuration {
    /// True if each of its rounds has a throughput that is the box's own.
    pub fn answered(&self) -> bool {
        !self.rounds.is_empty() && self.rounds.iter().all(|r| r.verdict == Verdict::Measured)
    }
}
