//! What the process of a node is told, and what it answers.

use std::net::Ipv4Addr;

use model::speedup::Exchange;
use serde::{Deserialize, Serialize};

use super::super::plan::By;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Other {
    pub(super) mac: String,
    pub(super) address: Option<Ipv4Addr>,
}

/// What a node is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Listen, as node `me` of so many, for messages of so many bytes.
    Listen { by: By, me: usize, nodes: usize, bytes: u32 },
    /// Connect to those before this node at these ports, and wait for those behind it.
    Join { by: By, others: Vec<Other>, ports: Vec<u16> },
    /// Do the steps of a turn.
    Turn { by: By, exchange: Exchange, nodes: u32, steps: u32, bytes: u32, computing_ns: u64 },
}

/// What it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It listens at this port.
    Listens { port: u16 },
    /// It is joined to all others.
    Joined,
    /// The steps took it so long, of which it waited so long in the place of computing.
    Took { seconds: f64, computed_s: f64 },
}
