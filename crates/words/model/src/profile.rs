//! The CPU time of some seconds, by class of work.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// The version of the schema `evenkeel.profile/<version>`.
pub const SCHEMA: u32 = 1;

/// Class of the CPU's work, in the order in which a packet meets it; classes without packets follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Entering and leaving hard and soft interrupts.
    Interrupts,
    /// Driver, NAPI, GRO, backlog, up to the handover to a protocol.
    Receive,
    /// XDP, BPF programs of any kind and their helpers, AF_XDP.
    Bpf,
    /// Packet taps: AF_PACKET sockets and rings.
    Taps,
    /// Ethernet headers, VLAN, neighbours.
    Ethernet,
    Bridge,
    /// IPv4, IPv6, ICMP, routing.
    Ip,
    /// netfilter: nftables, iptables, NAT, connection tracking.
    Netfilter,
    /// TCP, UDP and their sockets.
    Transport,
    /// Transmit: device queues, qdiscs, drivers.
    Transmit,
    /// Getting, recycling and returning memory, page faults included.
    Memory,
    /// Copies of bytes.
    Copying,
    /// Taking locks and waiting for them.
    Locks,
    /// Choosing, switching and waking tasks.
    Scheduler,
    /// Timers and the tick.
    Timers,
    /// System calls, what belongs to no class above.
    Syscalls,
    /// Programs in user mode.
    User,
    /// Functions that no rule names.
    Unclassified,
    /// The idle loop.
    Idle,
    /// Taken by the hypervisor for other guests (from /proc/stat; no sample can see it).
    Steal,
}

impl Class {
    /// Every class, in the order of the enum.
    pub const ALL: [Self; 20] = [
        Self::Interrupts,
        Self::Receive,
        Self::Bpf,
        Self::Taps,
        Self::Ethernet,
        Self::Bridge,
        Self::Ip,
        Self::Netfilter,
        Self::Transport,
        Self::Transmit,
        Self::Memory,
        Self::Copying,
        Self::Locks,
        Self::Scheduler,
        Self::Timers,
        Self::Syscalls,
        Self::User,
        Self::Unclassified,
        Self::Idle,
        Self::Steal,
    ];

    /// The word in JSON and in the rule table.
    pub fn key(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Receive => "receive",
            Self::Bpf => "bpf",
            Self::Taps => "taps",
            Self::Ethernet => "ethernet",
            Self::Bridge => "bridge",
            Self::Ip => "ip",
            Self::Netfilter => "netfilter",
            Self::Transport => "transport",
            Self::Transmit => "transmit",
            Self::Memory => "memory",
            Self::Copying => "copying",
            Self::Locks => "locks",
            Self::Scheduler => "scheduler",
            Self::Timers => "timers",
            Self::Syscalls => "syscalls",
            Self::User => "user",
            Self::Unclassified => "unclassified",
            Self::Idle => "idle",
            Self::Steal => "steal",
        }
    }

    /// The class with that [`key`](Self::key).
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.key() == key)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Receive => "receive block",
            Self::Bpf => "XDP and BPF",
            Self::Taps => "packet taps",
            Self::Ethernet => "Ethernet",
            Self::Bridge => "bridge",
            Self::Ip => "IP",
            Self::Netfilter => "netfilter",
            Self::Transport => "TCP/UDP",
            Self::Transmit => "transmit block",
            Self::Memory => "memory management",
            Self::Copying => "copying",
            Self::Locks => "locks",
            Self::Scheduler => "scheduler",
            Self::Timers => "timers",
            Self::Syscalls => "system calls",
            Self::User => "user programs",
            Self::Unclassified => "unclassified",
            Self::Idle => "idle",
            Self::Steal => "steal",
        }
    }

    /// True if the CPU did something for us in this time.
    pub fn is_busy(self) -> bool {
        !matches!(self, Self::Idle | Self::Steal)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The divisor of a cost per packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketBase {
    /// The name of this count, such as `received by eth0 and eth1`.
    pub what: String,
    /// Packets while the profile was taken.
    pub packets: u64,
    /// Packets per second while the profile was taken.
    pub pps: f64,
}

/// Samples of one name: a kernel function, a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The function or program.
    pub name: String,
    pub samples: u64,
}

/// A class, over all cores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassShare {
    pub class: Class,
    /// Samples in it; 0 for steal, which no sample sees.
    pub samples: u64,
    /// Share of the time of all sampled cores, in percent.
    pub percent: f64,
    /// Two standard errors of [`percent`](Self::percent), for samples independent of each other, in percentage points.
    pub error: f64,
    /// Nanoseconds per packet of [`Profile::packets`]; none without traffic, and for idle and steal.
    pub ns_per_packet: Option<f64>,
    /// The functions (programs, for [`Class::User`]) in which the time was spent, dearest first.
    pub top: Vec<Named>,
}

