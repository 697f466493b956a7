//! Messages over link beside other ways to exchange them: what `evenkeel link bench` measured.

use serde::{Deserialize, Serialize};

use crate::{machine::Machine, route_compare::Skipped, run::CoreRole, sweep::Published};

/// The version of the schema `evenkeel.link.bench/<version>`.
pub const SCHEMA: u32 = 1;

/// Way in which an end waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// A call that never waits, again and again.
    Spinning,
    /// A single call that polls until a message is there.
    Polling,
    /// A call that sleeps until a message is there.
    Sleeping,
}

impl Receive {
    pub fn word(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::Polling => "polling in the call",
            Self::Sleeping => "sleeping",
        }
    }
}

/// The link that messages cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conditions {
    pub mtu: u32,
    /// Segmentation by the link (GSO, TSO) and joining of segments (GRO) are as the kernel sets them; otherwise off.
    pub offloads: bool,
    /// The most bytes of a TCP receive buffer (the last of net.ipv4.tcp_rmem); none: as the kernel sets it.
    pub tcp_rmem: Option<u64>,
    /// Frames of a million that a program between both ends drops; none: nothing stands between them.
    pub lost_per_million: Option<u32>,
}

/// Messages there and back, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pings {
    /// `link`, `link-sockets`, `packet`, `xdp`, `udp`, `tcp` or `broker`.
    #[serde(alias = "by")]
    pub transport: String,
    /// Way in which both ends waited.
    pub receive: Receive,
    pub bytes: u32,
    /// Bytes went over TCP on the same link meanwhile, as many as could.
    pub beside_transfer: bool,
    pub conditions: Conditions,
    pub rounds: Vec<PingRound>,
    /// The median of the rounds' medians, in nanoseconds there and back.
    pub p50_ns: f64,
    /// The median of the rounds' 99th percentiles.
    pub p99_ns: f64,
    /// The median over that of TCP that waits in the same way, round by round; none without TCP.
    #[serde(alias = "over_tcp")]
    pub ratio_to_tcp: Option<f64>,
}

/// Messages there and back in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingRound {
    /// Messages that came back.
    pub samples: u32,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

/// Many bytes one way, until the other end has said that it has all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// `link` or `tcp`.
    #[serde(alias = "by")]
    pub transport: String,
    pub bytes: u64,
    pub conditions: Conditions,
    pub rounds_s: Vec<f64>,
    /// The median of the rounds.
    pub seconds: f64,
    /// TCP's seconds over these, round by round; none without TCP on such a link.
    #[serde(alias = "over_tcp")]
    pub ratio_to_tcp: Option<f64>,
}

/// Bytes of several nodes to one, as many as can.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incast {
    /// `link` or `tcp`.
    #[serde(alias = "by")]
    pub transport: String,
    /// Nodes that sent at once, each by a connection of its own.
    pub senders: u32,
    pub rounds: Vec<IncastRound>,
    /// The median of the rounds, in bits per second that arrived.
    pub bits_per_second: f64,
    /// Rate over that of a sender alone, round by round.
    #[serde(alias = "of_one")]
    pub ratio_to_one_sender: f64,
    /// The smallest part that a connection had, over an equal one; of all rounds the least. 0: one was dead.
    #[serde(alias = "least_share")]
    pub min_share: f64,
}

/// Bytes of several nodes to one, in one round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IncastRound {
    /// Bits per second of one sender alone.
    pub alone_bits_per_second: f64,
    /// Bits per second of all together.
    pub bits_per_second: f64,
    /// The smallest part that a connection had, over an equal one.
    #[serde(alias = "least_share")]
    pub min_share: f64,
}

/// Many connections of one node to others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// `link`.
    #[serde(alias = "by")]
    pub transport: String,
    pub connections: u32,
    /// Nodes that they go to.
    pub nodes: u32,
    /// Memory of an end of a connection in bytes: what the process had more once all were open.
    #[serde(alias = "end_bytes")]
    pub endpoint_bytes: f64,
    /// Memory of an end once a message had gone there and back on each connection.
    #[serde(alias = "used_end_bytes")]
    pub used_endpoint_bytes: f64,
    /// Processor time of all ends of all connections while nobody sends, in seconds per second.
    pub idle_cpu: f64,
    /// Processor time of both ends for a message of 64 bytes there and back, in nanoseconds.
    pub message_cpu_ns: f64,
}

/// A run of `evenkeel link bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkBench {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Other programs took so much of the CPUs that the figures mean little: how much, which, what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// The machine of the other end, where both ends are on machines of their own.
    #[serde(alias = "other")]
    pub peer_machine: Option<Machine>,
    /// Threads that ran or wanted to run when it began, as a mean of a minute; others' work lengthens times.
    pub load_average: f64,
    /// The work of each CPU.
    pub cores: Vec<CoreRole>,
    /// Rounds; in each every row has its turn.
    pub rounds: u32,
    /// Messages there and back.
    pub pings: Vec<Pings>,
    pub transfers: Vec<Transfer>,
    /// Several nodes that send to one.
    #[serde(default)]
    pub incasts: Vec<Incast>,
    #[serde(default)]
    pub crowds: Vec<Crowd>,
    /// Rows that this machine does not let be measured.
    #[serde(alias = "left_out")]
    pub skipped: Vec<Skipped>,
    /// Notes on the origin of the figures.
    pub notes: Vec<String>,
    /// Published figures of others.
    pub sources: Vec<Published>,
}
