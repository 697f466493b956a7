//! A router's fast path: who forwards, what stands against it, what became of the frames.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    CpuSet,
    shield::{RuleStatus, Totals},
    units,
};
pub use crate::{
    route_event::{RouteEvent, RouteMoment},
    route_rates::{PortCounters, PortRates, ReasonRate, RouteRates},
    route_totals::{RouteLost, RouteTotals},
};

/// Mode of forwarding: who forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteMode {
    #[default]
    Standard,
    /// The fast path what it can, the kernel the rest.
    Routed,
    /// The fast path what belongs to established connections that a rule of nftables marked, translated where they are; the kernel the rest.
    Stateful,
    /// The kernel; the fast path decides, and its decisions are compared with what the kernel did.
    Shadow,
}

impl RouteMode {
    /// All, as they are written.
    pub const ALL: [Self; 4] = [Self::Standard, Self::Routed, Self::Stateful, Self::Shadow];

    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Routed => "routed",
            Self::Stateful => "stateful",
            Self::Shadow => "shadow",
        }
    }
}

/// Conntrack mark of the connections that mode stateful forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CtMark {
    /// The value of the bits of `mask`.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Default for CtMark {
    /// A bit that common tools leave alone.
    fn default() -> Self {
        Self { value: 0x1000_0000, mask: 0x1000_0000 }
    }
}

impl std::fmt::Display for CtMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.value == self.mask {
            true => write!(f, "{:#x}", self.value),
            false => write!(f, "{:#x}/{:#x}", self.value, self.mask),
        }
    }
}

impl std::str::FromStr for CtMark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            let digits =
                part.strip_prefix("0x").map_or_else(|| part.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok());
            digits.ok_or_else(|| format!("`{part}` is no number of 32 bits, such as 0x10000000"))
        };
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value)?, number(mask)?),
            None => (number(text)?, number(text)?),
        };
        match (value, value & !mask) {
            (0, _) => Err("a mark without a bit is every connection's; name one bit at least".to_owned()),
            (_, 0) => Ok(Self { value, mask }),
            _ => Err(format!("the mark {value:#x} has bits that the mask {mask:#x} leaves out")),
        }
    }
}

/// Something that the fast path cannot honour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// Its kind: `netfilter`, `qdisc`, `xfrm`, `master`, `stacked`, `forwarding`, `hash-policy`, `local-prefix`, `tc`, `lro`, `tags`, `jumbo`,
    /// `xdp`; in mode stateful `consent`, `zones`, `fwmark`, `conntrack`, `kernel`; of notes `tcp-window`, `acct`, `passed-by`, `rps`, `partial-checksum`,
    /// `merged`, `exit-unknown`, `trial`.
    pub code: String,
    /// The thing itself, in words.
    pub what: String,
    /// Command or setting that removes it.
    pub remedy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoutePort {
    pub interface: String,
    /// The mode of XDP in which the program runs.
    pub xdp: String,
    /// Frames can be sent out by it; if not, what is to leave by it goes up to the kernel.
    pub can_transmit: bool,
    pub totals: RouteTotals,
    /// Times that the program was put back into its place in the chain, which others had emptied.
    #[serde(default)]
    pub reattached: u64,
    /// Counters of the interface itself.
    #[serde(default)]
    pub counters: PortCounters,
    /// Losses on the way to the CPUs that forward; none: no frames change their CPU, or this kernel does not count them.
    pub lost: Option<RouteLost>,
    /// Counters by CPU, while others than the receiving one forward.
    #[serde(default)]
    pub cpus: Vec<RouteCpu>,
}

/// Counters of a CPU for a port's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCpu {
    pub cpu: u32,
    /// Frames that it received and put into the queue of another CPU.
    pub enqueued: u64,
    /// Frames that it took out of its queue.
    pub dequeued: u64,
    /// Frames that it forwarded by the fast path.
    pub forwarded: u64,
}

/// Result of the shadow: frames that would have left as the kernel sent them, and others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowResult {
    pub same: u64,
    /// Frames that would have left by another port, or in another VLAN.
    pub output: u64,
    /// Frames that would have left with other MAC addresses.
    pub macs: u64,
    /// Frames that would have left with another hop limit.
    pub hop_limit: u64,
    /// The kernel did not send it by any port: it dropped it, or kept it.
    pub not_sent: u64,
    /// The first that differ, in words, with their first bytes in hexadecimal digits.
    pub examples: Vec<String>,
}

impl ShadowResult {
    /// Frames that were sent in another way than the kernel's.
    pub fn wrong(&self) -> u64 {
        self.output + self.macs + self.hop_limit
    }

    /// Why a trial with this result failed; none: it passed, or there was nothing to compare. A frame that the kernel does not send may have been lost in a
    /// queue, or dropped by a rule: the trial fails by these where they are more than those that left alike.
    pub fn objection(&self) -> Option<String> {
        let compared = self.compared();
        if self.wrong() > 0 {
            return Some(format!(
                "the kernel sent {} of {compared} frames another way than the fast path would",
                self.wrong()
            ));
        }
        (self.not_sent > self.same).then(|| {
            format!(
                "the kernel did not send {} of {compared} frames that the fast path would have forwarded",
                self.not_sent
            )
        })
    }

