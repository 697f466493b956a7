//! The loss ledger of a machine: every packet delivered or lost at a named station. The body of `evenkeel.ledger/1`.
//!
//! `offered = delivered + waiting + lost + unexplained`, for each direction and for both together. A packet is one socket buffer of
//! the stack or one frame of an interface; where one becomes several, or several one, an entry says so. What the kernel drops
//! without a loss (a reset that ended its connection), and copies for packet taps, stand beside the books.

use std::{
    fmt::{self, Write},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use crate::{Ledger, Loss, units};

/// The ways of the packets of one interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LedgerReport {
    /// The end of the interval (RFC 3339, UTC).
    pub timestamp: String,
    /// The length of the interval in seconds.
    pub interval_s: f64,
    pub hostname: String,
    pub kernel: String,
    /// The network namespace, as the inode number of /proc/PID/ns/net.
    pub netns: u32,
    /// The interfaces that were asked for; empty: all of the namespace.
    pub interfaces: Vec<String>,
    /// Packets that arrived or were made here: `receive.offered` and what `transmit` did not get from `receive`.
    pub offered: u64,
    /// Packets that reached a local reader or left by an interface.
    pub delivered: u64,
    /// Packets that neither arrived nor got lost yet: they wait for a neighbour's answer, in a queue, for the program behind a tun device.
    #[serde(default)]
    pub waiting: u64,
    /// Packets lost at all stations together.
    pub lost: u64,
    /// Packets among `lost` that a rule, a program or a route dropped on purpose.
    #[serde(default)]
    pub intended: u64,
    /// Copies for packet taps that were lost; the packets themselves went on. Not in `offered` and not in `lost`.
    #[serde(default)]
    pub copies_lost: u64,
    /// Offered packets that nothing explains; negative when more is explained than was offered.
    pub unexplained: i64,
    /// Packets from the wire to the socket, or to the hand-over to `transmit`.
    pub receive: Side,
    /// Packets from the sender, or the hand-over from `receive`, to the wire.
    pub transmit: Side,
    /// The stations in the order in which a packet meets them; only those that packets met.
    pub stations: Vec<Station>,
    /// The tracing of the causes; none when they were not traced.
    pub trace: Option<TraceShown>,
    /// Remarks: unread sources with the reason, counters that hold for more than the chosen interfaces.
    pub notes: Vec<String>,
}

/// A direction: packets offered at its beginning and delivered at its end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Side {
    /// The packets offered, by their source.
    pub offered: Vec<Entry>,
    /// The packets delivered, by their way.
    pub delivered: Vec<Entry>,
    /// Packets that wait, by what they wait for.
    #[serde(default)]
    pub waiting: Vec<Entry>,
    /// Packets lost at the stations of this direction.
    pub lost: u64,
    /// `offered` less `delivered` less `waiting` less `lost`.
    pub unexplained: i64,
}

impl Side {
    /// Packets offered, over all entries.
    pub fn offered_packets(&self) -> u64 {
        self.offered.iter().map(|e| e.packets).sum()
    }

    /// Packets delivered, over all entries.
    pub fn delivered_packets(&self) -> u64 {
        self.delivered.iter().map(|e| e.packets).sum()
    }

    /// Packets that wait, over all entries.
    pub fn waiting_packets(&self) -> u64 {
        self.waiting.iter().map(|e| e.packets).sum()
    }
}

/// A number of packets with its name and the counter it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the packets, such as `arrived on eth0` or `UDP sockets`.
    pub what: String,
    pub packets: u64,
    /// The counter, or how it was worked out of several.
    pub counter: String,
    /// The packets go from `receive` to `transmit` (forwarded, bridged), so that both sides have them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handed_over: bool,
}

/// The way of a packet that a station lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the wire to the socket.
    Receive,
    /// Received packets on their way to another interface.
    Forward,
    /// From the sender to the wire.
    Transmit,
}

impl Direction {
    pub fn word(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Forward => "forward",
            Self::Transmit => "transmit",
        }
    }
}

/// A place in the kernel that packets pass or end at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Station {
    /// Its name: `nic`, `xdp`, `softnet`, `taps`, `bridge`, `netfilter`, `conntrack`, `ip`, `tcp`, `udp`, `icmp`, `sockets`, `qdisc`, `transmit` …
    pub name: String,
    /// The way it lies on.
    pub direction: Direction,
    /// Packets that came in, where a counter says.
    pub packets_in: Option<u64>,
    /// Packets that went on, where a counter says.
    pub packets_out: Option<u64>,
    /// Packets lost here: those of `losses` whose kind is a loss.
    pub lost: u64,
    /// The packets that ended here, largest first.
    pub losses: Vec<StationLoss>,
}

/// Meaning of the end of packets at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    #[default]
    Lost,
    /// A rule, a program or a route dropped them on purpose.
    Intended,
    /// Nothing was lost: they had done their work, were answered, or repeated what had arrived already.
    Harmless,
    /// Copies for packet taps were lost; the packets themselves went on.
    Copy,
}

impl LossKind {
    /// True if the books count it as lost.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Lost | Self::Intended)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Intended => "by rule",
            Self::Harmless => "no loss",
            Self::Copy => "copies",
        }
    }
}

