//! Composition of an attack: kinds of packets, sources, source ports.

use std::{collections::HashMap, hash::Hash, net::IpAddr};

use rules::{
    Fragment, Match, Prefix, TcpFlags,
    packet::{Packet, Part},
};

use super::window::Counts;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Kinds of packets, of which each packet has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// TCP SYN without ACK.
    Syn,
    /// TCP SYN with ACK.
    SynAck,
    Tcp,
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    Other,
}

impl Kind {
    pub const ALL: [Self; 6] = [Self::Syn, Self::SynAck, Self::Tcp, Self::Udp, Self::Icmp, Self::Other];

    pub fn of(packet: &Packet) -> Self {
        match (packet.protocol, packet.tcp_flags) {
            (6, Some(flags)) if flags & (SYN | ACK) == SYN => Self::Syn,
            (6, Some(flags)) if flags & SYN != 0 => Self::SynAck,
            (6, _) => Self::Tcp,
            (17, _) => Self::Udp,
            (1 | 58, _) => Self::Icmp,
            _ => Self::Other,
        }
    }

    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Syn | Self::SynAck | Self::Tcp)
    }

    /// Returns the packets of `counts` that are of this kind.
    pub fn count(self, counts: &Counts) -> u64 {
        match self {
            Self::Syn => counts.syn,
            Self::SynAck => counts.syn_ack,
            Self::Tcp => counts.tcp,
            Self::Udp => counts.udp,
            Self::Icmp => counts.icmp,
            Self::Other => counts.other,
        }
    }

    /// The conditions of packets of this kind to `prefix`. [`Kind::Other`] has none but the prefix.
    pub fn conditions(self, prefix: Prefix) -> Match {
        let mut when = to(prefix);
        let flags = |value| Some(TcpFlags { mask: SYN | ACK, value });
        match self {
            Self::Syn => (when.protocol, when.tcp_flags) = (vec![6], flags(SYN)),
            Self::SynAck => (when.protocol, when.tcp_flags) = (vec![6], flags(SYN | ACK)),
            Self::Tcp => when.protocol = vec![6],
            Self::Udp => when.protocol = vec![17],
            Self::Icmp => when.protocol = vec![if prefix.address.is_ipv4() { 1 } else { 58 }],
            Self::Other => {}
        }
        when
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::Syn => "TCP SYN",
            Self::SynAck => "TCP SYN-ACK",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
            Self::Other => "packets",
        }
    }
}

/// The conditions of all packets to `prefix`.
pub fn to(prefix: Prefix) -> Match {
    Match { destination: vec![rules::Place::Prefix(prefix)], ..Match::default() }
}

/// The conditions of fragments to `prefix`.
pub fn fragments(prefix: Prefix, which: Fragment) -> Match {
    Match { fragment: Some(which), ..to(prefix) }
}

/// Values with their parts of the whole, the largest first; of equal ones the smaller value.
pub fn shares<T: Hash + Eq + Ord + Copy>(values: impl Iterator<Item = T>) -> Vec<(T, f64)> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    let mut all = 0usize;
    for value in values {
        *counts.entry(value).or_default() += 1;
        all += 1;
    }
    let mut shares: Vec<(T, f64)> = counts.into_iter().map(|(v, n)| (v, n as f64 / all as f64)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    shares
}

/// A source as it is limited and dropped: an IPv4 address, or the /64 of an IPv6 address, all of which one host has.
pub fn source_prefix(source: IpAddr) -> Prefix {
    match source {
        IpAddr::V4(_) => Prefix { address: source, len: 32 },
        IpAddr::V6(v6) => Prefix { address: IpAddr::V6((v6.to_bits() >> 64 << 64).into()), len: 64 },
    }
}

/// The sources of `samples`, heaviest first.
pub fn sources<'a>(samples: impl Iterator<Item = &'a Packet>) -> Vec<(Prefix, f64)> {
    shares(samples.map(|p| source_prefix(p.source)))
}

/// The source ports of the UDP among `samples`, heaviest first; later fragments have none and are left out.
pub fn udp_ports<'a>(samples: impl Iterator<Item = &'a Packet>) -> Vec<(u16, f64)> {
    shares(samples.filter(|p| p.protocol == 17).filter_map(|p| p.ports.map(|ports| ports.0)))
}

/// Returns the packets that `samples` stand for.
pub fn counts<'a>(samples: impl Iterator<Item = &'a Packet>) -> Counts {
    let mut counts = Counts::default();
    for packet in samples {
        counts.packets += 1;
        counts.bytes += u64::from(packet.len) + 14;
        match Kind::of(packet) {
            Kind::Syn => counts.syn += 1,
            Kind::SynAck => counts.syn_ack += 1,
            Kind::Tcp => counts.tcp += 1,
            Kind::Udp => counts.udp += 1,
            Kind::Icmp => counts.icmp += 1,
            Kind::Other => counts.other += 1,
        }
        counts.fragments += u64::from(packet.part != Part::Whole);
    }
    counts
}
