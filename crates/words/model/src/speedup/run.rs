//! Result of `evenkeel link speedup`.

use serde::{Deserialize, Serialize};

use super::Law;
use crate::machine::Machine;

/// The version of the schema `evenkeel.link.speedup/<version>`.
pub const SCHEMA: u32 = 1;

/// Exchange of nodes in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// Each node sends its values to each other one, and adds up all.
    AllReduce,
    /// The nodes are a ring, and each sends its values to both neighbours.
    Neighbour,
}

impl Exchange {
    pub fn words(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::Neighbour => "nearest neighbours",
        }
    }
}

/// The 95 % interval of a number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval<T> {
    pub low: T,
    pub high: T,
}

/// 95 % intervals by a bootstrap over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub a: Interval<f64>,
    /// Interval of n. It may reach below 0: then n cannot be told from 0.
    pub n: Interval<f64>,
    /// Interval of the best number of nodes; none: no bound.
    pub best_nodes: Interval<Option<f64>>,
    /// Interval of the greatest speed-up; none: no bound.
    pub greatest: Interval<Option<f64>>,
    /// Times that the rounds were drawn.
    pub draws: u32,
    /// Resamples that the model fits.
    pub fit: u32,
}

/// Result of the fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fitting {
    /// p: what the nodes divide, in seconds.
    pub divided_s: f64,
    /// s: what they do not, in seconds.
    pub serial_s: f64,
    /// q: communication over N², in seconds.
    pub square_s: f64,
    /// a and n; none: the model does not fit.
    pub law: Option<Law>,
    /// Reason why the model does not fit.
    pub misfit: Option<String>,
    /// N_opt; none: each node helps, or the model does not fit.
    pub best_nodes: Option<f64>,
    /// S_max; none: no bound, or the model does not fit.
    pub greatest: Option<f64>,
    /// 95 % intervals of the estimates.
    pub estimate: Estimate,
}

/// The steps of a number of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub nodes: u32,
    /// Seconds of a step, each round.
    pub rounds_s: Vec<f64>,
    /// The median of the rounds.
    pub seconds: f64,
    /// Time of a step without the wait that stands for computing, in seconds, of each round.
    pub exchange_rounds_s: Vec<f64>,
    /// The median of the rounds.
    pub exchange_s: f64,
    /// Exchange time over TCP's, the median of the rounds' ratios; none for TCP, for one node, and without TCP.
    #[serde(alias = "exchange_over_tcp")]
    pub exchange_ratio_to_tcp: Option<f64>,
    /// (p + s) of the fit over the seconds: the measured S(N).
    pub speedup: f64,
    /// Seconds by the fit.
    pub fitted_s: f64,
    /// The measured seconds minus those by the fit, over these.
    pub residual: f64,
}

/// A carrier and an exchange over all numbers of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// `link` or `tcp`.
    #[serde(alias = "by")]
    pub transport: String,
    pub exchange: Exchange,
    /// Each number of nodes.
    pub points: Vec<Point>,
    pub fitting: Fitting,
}

/// A run of `evenkeel link speedup`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSpeedup {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Other programs took so much of the CPUs that the figures mean little: how much, which, what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// The machine of each node, where they are machines; empty: namespaces of that one stand for nodes.
    #[serde(default)]
    pub nodes: Vec<Machine>,
    /// Threads that ran or wanted to run when it began, as a mean of a minute; others' work lengthens times.
    pub load_average: f64,
    /// Rounds; in each every number of nodes, exchange and carrier has its turn.
    pub rounds: u32,
    /// Steps of a turn; its time is their mean.
    pub steps: u32,
    /// Seconds that computing a step on one node stands for.
    pub step_s: f64,
    /// The share of it that was not divided.
    pub serial_share: f64,
    /// Bytes that a node sends to each that it exchanges with.
    pub bytes: u32,
    pub series: Vec<Series>,
    /// Notes on the origin of the figures.
    pub notes: Vec<String>,
}
