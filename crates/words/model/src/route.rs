//! A router's fast path: who forwards, what stands against it, what became of the frames.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::{
    route_event::{RouteEvent, RouteMoment},
    route_rates::{PortCounters, PortRates, ReasonRate, RouteRates},
    route_totals::RouteTotals,
};
use crate::{
    shield::{RuleStatus, Totals},
    units,
};

/// Who forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteMode {
    /// The kernel alone.
    #[default]
    Standard,
    /// The fast path what it can, the kernel the rest.
    Routed,
    /// The kernel; the fast path decides, and its decisions are compared with what the kernel did.
    Shadow,
}

impl RouteMode {
    /// All, as they are written.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Routed, Self::Shadow];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Routed => "routed",
            Self::Shadow => "shadow",
        }
    }
}

/// Something that the fast path cannot honour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// Its kind: `netfilter`, `qdisc`, `xfrm`, `master`, `stacked`, `forwarding`, `hash-policy`, `local-prefix`.
    pub code: String,
    /// The thing itself, in words.
    pub what: String,
    /// How to take it out of the way.
    pub remedy: String,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoutePort {
    /// The interface.
    pub interface: String,
    /// The mode of XDP in which the program runs.
    pub xdp: String,
    /// Frames can be sent out by it; if not, what is to leave by it goes up to the kernel.
    pub sends: bool,
    /// Since the start.
    pub totals: RouteTotals,
    /// What the interface itself has counted.
    #[serde(default)]
    pub counters: PortCounters,
}

/// What the shadow found: frames that would have left as the kernel sent them, and others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowResult {
    /// Left alike.
    pub same: u64,
    /// By another port, or in another VLAN.
    pub way: u64,
    /// With other MAC addresses.
    pub macs: u64,
    /// With other hops left.
    pub hop_limit: u64,
    /// The kernel did not send it by any port: it dropped it, or kept it.
    pub not_sent: u64,
    /// The first that differ, in words, with their first bytes in hexadecimal digits.
    pub examples: Vec<String>,
}

impl ShadowResult {
    /// Frames that were sent in another way than the kernel's.
    pub fn wrong(&self) -> u64 {
        self.way + self.macs + self.hop_limit
    }

    /// Frames compared.
    pub fn compared(&self) -> u64 {
        self.same + self.wrong() + self.not_sent
    }
}

/// Stateless rules before the fast path. They hold in every mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRulesStatus {
    /// The file.
    pub file: String,
    /// The time at which they came to hold, RFC 3339 in UTC.
    pub loaded: String,
    /// Reloads since the start.
    pub reloads: u64,
    /// Why the last reload was refused, if it was: the rules before it hold.
    pub refused: Option<String>,
    /// The verdict on packets that no rule decides about: pass or drop.
    pub default: String,
    /// The verdict on IP packets that are cut short or contradict themselves.
    pub malformed: String,
    /// They stay on the ports when the process ends.
    pub stays: bool,
    /// Ports on which they do not hold any more: removed, or the program was taken off by another tool.
    pub ended: Vec<String>,
    /// The rules in their order, those of the management allow-list first, with what all ports counted.
    pub rules: Vec<RuleStatus>,
    /// All frames that came in by the ports.
    pub totals: Totals,
}

/// In a sentence.
impl fmt::Display for ShadowResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.compared() == 0 {
            return f.write_str("shadow: no frame came that could be compared");
        }
        let others = [
            (self.way, "by another way"),
            (self.macs, "with other MAC addresses"),
            (self.hop_limit, "with other hops left"),
            (self.not_sent, "not sent by the kernel"),
        ];
        let others: Vec<String> = others
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", units::grouped(*count)))
            .collect();
        let others = if others.is_empty() { "none otherwise".to_owned() } else { others.join(", ") };
        let (same, compared) = (units::grouped(self.same), units::grouped(self.compared()));
        write!(f, "shadow: {same} of {compared} frames left as the kernel sent them, {others}")
    }
}

/// A router at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RouteStatus {
    /// The process.
    pub pid: u32,
    /// Seconds since the start.
    pub up_s: f64,
    /// Who forwards now.
    pub mode: RouteMode,
    /// Who is to.
    pub wanted: RouteMode,
    /// Why it is another one; none: it is not.
    pub held_back: Option<String>,
    /// What stands against the fast path.
    pub obstacles: Vec<Obstacle>,
    /// What next hops depend on beside the destination and the way in: `source`, `ports`, `tos`, `label`.
    pub key: Vec<String>,
    /// Functions of the kernel that cannot be followed: what they change is forgotten when netlink tells of it.
    pub unwatched: Vec<String>,
    /// The ports.
    pub ports: Vec<RoutePort>,
    /// What the shadow found, if it ran.
    pub shadow: Option<ShadowResult>,
    /// The rules before the fast path; none: it has none.
    #[serde(default)]
    pub rules: Option<RouteRulesStatus>,
    /// When this was (RFC 3339, UTC).
    #[serde(default)]
    pub when: String,
    /// What happened last, the newest at the end.
    #[serde(default)]
    pub events: Vec<RouteMoment>,
    /// What was done per second; none where no interval was measured.
    #[serde(default)]
    pub rates: Option<RouteRates>,
}

impl RouteStatus {
    /// All ports together.
    pub fn totals(&self) -> RouteTotals {
        let mut sum = RouteTotals::default();
        self.ports.iter().for_each(|port| sum += port.totals);
        sum
    }
}

/// What stands against the fast path on these ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCheck {
    /// The ports.
    pub ports: Vec<String>,
    /// In each mode that is not standard.
    pub obstacles: Vec<Obstacle>,
    /// Ports out of which nothing can be sent by the fast path.
    pub cannot_send: Vec<String>,
    /// What next hops depend on beside the destination and the way in.
    pub key: Vec<String>,
}
