//! Messages over link beside other ways to exchange them: what `evenkeel link bench` measured.

use serde::{Deserialize, Serialize};

use crate::{machine::Machine, route_compare::LeftOut, run::CoreRole, sweep::Published};

/// The version of the schema `evenkeel.link.bench/<version>`.
pub const SCHEMA: u32 = 1;

/// How an end waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// A call that never waits, again and again.
    Spinning,
    /// One call that polls until a message is there.
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
    /// What carried them: `link`, `link-sockets`, `packet`, `xdp`, `udp`, `tcp`, `broker`.
    pub by: String,
    /// How both ends waited.
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
    pub over_tcp: Option<f64>,
}

/// Messages there and back in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingRound {
    /// Messages that came back.
    pub samples: u32,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

/// Many bytes one way, until the other end has said that it has all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// What carried them: `link` or `tcp`.
    pub by: String,
    pub bytes: u64,
    pub conditions: Conditions,
    pub rounds_s: Vec<f64>,
    /// The median of the rounds.
    pub seconds: f64,
    /// TCP's seconds over these, round by round; none without TCP on such a link.
    pub over_tcp: Option<f64>,
}

/// Bytes of several nodes to one, as many as can.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incast {
    /// What carried them: `link` or `tcp`.
    pub by: String,
    /// Nodes that sent at once, each by a connection of its own.
    pub senders: u32,
    pub rounds: Vec<IncastRound>,
    /// The median of the rounds, in bits per second that arrived.
    pub bits_per_second: f64,
    /// That over what one sender alone reached, round by round.
    pub of_one: f64,
    /// The smallest part that a connection had, over an equal one; of all rounds the least. 0: one was dead.
    pub least_share: f64,
}

/// Bytes of several nodes to one, in one round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IncastRound {
    /// Bits per second of one sender alone.
    pub alone_bits_per_second: f64,
    /// Bits per second of all together.
    pub bits_per_second: f64,
    /// The smallest part that a connection had, over an equal one.
    pub least_share: f64,
}

/// Many connections of one node to others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// What carried them: `link`.
    pub by: String,
    pub connections: u32,
    /// Nodes that they go to.
    pub nodes: u32,
    /// Memory of an end of a connection in bytes: what the process had more once all were open.
    pub end_bytes: f64,
    /// The same once a message had gone there and back on each.
    pub used_end_bytes: f64,
    /// Processor time of all ends of all connections while nobody sends, in seconds per second.
    pub idle_cpu: f64,
    /// Processor time of both ends for a message of 64 bytes there and back, in nanoseconds.
    pub message_cpu_ns: f64,
}

/// One run of `evenkeel link bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkBench {
    /// Its beginning (RFC 3339, UTC).
    pub when: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Other programs took so much of the CPUs that the figures mean little: how much, which, what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// The machine of the other end, where both ends are on machines of their own.
    pub other: Option<Machine>,
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
    /// What this machine does not let be measured.
    pub left_out: Vec<LeftOut>,
    /// On the origin of the figures.
    pub notes: Vec<String>,
    /// Published figures of others.
    pub sources: Vec<Published>,
}