/// Time spent on the locks that one function takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockCaller {
    /// The function that takes the lock.
    pub caller: String,
    /// The class that the caller itself belongs to.
    pub class: Class,
    pub samples: u64,
    /// Samples among them that waited for another core to release the lock.
    pub waiting: u64,
}

/// Work that the classes leave out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Excluded {
    pub what: String,
    /// Share of all time, in percent.
    pub percent: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreProfile {
    pub cpu: u32,
    pub samples: u64,
    /// Share of its time by class, in percent; classes without any are left out.
    pub percent: BTreeMap<Class, f64>,
    /// Idle by the kernel's own account (/proc/stat), in percent: to be laid beside the sampled share.
    pub stat_idle_percent: f64,
    /// Steal by the kernel's own account (/proc/stat), in percent.
    pub stat_steal_percent: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// Beginning of the profile (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    pub machine: Machine,
    /// Length of the profile, in seconds.
    pub seconds: f64,
    /// Samples per second and core that were asked for.
    pub frequency_hz: u32,
    /// Samples taken on all cores.
    pub samples: u64,
    /// Samples that were taken and could not be kept.
    pub lost: u64,
    /// Samples whose own function no rule names, so that the function that called it decided.
    #[serde(alias = "by_caller")]
    pub attributed_to_caller: u64,
    /// The divisor of a cost per packet; none without traffic to speak of.
    pub packets: Option<PacketBase>,
    /// The classes, dearest first; then unclassified, idle and steal.
    pub classes: Vec<ClassShare>,
    /// The takers of the locks, dearest first.
    pub locks: Vec<LockCaller>,
    /// The kernel functions in which samples were taken, dearest first, as `perf report --no-children` would list them. What is
    /// idle is not among them.
    pub functions: Vec<Named>,
    /// Functions that no rule names, whoever was charged for them.
    #[serde(alias = "unnamed")]
    pub unclassified_functions: Vec<Named>,
    /// Work that was to be left out of the classes and its share of all time in percent, such as that of a traffic generator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "left_out")]
    pub excluded: Option<Excluded>,
    pub cores: Vec<CoreProfile>,
    pub notes: Vec<String>,
}

/// A class of two profiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassDifference {
    pub class: Class,
    /// The class's share of all time in the first profile, in percent.
    pub a_percent: f64,
    /// The class's share of all time in the second profile, in percent.
    pub b_percent: f64,
    /// Two standard errors of the difference of these shares, in percentage points.
    pub percent_error: f64,
    /// The shares differ by more than that.
    pub percent_differs: bool,
    /// Nanoseconds per packet in the first profile.
    pub a_ns: Option<f64>,
    /// Nanoseconds per packet in the second.
    pub b_ns: Option<f64>,
    /// Two standard errors of the difference of the costs per packet, in nanoseconds; packets count as exact.
    pub ns_error: Option<f64>,
    /// The costs differ by more than that; none without packets in both.
    pub ns_differs: Option<bool>,
}

/// Two profiles side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The name of the first.
    pub a: String,
    /// The name of the second.
    pub b: String,
    /// Packets per second in the first and what they are.
    pub a_packets: Option<PacketBase>,
    /// Packets per second in the second and what they are.
    pub b_packets: Option<PacketBase>,
    /// The classes that either has, the largest difference first.
    pub classes: Vec<ClassDifference>,
    /// Reasons why the two are less comparable.
    pub notes: Vec<String>,
}

impl Profile {
    /// A profile without samples, of a machine, begun at `timestamp` (RFC 3339, UTC).
    pub fn new(timestamp: String, machine: Machine, frequency_hz: u32) -> Self {
        Self { timestamp, machine, frequency_hz, ..Self::default() }
    }

    pub fn class(&self, class: Class) -> Option<&ClassShare> {
        self.classes.iter().find(|c| c.class == class)
    }

    /// The percentage of all time spent in a class.
    pub fn percent(&self, class: Class) -> f64 {
        self.class(class).map_or(0.0, |c| c.percent)
    }

    /// The time that was neither idle nor stolen, in percent of all.
    pub fn busy_percent(&self) -> f64 {
        self.classes.iter().filter(|c| c.class.is_busy()).map(|c| c.percent).sum()
    }

    /// A class as a percentage of the busy time.
    pub fn percent_of_busy(&self, class: Class) -> f64 {
        let busy = self.busy_percent();
        if busy > 0.0 && class.is_busy() { 100.0 * self.percent(class) / busy } else { 0.0 }
    }

    /// The `n` dearest classes of the busy time, with their percentage of it; a class without samples is left out.
    pub fn dearest(&self, n: usize) -> Vec<(Class, f64)> {
        let busy = self.classes.iter().filter(|c| c.class.is_busy() && c.percent > 0.0);
        let mut shares: Vec<_> = busy.map(|c| (c.class, self.percent_of_busy(c.class))).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares.truncate(n);
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_serde_writes() {
        for class in Class::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.key());
            assert_eq!(Class::from_key(class.key()), Some(class));
        }
        assert!(Class::ALL.is_sorted());
    }
}
