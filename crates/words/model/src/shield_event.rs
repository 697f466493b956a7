//! The shield's events about attacks: one event, one line of JSON (`evenkeel.shield.event/1`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A rate per protected prefix that has a limit. Packets per second but for [`Measure::Bits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    Packets,
    /// Bits per second of frames without FCS.
    Bits,
    /// TCP SYN without ACK.
    Syn,
    /// TCP SYN with ACK.
    SynAck,
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    Fragments,
    /// Packets of flows that were not seen lately.
    NewFlows,
}

impl Measure {
    /// All of them, in their order.
    pub const ALL: [Self; 8] =
        [Self::Packets, Self::Bits, Self::Syn, Self::SynAck, Self::Udp, Self::Icmp, Self::Fragments, Self::NewFlows];

    /// Name of the measure in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bits => "bits",
            Self::Syn => "syn",
            Self::SynAck => "syn-ack",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Fragments => "fragments",
            Self::NewFlows => "new-flows",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The class that an attack seems to be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttackClass {
    /// A few sources send most of it.
    FewSources,
    /// Connections are begun from many sources and not gone on with.
    SynFlood,
    /// Answers that nobody asked for, over UDP, from few source ports.
    Reflection,
    Fragments,
    Unknown,
}

impl AttackClass {
    pub const ALL: [Self; 5] = [Self::FewSources, Self::SynFlood, Self::Reflection, Self::Fragments, Self::Unknown];

    /// Name of the class in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::FewSources => "few-sources",
            Self::SynFlood => "syn-flood",
            Self::Reflection => "reflection",
            Self::Fragments => "fragments",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for AttackClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShieldEvent {
    /// The time of the event, RFC 3339 in UTC.
    pub timestamp: String,
    /// Number of the attack since the shield started, from 1.
    pub attack: u64,
    pub prefix: String,
    /// The attack's class as now believed.
    pub class: AttackClass,
    /// Time since the first look that was above a limit, in seconds.
    pub since_s: f64,
    /// The kind of event, with its details.
    #[serde(flatten)]
    pub what: Happened,
}

/// The kind of event, with its details.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happened {
    Began(Picture),
    /// The attack became one of another class; its ladder begins anew.
    Reclassified {
        from: AttackClass,
        /// The attack as it looks now.
        now: Picture,
    },
    /// Rules are to hold from now on.
    Mitigating {
        /// Step of the ladder, from 1.
        step: usize,
        steps: usize,
        shadow: bool,
        rules: Vec<String>,
        /// Action of the rules, in words.
        action: String,
    },
    /// The effect that the rules would have had.
    Shadowed {
        /// Step of the ladder, from 1.
        step: usize,
        /// Packets per second that they would have applied to.
        would_apply_pps: f64,
        /// Share of the traffic of sources known before the attack that they would have applied to, 0 to 1; none: no such source was seen meanwhile.
        legitimate_share: Option<f64>,
        /// Packets of such sources among those that were looked at.
        legitimate_seen: u64,
        /// True if the rules act from now on; otherwise the next step follows.
        enforced: bool,
    },
    /// All steps are taken, and more than the limit still comes through.
    Exhausted {
        /// Packets per second that no mitigation touched.
        unmitigated_pps: f64,
    },
    /// The attack is over; its rules are withdrawn.
    Ended {
        /// Time from the first to the last look above a limit, in seconds.
        duration_s: f64,
        /// The highest rate of packets, per second.
        peak_pps: f64,
        /// The highest rate of bits, per second.
        peak_bps: f64,
        /// Packets to the prefix while it lasted.
        packets: u64,
        /// The rules that are withdrawn.
        rules: Vec<String>,
    },
}

impl Happened {
    /// Name of the event, as in `event` of the JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Began(_) => "began",
            Self::Reclassified { .. } => "reclassified",
            Self::Mitigating { .. } => "mitigating",
            Self::Shadowed { .. } => "shadowed",
            Self::Exhausted { .. } => "exhausted",
            Self::Ended { .. } => "ended",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Picture {
    /// Rates that are above their limits.
    pub exceeded: Vec<Exceeded>,
    pub pps: f64,
    pub bps: f64,
    /// Distinct sources in one look, by a sketch.
    pub sources: f64,
    /// The heaviest sources, heaviest first.
    pub top_sources: Vec<Share>,
    /// The source ports that most UDP comes from.
    pub top_ports: Vec<Share>,
}

/// A rate above its limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exceeded {
    pub measure: Measure,
    /// The rate, per second.
    pub rate: f64,
    /// The limit, per second.
    pub limit: f64,
    /// The limit was learned rather than configured.
    pub learned: bool,
    /// The limit is what the machine takes in with the CPU time that it may spend on packets, and neither learned nor configured.
    #[serde(default)]
    pub headroom: bool,
}

/// Something's part of the traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The address or the port.
    pub name: String,
    /// Part of all packets, 0 to 1.
    pub share: f64,
}
