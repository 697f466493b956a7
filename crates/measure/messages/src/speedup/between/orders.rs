//! Orders to the worker process of a node, and its answers.

use std::net::Ipv4Addr;

use model::speedup::Exchange;
use serde::{Deserialize, Serialize};

use super::super::plan::Transport;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Other {
    pub(super) mac: String,
    pub(super) address: Option<Ipv4Addr>,
}

/// An order to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Listen, as node `me` of so many, for messages of so many bytes.
    Listen { transport: Transport, me: usize, nodes: usize, bytes: u32 },
    /// Connect to those before this node at these ports, and wait for those behind it.
    Join { transport: Transport, others: Vec<Other>, ports: Vec<u16> },
    /// Do the steps of a turn.
    Trial { transport: Transport, exchange: Exchange, nodes: u32, steps: u32, bytes: u32, computing_ns: u64 },
}

/// An answer of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Listens on this port.
    Listens { port: u16 },
    /// Connected to all others.
    Joined,
    /// The steps took it so long, of which it waited so long in the place of computing.
    Took { seconds: f64, computed_s: f64 },
}
