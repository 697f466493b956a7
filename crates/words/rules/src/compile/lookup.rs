//! The kernel program's search over again, in plain Rust: what the tables say about a packet.

use std::net::IpAddr;

use crate::tables::{AddressTable, FieldTable, RuleAction, RuleTables, VLAN_NONE};

use super::conditions::DETAIL_NONE;
use crate::{
    packet::{Packet, Parsed, Part},
    reference::{Decision, Outcome},
};

/// Verdict on a frame by these tables at this CLOCK_MONOTONIC. `exceeds` tells of each limit that applies, by the rule's number, whether this packet
/// is beyond its rate.
pub fn decide_frame(
    tables: &RuleTables,
    frame: &[u8],
    monotonic_ns: u64,
    exceeds: impl FnMut(usize, &Packet) -> bool,
) -> Decision {
    match Packet::parse(frame) {
        Parsed::Ip(packet) => decide(tables, &packet, monotonic_ns, exceeds),
        Parsed::NotIp => Decision::undecided(Outcome::Pass),
        Parsed::Malformed(_) => Decision::undecided(if tables.malformed_drop { Outcome::Drop } else { Outcome::Pass }),
    }
}

/// The treatment of a packet.
pub fn decide(
    tables: &RuleTables,
    packet: &Packet,
    monotonic_ns: u64,
    exceeds: impl FnMut(usize, &Packet) -> bool,
) -> Decision {
    let mut counted = Vec::new();
    let (rule, outcome) = search(tables, packet, monotonic_ns, exceeds, |rule| counted.push(rule));
    Decision { rule, outcome, counted }
}

/// The same without a list: the rule that decides and what happens; `counts` is told each rule that counts the packet, in order.
pub fn search(
    tables: &RuleTables,
    packet: &Packet,
    monotonic_ns: u64,
    mut exceeds: impl FnMut(usize, &Packet) -> bool,
    mut counts: impl FnMut(usize),
) -> (Option<usize>, Outcome) {
    let rows = rows(tables, packet);
    // The first challenge that yields to what comes behind it.
    let mut challenger = None;
    for word in 0..tables.words {
        let left = tables.rules.len().saturating_sub(word * 64);
        let mut bits = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        for row in rows.iter().flatten() {
            bits &= row[word];
        }
        while bits != 0 {
            let number = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let rule = &tables.rules[number];
            if rule.expires_ns != 0 && rule.expires_ns <= monotonic_ns {
                continue;
            }
            counts(number);
            if rule.shadow {
                continue;
            }
            if rule.yields {
                challenger.get_or_insert(number);
                continue;
            }
            let outcome = match rule.action {
                RuleAction::Pass => Outcome::Pass,
                RuleAction::Drop => Outcome::Drop,
                RuleAction::Limit if exceeds(number, packet) => Outcome::Drop,
                RuleAction::Limit => continue,
                RuleAction::Challenge => Outcome::Challenge,
            };
            return or_challenge(challenger, Some(number), outcome);
        }
    }
    or_challenge(challenger, None, if tables.default_drop { Outcome::Drop } else { Outcome::Pass })
}

/// Turns a pass into a challenge, if a rule has asked for one.
fn or_challenge(challenger: Option<usize>, rule: Option<usize>, outcome: Outcome) -> (Option<usize>, Outcome) {
    match challenger {
        Some(number) if outcome == Outcome::Pass => (Some(number), Outcome::Challenge),
        _ => (rule, outcome),
    }
}

/// The number of the protected prefix that the packet's destination belongs to.
pub fn protected(tables: &RuleTables, packet: &Packet) -> Option<usize> {
    usize::from(address_class(tables.protected.as_ref()?, packet.destination)).checked_sub(1)
}

/// The row of each field that some rule asks for.
fn rows<'a>(tables: &'a RuleTables, packet: &Packet) -> [Option<&'a [u64]>; 10] {
    let row = |rows: &'a [u64], class: u16| &rows[usize::from(class) * tables.words..][..tables.words];
    let address =
        |table: &'a Option<AddressTable>, address| table.as_ref().map(|t| row(&t.rows, address_class(t, address)));
    let mut out = [None; 10];
    out[0] = address(&tables.source, packet.source);
    out[1] = address(&tables.destination, packet.destination);
    for ((out, table), value) in out[2..].iter_mut().zip(&tables.fields).zip(values(packet)) {
        let class = |t: &FieldTable| value.map_or(t.absent, |value| t.class_of[value]);
        *out = table.as_ref().map(|t| row(&t.rows, class(t)));
    }
    out
}

/// The values of the fields from the source port on; none: the packet does not have it.
fn values(packet: &Packet) -> [Option<usize>; 8] {
    let is_v6 = usize::from(packet.family() == 6);
    let detail = match (packet.tcp_flags, packet.icmp_type) {
        (Some(flags), _) => usize::from(flags),
        (None, Some(kind)) => 256 * (1 + is_v6) + usize::from(kind),
        (None, None) => DETAIL_NONE,
    };
    let part = match packet.part {
        Part::Whole => 0,
        Part::First => 64,
        Part::Later => 128,
    };
    [
        packet.ports.map(|ports| ports.0.into()),
        packet.ports.map(|ports| ports.1.into()),
        Some(256 * is_v6 + usize::from(packet.protocol)),
        Some(detail),
        Some(part + usize::from(packet.dscp)),
        Some(packet.vlan.map_or(VLAN_NONE, usize::from)),
        Some(packet.len.into()),
        Some(packet.known.number()),
    ]
}

fn address_class(table: &AddressTable, address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(address) => table.v4.as_ref().map_or(0, |t| t.class(address)),
        IpAddr::V6(address) => table.v6.as_ref().map_or(0, |t| t.class(address)),
    }
}