    pub fn compared(&self) -> u64 {
        self.same + self.wrong() + self.not_sent
    }
}

/// Stateless rules before the fast path. They hold in every mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRulesStatus {
    pub file: String,
    /// The time at which they came to hold, RFC 3339 in UTC.
    pub loaded: String,
    pub reloads: u64,
    /// Reason why the last reload was refused, if it was: the rules before it hold.
    pub reload_error: Option<String>,
    /// The verdict on packets that no rule decides about: pass or drop.
    pub default: String,
    /// The verdict on IP packets that are cut short or contradict themselves.
    pub malformed: String,
    /// True if the rules stay on the ports when the process ends.
    pub pinned: bool,
    /// Ports on which they do not hold any more: removed, or the program was taken off by another tool.
    pub detached_ports: Vec<String>,
    /// The rules in their order, those of the management allow-list first, with what all ports counted.
    pub rules: Vec<RuleStatus>,
    /// All frames that came in by the ports.
    pub totals: Totals,
}

/// The result in a sentence.
impl fmt::Display for ShadowResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.compared() == 0 {
            return f.write_str("shadow: no frame to compare yet");
        }
        let others = [
            (self.output, "by another port or VLAN"),
            (self.macs, "with other MAC addresses"),
            (self.hop_limit, "with another hop limit"),
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
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_s: f64,
    pub mode: RouteMode,
    pub requested: RouteMode,
    /// Reason why the mode is not the requested one; none: it is.
    pub fallback: Option<String>,
    pub obstacles: Vec<Obstacle>,
    /// Fields that next hops depend on beside destination and input port: `source`, `ports`, `tos`, `label`.
    pub fib_key: Vec<String>,
    /// Remarks: risks of mode stateful, and what works against the CPUs that forward.
    #[serde(default)]
    pub notes: Vec<Obstacle>,
    /// Functions of the kernel that cannot be followed: what they change is forgotten when netlink tells of it.
    pub untraced: Vec<String>,
    pub ports: Vec<RoutePort>,
    /// The CPUs that forward; none: the cores that receive.
    pub cpus: Option<CpuSet>,
    /// Result of the shadow, if it ran.
    pub shadow: Option<ShadowResult>,
    /// The fast path forwards after a trial in which no frame came: nothing was compared.
    #[serde(default)]
    pub unverified: bool,
    /// The rules before the fast path; none: it has none.
    pub rules: Option<RouteRulesStatus>,
    /// Time of the status (RFC 3339, UTC).
    #[serde(default)]
    pub timestamp: String,
    /// The last events, the newest at the end.
    #[serde(default)]
    pub events: Vec<RouteMoment>,
    /// Rates; none where no interval was measured.
    pub rates: Option<RouteRates>,
}

impl RouteStatus {
    pub fn totals(&self) -> RouteTotals {
        let mut sum = RouteTotals::default();
        self.ports.iter().for_each(|port| sum += port.totals);
        sum
    }
}

/// Obstacles for the fast path on some ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCheck {
    pub ports: Vec<String>,
    /// The mode that was asked about.
    #[serde(default = "routed")]
    pub mode: RouteMode,
    pub obstacles: Vec<Obstacle>,
    /// Remarks that do not keep the fast path off: risks for the operator.
    #[serde(default)]
    pub notes: Vec<Obstacle>,
    /// Ports out of which nothing can be sent by the fast path.
    pub cannot_transmit: Vec<String>,
    /// Fields that next hops depend on beside destination and input port.
    pub fib_key: Vec<String>,
}

impl RouteCheck {
    /// True if there is a port out of which the fast path can send.
    pub fn can_forward(&self) -> bool {
        self.ports.iter().any(|port| !self.cannot_transmit.contains(port))
    }
}

fn routed() -> RouteMode {
    RouteMode::Routed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_passes_where_frames_left_alike() {
        let of =
            |same, output, not_sent| ShadowResult { same, output, not_sent, ..ShadowResult::default() }.objection();
        assert_eq!([of(0, 0, 0), of(5, 0, 0), of(5, 0, 5)], [None, None, None]);
        assert!(of(5, 1, 0).unwrap().starts_with("the kernel sent 1 of 6 frames another way"));
        assert!(of(0, 0, 183).unwrap().starts_with("the kernel did not send 183 of 183 frames"));
        assert!(of(4, 0, 5).is_some());
    }

    #[test]
    fn a_mark_is_read_as_it_is_written() {
        let mark = |text: &str| text.parse::<CtMark>();
        assert_eq!(mark("0x10000000").unwrap(), CtMark::default());
        assert_eq!(mark("8").unwrap(), CtMark { value: 8, mask: 8 });
        for text in ["0x8", "0x10/0xf0", "0x10000000"] {
            assert_eq!(mark(text).unwrap().to_string(), text);
        }
        for text in ["", "0", "x", "0x10/0x0f", "0/0xff", "1/", "0x100000000"] {
            assert!(mark(text).is_err(), "{text}");
        }
    }
}
