//! Orders of the coordinator and answers of the worker.

use model::link_bench::Receive;
use serde::{Deserialize, Serialize};

use super::super::plan::Transport;

/// An order of the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Open an end for one at this hardware address.
    Open {
        transport: Transport,
        receive: Receive,
        stream: bool,
        mac: String,
    },
    /// Send each of so many messages back.
    Echo {
        bytes: u32,
        count: u32,
    },
    /// Receive so many bytes, and say so by one of your own.
    Take {
        bytes: u64,
    },
    /// Read all that a TCP connection of its own brings, until it ends.
    Drain,
    Close,
}

/// An answer of the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The end waits for the other one, at this port where it has one.
    Waits {
        port: u16,
    },
    /// Both ends have met.
    Open,
    /// The way to receive does not exist on this machine.
    Skipped(String),
    Done,
}
