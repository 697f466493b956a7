//! Counters: what the kernel and the NICs have counted so far, and the rates between two readings.
//!
//! [`Sampler`] reads the live machine cheaply; [`delta`] makes a [`model::top::TopSample`] of two readings and is pure.

mod delta;
mod links;
mod qstats;
mod queues;
mod sampler;
mod tasks;
mod text;

use std::{collections::BTreeMap, io, time::Duration};

pub use delta::{core_load, delta};
pub use links::LinkStats;
pub use queues::{QueueCounters, QueueNames};
pub use sampler::Sampler;
pub use tasks::{ProcessTime, TaskTime, ran_between, task_times};
pub use text::{CpuTime, Interrupts, Softirqs, Softnet, cpu_times, interrupts, softirqs, softnet};

/// Everything counted, at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counters {
    /// The time, by the monotonic clock.
    pub at: Duration,
    /// The time, by the calendar (RFC 3339, UTC).
    pub when: String,
    pub links: BTreeMap<u32, LinkCounters>,
    /// CPU time of each CPU that is online.
    pub cpus: BTreeMap<u32, CpuTime>,
    /// Packets that entered the stack, by CPU.
    pub softnet: BTreeMap<u32, Softnet>,
    /// Soft interrupts by CPU.
    pub softirqs: BTreeMap<u32, Softirqs>,
    pub interrupts: Interrupts,
    /// Counters that could not be read, and why; the rest is there.
    pub unread: Vec<String>,
}

/// The counters of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Name of the interface at that moment.
    pub name: String,
    /// The counters of the whole interface.
    pub stats: LinkStats,
    /// The counters of its queues, for drivers that have them.
    pub queues: BTreeMap<u32, QueueCounters>,
}

/// A failure while counters are read.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    #[error("cannot read {path}: {source}; rates need a mounted /proc")]
    Read { path: &'static str, source: io::Error },
    #[error("cannot open a netlink socket: {0}; rates are read by netlink, which this sandbox or kernel refuses")]
    Netlink(#[source] io::Error),
    #[error("the kernel refuses interface statistics (RTM_GETSTATS): {0}")]
    Links(#[source] io::Error),
    #[error("cannot list the interfaces: {0}")]
    Names(#[source] io::Error),
}

model::classified!(CountersError: Lacking);