/// Packets that ended at one place of a station, for one reason.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StationLoss {
    /// Place and reason, such as `socket buffer full`.
    pub place: String,
    #[serde(default)]
    pub kind: LossKind,
    /// Lost packets: the counter's word, or the trace's where no counter exists.
    pub packets: u64,
    /// The part of all offered packets that this is (0 to 1).
    pub share_of_offered: f64,
    /// The counter it comes from; `traced` when only the kernel's drop reasons tell.
    pub counter: String,
    /// The number was traced because no counter exists.
    pub traced_only: bool,
    /// The trace's view of these packets; none when it did not run or cannot see them.
    pub traced: Option<u64>,
    /// Counter and trace tell the same, within the trace's precision. True when only one of them exists.
    pub agrees: bool,
    /// The causes by falling number of packets.
    pub causes: Vec<Cause>,
    pub advice: Option<String>,
    /// The flows of these packets; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// The reason of drops, in the kernel's own words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cause {
    /// The drop reason (`enum skb_drop_reason` without its prefix), such as `SOCKET_RCVBUFF`.
    pub reason: String,
    /// The kernel function that dropped, when the symbols can be read.
    pub function: Option<String>,
    /// The interface that the packet came from or went to.
    pub interface: Option<String>,
    /// The protocol: `IPv4`, `IPv6`, `ARP` or the ethertype in hexadecimal.
    pub protocol: Option<String>,
    /// The process that owns the socket, as `name[pid]`.
    pub process: Option<String>,
    /// The flow of the last packet that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<Flow>,
    pub packets: u64,
}

/// Sender and receiver of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// The protocol in IP: `TCP`, `UDP`, `ICMP` … or its number.
    pub protocol: String,
    pub source: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    pub destination: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
}

impl Flow {
    /// The protocol and where it went: `UDP 192.0.2.1:53`.
    pub fn target(&self) -> String {
        format!("{} {}", self.protocol, End(self.destination, self.destination_port))
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (End(self.source, self.source_port), End(self.destination, self.destination_port));
        write!(f, "{} {from} > {to}", self.protocol)
    }
}

/// An address, with its port if it has one.
struct End(IpAddr, Option<u16>);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (IpAddr::V6(address), Some(port)) => write!(f, "[{address}]:{port}"),
            (address, Some(port)) => write!(f, "{address}:{port}"),
            (address, None) => address.fmt(f),
        }
    }
}

/// The flows whose packets ended at a place, from those that were looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Details {
    /// Destinations of the packets, most packets first: `UDP 192.0.2.1:53`.
    pub targets: Vec<Share>,
    /// Senders of the packets, most packets first.
    pub sources: Vec<Share>,
    pub sample: Option<Sample>,
    /// The kernel's functions that led to the drop of that one, innermost first.
    pub stack: Vec<String>,
}

/// A part of the packets that ended at a place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Share {
    pub what: String,
    pub packets: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The packet in a line: addresses, ports, what it carries.
    pub text: String,
    /// Length of the packet in bytes.
    pub length: u32,
    /// First bytes of the packet, in hexadecimal.
    pub hex: String,
    /// Offset of its network header in them; before it stands the link's.
    pub network_header: usize,
}

impl Cause {
    /// The cause in words: `SOCKET_RCVBUFF in udp_queue_rcv_one_skb, eth0, IPv4, named[812]`.
    pub fn words(&self) -> String {
        let mut text = self.reason.clone();
        if let Some(function) = &self.function {
            let _ = write!(text, " in {function}");
        }
        if let Some(example) = &self.example {
            let _ = write!(text, ", e.g. {example}");
        }
        for more in [&self.interface, &self.protocol, &self.process].into_iter().flatten() {
            let _ = write!(text, ", {more}");
        }
        text
    }
}

/// The tracing of drop reasons, and its cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TraceShown {
    /// Dropped packets that the tracepoint reported, machine-wide.
    pub events: u64,
    /// Drops of this network namespace among them (scaled).
    #[serde(default)]
    pub in_namespace: u64,
    /// Drops that were examined; the others are estimated from these.
    pub examined: u64,
    /// CPU time that the trace took, in nanoseconds.
    pub cost_ns: u64,
    /// The same as a share of the machine's CPU time (0 to 1).
    pub cost_share: f64,
    /// Sampling rate at the end: one drop in this many was examined; 1: every one.
    pub sampling: u32,
    /// Drops came so fast that the trace took samples.
    pub sampled: bool,
    /// The precision that remains, as a share of the traced packets (95 % of cases); 0 when every drop was looked at.
    pub precision: f64,
}

impl LedgerReport {
    /// The losses, flat, in the order of the stations: for those who want one short ledger.
    pub fn ledger(&self) -> Ledger {
        let losses = self.stations.iter().flat_map(|s| {
            s.losses
                .iter()
                .filter(|l| l.kind.is_loss())
                .map(|l| Loss { place: format!("{}: {} ({})", s.name, l.place, l.counter), packets: l.packets })
        });
        Ledger {
            offered: self.offered,
            offered_by: "arrived and made here".into(),
            delivered: self.delivered + self.waiting,
            losses: losses.collect(),
        }
    }

