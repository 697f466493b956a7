//! What the two processes say to each other besides their facts.

use model::link_bench::Receive;
use serde::{Deserialize, Serialize};

use super::super::plan::Way;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Open an end for one at this hardware address.
    Open {
        way: Way,
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The end waits for the other one, at this port where it has one.
    Waits {
        port: u16,
    },
    /// Both ends have met.
    Open,
    /// This machine does not let an end wait so.
    Skipped(String),
    Done,
}
