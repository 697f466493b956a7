//! The request behind a plan.

use host::knob::CoalesceField;
use model::CpuSet;
use serde::{Deserialize, Serialize};

/// Use of a means of steering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steer {
    #[default]
    Auto,
    On,
    /// Nowhere: what is set is taken away.
    Off,
}

impl Steer {
    pub(crate) fn is_wanted(self, helps: bool) -> bool {
        match self {
            Self::Auto => helps,
            Self::On => true,
            Self::Off => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Options {
    /// The interfaces; empty: every one that has queue interrupts.
    pub nics: Vec<String>,
    /// The CPUs that may do network work; none: every one that is online and not isolated.
    pub cpus: Option<CpuSet>,
    /// CPUs kept free of network work.
    pub except: CpuSet,
    /// Receive packet steering. `Auto`: for interfaces with one receive queue.
    pub rps: Steer,
    /// Entries of the socket flow table (receive flow steering); none: left as it is.
    pub rfs: Option<u32>,
    /// The entries that table has now, for the plan's table; none when not known.
    pub rfs_now: Option<u32>,
    /// Transmit queues bound to CPUs. `Auto`: for interfaces with several transmit queues.
    pub xps: Steer,
    /// NAPI in kernel threads, each pinned; none: left as it is (threads that exist are pinned).
    pub threaded: Option<bool>,
    /// Settings of interrupt coalescing.
    pub coalesce: Vec<(CoalesceField, String)>,
    /// Rings at the largest size the driver has.
    pub max_rings: bool,
}
