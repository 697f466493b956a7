//! Classification of attacks.

use model::shield_event::AttackClass;
use rules::{
    Prefix,
    packet::{Packet, Part},
};

use super::{
    mix::{self, Kind},
    window::Counts,
};

/// Sources that are still few.
pub const FEW_SOURCES_MAX: usize = 16;
/// A part of the whole that decides what the whole is called.
const MAJORITY_SHARE: f64 = 0.5;
/// The part of the attack that its few sources, or its ports, must make up.
const HEAVY_SHARE_MIN: f64 = 0.6;
/// A source or a port below this part is not one of the heavy ones.
const HEAVY_MIN: f64 = 0.02;
/// Fewer samples say nothing about sources and ports.
pub(super) const SAMPLES_MIN: usize = 30;

/// UDP services that answer to whoever seems to ask, with more than was asked (CISA alert TA14-017A and its successors).
const AMPLIFIERS: [u16; 28] = [
    17, 19, 53, 69, 111, 123, 137, 161, 177, 389, 427, 500, 520, 623, 1194, 1434, 1900, 3283, 3389, 3478, 3702, 5093,
    5351, 5353, 5683, 10001, 11211, 37810,
];
/// QUIC: most of what a client receives comes from here.
const QUIC: u16 = 443;

/// The class of an attack, and the kind of its packets.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub class: AttackClass,
    /// The kind that most of its packets are of; [`Kind::Other`] if no kind is.
    pub kind: Kind,
    /// Fragments are a part of it that matters.
    pub fragments: bool,
    /// Its heavy sources, heaviest first, [`FEW_SOURCES_MAX`] at most, with their parts of it.
    pub sources: Vec<(Prefix, f64)>,
    /// Source ports of a reflection.
    pub ports: Vec<u16>,
    /// TCP or UDP is a part of it that matters: what could be of a connection.
    pub connects: bool,
    /// Sources have been remembered for long enough to tell strangers by.
    pub remembers: bool,
}

impl Finding {
    /// The key of the rules against the attack: its class, and where that does not name the kind of its packets, their kind.
    pub fn form(&self) -> (AttackClass, Kind) {
        match self.class {
            AttackClass::FewSources | AttackClass::Unknown => (self.class, self.kind),
            AttackClass::SynFlood | AttackClass::Reflection | AttackClass::Fragments => (self.class, Kind::Other),
        }
    }
}

/// Fragments of 1480 bytes that a datagram of 65,535 bytes has.
const FRAGMENTS_MAX: usize = 45;

/// Classifies what is too much: `excess` is what came beyond what is usual, `samples` are packets of the prefix.
pub fn classify(excess: &Counts, samples: &[Packet]) -> Finding {
    let all = Kind::ALL.iter().map(|k| k.count(excess)).sum::<u64>().max(1) as f64;
    let kind = Kind::ALL.into_iter().max_by_key(|k| k.count(excess)).unwrap_or(Kind::Other);
    let kind = if kind.count(excess) as f64 / all >= MAJORITY_SHARE { kind } else { Kind::Other };
    let fragment_part = excess.fragments as f64 / all;
    let is_its = |p: &&Packet| kind == Kind::Other || Kind::of(p) == kind;
    let its: Vec<&Packet> = samples.iter().filter(is_its).collect();
    let enough = its.len() >= SAMPLES_MIN;

    let mut sources = mix::sources(its.iter().copied());
    sources.truncate(FEW_SOURCES_MAX);
    sources.retain(|s| enough && s.1 >= HEAVY_MIN);
    let few = sources.iter().map(|s| s.1).sum::<f64>() >= HEAVY_SHARE_MIN;

    let ports = if kind == Kind::Udp { reflecting(&its, few) } else { Vec::new() };
    let class = if !ports.is_empty() {
        AttackClass::Reflection
    } else if few {
        AttackClass::FewSources
    } else if fragment_part >= MAJORITY_SHARE {
        AttackClass::Fragments
    } else if kind == Kind::Syn {
        AttackClass::SynFlood
    } else {
        AttackClass::Unknown
    };
    let connecting = excess.syn + excess.syn_ack + excess.tcp + excess.udp;
    let connects = connecting as f64 / all >= 0.1;
    Finding { class, kind, fragments: fragment_part >= 0.1, sources, ports, connects, remembers: false }
}

/// The source ports of a reflection; empty if it is none.
fn reflecting(udp: &[&Packet], few_sources: bool) -> Vec<u16> {
    // Of a flood of fragments, whole datagrams are somebody else's: what it comes from the first parts say.
    let is_later = |p: &&&Packet| p.part == Part::Later;
    let in_parts = udp.iter().filter(is_later).count() * 2 > udp.len();
    let of_it = || udp.iter().filter(|p| if in_parts { p.part == Part::First } else { p.part != Part::Later });
    // Fewer first parts than a flood of the longest datagrams would have are somebody else's, too.
    let with_ports = of_it().count();
    if with_ports < SAMPLES_MIN || with_ports * FRAGMENTS_MAX < udp.len() {
        return Vec::new();
    }
    let shares = mix::udp_ports(of_it().copied());
    let known = shares.iter().filter(|(port, part)| AMPLIFIERS.contains(port) && *part >= HEAVY_MIN);
    // A port that nobody knows as an amplifier counts when it alone is most of it; of few sources it would be an ordinary flow.
    let unknown = shares
        .iter()
        .filter(|(port, part)| !few_sources && !AMPLIFIERS.contains(port) && *port != QUIC && *part >= HEAVY_SHARE_MIN);
    let found: Vec<(u16, f64)> = known.chain(unknown).copied().collect();
    if found.iter().map(|f| f.1).sum::<f64>() >= HEAVY_SHARE_MIN {
        found.into_iter().map(|f| f.0).collect()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn datagram(source: u32, part: Part, ports: Option<(u16, u16)>) -> Packet {
        Packet {
            source: Ipv4Addr::from_bits(source).into(),
            destination: Ipv4Addr::new(198, 18, 0, 7).into(),
            ports,
            len: 1500,
            vlan: None,
            protocol: 17,
            tcp_flags: None,
            icmp_type: None,
            part,
            dscp: 0,
            known: rules::known::Known::default(),
            ip_at: 14,
            transport_at: 34,
        }
    }

    fn class(samples: &[Packet]) -> AttackClass {
        classify(&mix::counts(samples.iter()), samples).class
    }

    #[test]
    fn whole_datagrams_beside_a_flood_of_fragments_make_it_no_reflection() {
        // A client's answers of a name server are most of what has ports.
        let client = (0..100).map(|_| datagram(1, Part::Whole, Some((53, 4000))));
        let flood = (0..300).map(|i| datagram(0x0a00_0000 + i * 7919, Part::Later, None));
        let samples: Vec<Packet> = client.clone().chain(flood.clone()).collect();
        assert_eq!(class(&samples), AttackClass::Fragments);
        // First parts from such a port, as many as their datagrams have: it is one.
        let first = (0..100).map(|i| datagram(0x0a00_0000 + i * 7919, Part::First, Some((53, 4000))));
        let samples: Vec<Packet> = client.chain(flood).chain(first).collect();
        assert_eq!(class(&samples), AttackClass::Reflection);
    }
}
