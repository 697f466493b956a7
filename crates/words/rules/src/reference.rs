//! Meaning of the rules, as plainly as possible: each rule in turn, each condition in turn. Everything faster is tested against it.

use crate::{
    compile::Now,
    packet::{Packet, Parsed, Part},
    rule::{Action, Fragment, Match, Place, Prefix, Rules, Verdict},
};

/// The treatment of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Pass,
    Drop,
    /// A TCP SYN is answered by a cookie; other packets pass when their source or connection is known or their cookie right.
    Challenge,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => Self::Pass,
            Verdict::Drop => Self::Drop,
        }
    }
}

/// The verdict on a packet, and its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The rule that decides; none: the default, or the frame is malformed or not IP.
    pub rule: Option<usize>,
    pub outcome: Outcome,
    /// Every rule that counts the packet, in order: the one that decides, and before it shadow rules and limits that apply.
    pub counted: Vec<usize>,
}

impl Decision {
    /// No rule had a say.
    pub fn undecided(outcome: Outcome) -> Self {
        Self { rule: None, outcome, counted: Vec::new() }
    }
}

/// The verdict on a frame while no limit is exceeded.
pub fn decide_frame(rules: &Rules, frame: &[u8], now: Now) -> Decision {
    match Packet::parse(frame) {
        Parsed::Ip(packet) => decide(rules, &packet, now),
        Parsed::NotIp => Decision::undecided(Outcome::Pass),
        Parsed::Malformed(_) => Decision::undecided(rules.malformed.into()),
    }
}

/// The verdict on a packet while no limit is exceeded.
pub fn decide(rules: &Rules, packet: &Packet, now: Now) -> Decision {
    decide_with(rules, packet, now, |_, _| false)
}

/// Verdict on a packet; `exceeds` tells of a limit, by its rule's number, whether the packet is beyond its rate.
pub fn decide_with(
    rules: &Rules,
    packet: &Packet,
    now: Now,
    mut exceeds: impl FnMut(usize, &Packet) -> bool,
) -> Decision {
    let mut counted = Vec::new();
    // The first challenge that yields to what comes behind it.
    let mut challenger = None;
    for (number, rule) in rules.rules.iter().enumerate() {
        if rule.expires.is_some_and(|at| at <= now.wall) || !applies(rules, &rule.when, packet) {
            continue;
        }
        counted.push(number);
        if rule.shadow {
            continue;
        }
        if rule.yields {
            challenger = challenger.or(Some(number));
            continue;
        }
        let outcome = match rule.action {
            Action::Pass => Outcome::Pass,
            Action::Drop => Outcome::Drop,
            Action::Limit(_) if exceeds(number, packet) => Outcome::Drop,
            Action::Limit(_) => continue,
            Action::Challenge => Outcome::Challenge,
        };
        return match challenger {
            Some(challenger) if outcome == Outcome::Pass => {
                Decision { rule: Some(challenger), outcome: Outcome::Challenge, counted }
            }
            _ => Decision { rule: Some(number), outcome, counted },
        };
    }
    match challenger {
        Some(challenger) if rules.default == Verdict::Pass => {
            Decision { rule: Some(challenger), outcome: Outcome::Challenge, counted }
        }
        _ => Decision { rule: None, outcome: rules.default.into(), counted },
    }
}

/// The protected prefix that the packet's destination belongs to: the longest that holds it, of equal ones the first.
pub fn protected(rules: &Rules, packet: &Packet) -> Option<usize> {
    let holding = rules.protected.iter().enumerate().filter(|(_, prefix)| holds(prefix, packet.destination));
    holding.max_by_key(|(number, prefix)| (prefix.len, std::cmp::Reverse(*number))).map(|(number, _)| number)
}

/// True if the packet is what the conditions ask for. A set that does not exist holds nothing.
pub fn applies(rules: &Rules, when: &Match, packet: &Packet) -> bool {
    let within = |places: &[Place], address| {
        places.is_empty()
            || places.iter().any(|place| match place {
                Place::Prefix(prefix) => holds(prefix, address),
                Place::Set(name) => {
                    rules.sets.get(name).is_some_and(|set| set.prefixes.iter().any(|p| holds(p, address)))
                }
            })
    };
    let in_ranges = |ranges: &[std::ops::RangeInclusive<u16>], value: Option<u16>| {
        ranges.is_empty() || value.is_some_and(|value| ranges.iter().any(|range| range.contains(&value)))
    };
    let flags =
        |wanted: crate::rule::TcpFlags| packet.tcp_flags.is_some_and(|flags| flags & wanted.mask == wanted.value);
    let fragment = |wanted| match wanted {
        Fragment::No => packet.part == Part::Whole,
        Fragment::Any => packet.part != Part::Whole,
        Fragment::First => packet.part == Part::First,
        Fragment::Later => packet.part == Part::Later,
    };
    when.family.is_none_or(|family| family == packet.family())
        && within(&when.source, packet.source)
        && within(&when.destination, packet.destination)
        && in_ranges(&when.source_port, packet.ports.map(|ports| ports.0))
        && in_ranges(&when.destination_port, packet.ports.map(|ports| ports.1))
        && (when.protocol.is_empty() || when.protocol.contains(&packet.protocol))
        && when.tcp_flags.is_none_or(flags)
        && (when.icmp_type.is_empty() || packet.icmp_type.is_some_and(|kind| when.icmp_type.contains(&kind)))
        && in_ranges(&when.length, Some(packet.len))
        && when.fragment.is_none_or(fragment)
        && (when.dscp.is_empty() || when.dscp.contains(&packet.dscp))
        && packet.known.answers(&when.known)
        && (when.vlan.is_empty() || packet.vlan.is_some_and(|vlan| when.vlan.contains(&vlan)))
}

fn holds(prefix: &Prefix, address: std::net::IpAddr) -> bool {
    use std::net::IpAddr::{V4, V6};
    match (prefix.address, address) {
        (V4(prefix_address), V4(address)) => {
            let differ = prefix_address.to_bits() ^ address.to_bits();
            differ.checked_shr(32 - u32::from(prefix.len)).unwrap_or(0) == 0
        }
        (V6(prefix_address), V6(address)) => {
            let differ = prefix_address.to_bits() ^ address.to_bits();
            differ.checked_shr(128 - u32::from(prefix.len)).unwrap_or(0) == 0
        }
        _ => false,
    }
}
