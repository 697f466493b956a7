//! The plan of a run.

use std::{fmt, time::Duration};

use model::speedup::Exchange;
use serde::{Deserialize, Serialize};

use super::MessagesError;

pub const NODES_MAX: u32 = 8;
/// Unknowns of the model.
const UNKNOWN_COUNT: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// The native interface, by rings out of the XDP hook.
    Link,
    /// TCP connections without Nagle's delay.
    Tcp,
}

impl Transport {
    /// Name of the transport in a run.
    pub fn key(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Tcp => "tcp",
        }
    }

    /// Name of the transport as people write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Tcp => "TCP",
        }
    }
}

#[derive(Debug, Clone)]
pub struct SpeedupOptions {
    pub nodes: Vec<u32>,
    /// Computing of a step on one node.
    pub step: Duration,
    /// The share of it that is not divided, from 0 to 1.
    pub serial_share: f64,
    /// Patterns of exchange between nodes.
    pub exchanges: Vec<Exchange>,
    pub carriers: Vec<Transport>,
    /// Bytes that a node sends to each that it exchanges with.
    pub bytes: u32,
    pub rounds: u32,
    pub steps: u32,
}

/// A number of nodes that do so many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trial {
    pub transport: Transport,
    /// Pattern of exchange between nodes.
    pub exchange: Exchange,
    pub nodes: u32,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        write!(f, "{}, {}, {} {nodes}", self.exchange.words(), self.transport.name(), self.nodes)
    }
}

#[derive(Debug, Clone)]
pub struct Plan {
    /// Options, with the numbers of nodes sorted.
    pub options: SpeedupOptions,
    /// In their order. The carriers alternate, so that what else the machine does meets both.
    pub trials: Vec<Trial>,
}

impl Plan {
    /// Plans a run.
    ///
    /// # Errors
    /// A number of nodes is not from 1 to [`NODES_MAX`] or comes twice, or there are fewer than 3.
    pub fn new(mut options: SpeedupOptions) -> Result<Self, MessagesError> {
        options.nodes.sort_unstable();
        if let Some(&wrong) = options.nodes.iter().find(|nodes| !(1..=NODES_MAX).contains(*nodes)) {
            return Err(MessagesError::Nodes(wrong));
        }
        if let Some(same) = options.nodes.windows(2).find(|two| two[0] == two[1]) {
            return Err(MessagesError::Twice(same[0]));
        }
        if options.nodes.len() < UNKNOWN_COUNT {
            return Err(MessagesError::Few(options.nodes.len()));
        }
        let mut trials = Vec::new();
        for &exchange in &options.exchanges {
            for &nodes in &options.nodes {
                trials.extend(options.carriers.iter().map(|&transport| Trial { transport, exchange, nodes }));
            }
        }
        Ok(Self { options, trials })
    }

    /// The largest number of nodes.
    pub(super) fn most(&self) -> u32 {
        self.options.nodes.last().copied().unwrap_or(0)
    }

    /// The wait that stands for computing a step on so many nodes.
    pub(super) fn computing(&self, nodes: u32) -> Duration {
        let serial = self.options.serial_share;
        self.options.step.mul_f64(serial + (1.0 - serial) / f64::from(nodes))
    }

    /// Seconds of a round: its waits, and about a quarter more for starts, exchanges and what is still under way.
    pub fn round_s(&self) -> f64 {
        let of = |trial: &Trial| self.computing(trial.nodes).as_secs_f64();
        1.25 * f64::from(self.options.steps) * self.trials.iter().map(of).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn options(nodes: &[u32]) -> SpeedupOptions {
        SpeedupOptions {
            nodes: nodes.to_vec(),
            step: Duration::from_millis(20),
            serial_share: 0.1,
            exchanges: vec![Exchange::AllReduce, Exchange::Neighbour],
            carriers: vec![Transport::Link, Transport::Tcp],
            bytes: 8,
            rounds: 1,
            steps: 10,
        }
    }

    #[test]
    fn numbers_of_nodes_that_cannot_be_made_or_fitted_are_refused() {
        assert!(matches!(Plan::new(options(&[1, 2, 9])), Err(MessagesError::Nodes(9))));
        assert!(matches!(Plan::new(options(&[0, 2, 4])), Err(MessagesError::Nodes(0))));
        assert!(matches!(Plan::new(options(&[1, 8])), Err(MessagesError::Few(2))));
        assert!(matches!(Plan::new(options(&[4, 2, 1, 4])), Err(MessagesError::Twice(4))));
    }

    #[test]
    fn each_turn_comes_once_and_carriers_stand_beside_each_other() {
        let plan = Plan::new(options(&[8, 1, 4])).unwrap();
        assert_eq!((plan.options.nodes.as_slice(), plan.most()), ([1, 4, 8].as_slice(), 8));
        let all: HashSet<Trial> = plan.trials.iter().copied().collect();
        assert_eq!((all.len(), plan.trials.len()), (12, 12));
        for two in plan.trials.chunks(2) {
            assert_eq!((two[0].exchange, two[0].nodes), (two[1].exchange, two[1].nodes));
            assert_ne!(two[0].transport, two[1].transport);
        }
    }

    #[test]
    fn what_is_not_divided_stays_with_each_node() {
        let plan = Plan::new(options(&[1, 2, 4])).unwrap();
        assert_eq!([1, 2, 4].map(|nodes| plan.computing(nodes).as_micros()), [20_000, 11_000, 6500]);
        assert!((plan.round_s() - 1.25 * 4.0 * 10.0 * 0.0375).abs() < 1e-9);
    }
}