    /// Packets that were lost and that nobody meant to drop.
    pub fn lost_unintended(&self) -> u64 {
        self.lost.saturating_sub(self.intended)
    }

    /// The losses of a side in two parts: packets that were dropped on purpose, and those that were lost. What ends between two interfaces
    /// belongs to the side of reception, as in its books.
    pub fn dropped_and_lost(&self, direction: Direction) -> [u64; 2] {
        let sends = direction == Direction::Transmit;
        let lost = if sends { self.transmit.lost } else { self.receive.lost };
        let stations = self.stations.iter().filter(|s| (s.direction == Direction::Transmit) == sends);
        let intended = stations.flat_map(|s| &s.losses).filter(|l| l.kind == LossKind::Intended).map(|l| l.packets);
        let intended = intended.sum::<u64>().min(lost);
        [intended, lost - intended]
    }

    /// The answer in a sentence or two.
    pub fn sentence(&self) -> String {
        let share = |n: u64| units::percent(if self.offered == 0 { 0.0 } else { n as f64 / self.offered as f64 });
        let counted = |n: u64| format!("{} ({})", units::grouped(n), share(n));
        let mut parts = vec![format!("{} were delivered", counted(self.delivered))];
        if self.waiting > 0 {
            parts.push(format!("{} still wait", counted(self.waiting)));
        }
        if self.intended > 0 {
            parts.push(format!("{} were dropped on purpose", counted(self.intended)));
        }
        parts.push(format!("{} were lost", counted(self.lost_unintended())));
        let last = parts.pop().unwrap_or_default();
        let mut text = format!("Of {} packets, {} and {last}", units::grouped(self.offered), parts.join(", "));
        match self.unexplained {
            0 => text.push('.'),
            n => {
                let sign = if n < 0 { "-" } else { "" };
                let n = units::grouped(n.unsigned_abs());
                let _ = write!(text, "; {sign}{n} ({}) are unexplained.", units::percent(self.unexplained_ratio()));
            }
        }
        let all = || self.stations.iter().flat_map(|s| s.losses.iter().map(move |l| (s, l)));
        let most = |kind| all().filter(|(_, l)| l.kind == kind).max_by_key(|(_, l)| l.packets);
        if let Some((station, loss)) = most(LossKind::Lost).or_else(|| most(LossKind::Intended)) {
            let verb = if loss.kind == LossKind::Lost { "lost" } else { "dropped" };
            let _ = write!(text, " Most were {verb} at {}: {} ({}).", station.name, loss.place, share(loss.packets));
        }
        text
    }

    /// The packets that ended without a loss, in a sentence; none when nothing did.
    pub fn beside(&self) -> Option<String> {
        let of = |kind| {
            let here = self.stations.iter().flat_map(|s| &s.losses).filter(|l| l.kind == kind);
            here.map(|l| l.packets).sum::<u64>()
        };
        let mut parts = Vec::new();
        let harmless = self.stations.iter().flat_map(|s| &s.losses).filter(|l| l.kind == LossKind::Harmless);
        let why = match harmless.collect::<Vec<_>>().as_slice() {
            [only] => format!(": {}", only.place),
            _ => " (see `no loss`)".to_owned(),
        };
        match of(LossKind::Harmless) {
            0 => {}
            1 => parts.push(format!("1 packet ended without a loss{why}")),
            n => parts.push(format!("{} packets ended without a loss{why}", units::grouped(n))),
        }
        if self.copies_lost > 0 {
            let n = units::grouped(self.copies_lost);
            parts.push(format!("{n} copies for packet taps were lost, while the packets themselves went on"));
        }
        (!parts.is_empty()).then(|| format!("Besides, {}.", parts.join("; ")))
    }

    /// The unexplained part as a share of the offered packets, by its absolute value. 0 when nothing was offered.
    pub fn unexplained_ratio(&self) -> f64 {
        if self.offered == 0 { 0.0 } else { self.unexplained.unsigned_abs() as f64 / self.offered as f64 }
    }

    /// True if no packet moved and none was lost.
    pub fn is_quiet(&self) -> bool {
        self.offered == 0 && self.lost == 0 && self.waiting == 0 && self.copies_lost == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_ledger() {
        let loss = StationLoss {
            place: "buffer full".into(),
            counter: "RcvbufErrors".into(),
            packets: 4,
            ..StationLoss::default()
        };
        let station = Station {
            name: "udp".into(),
            direction: Direction::Receive,
            packets_in: None,
            packets_out: None,
            lost: 4,
            losses: vec![loss],
        };
        let report = LedgerReport {
            offered: 10,
            delivered: 5,
            lost: 4,
            unexplained: 1,
            stations: vec![station],
            ..LedgerReport::default()
        };
        let ledger = report.ledger();
        assert_eq!((ledger.unexplained(), ledger.lost()), (1, 4));
        assert_eq!(ledger.losses[0].place, "udp: buffer full (RcvbufErrors)");
        assert!((report.unexplained_ratio() - 0.1).abs() < 1e-12 && !report.is_quiet());
    }
}
