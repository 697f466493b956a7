//! Conditions as nftables expressions.

use std::ops::RangeInclusive;

use super::{
    Family,
    sets::{Sets, Within},
};
use crate::rules::{Fragment, Match};

/// Bytes of the IPv6 header, which a packet's length counts and the header's length field does not.
const IPV6_LEN: u16 = 40;

/// A rule's conditions in one family.
pub(super) struct Found {
    /// Expressions, of which at most one is true of a packet.
    pub(super) alternatives: Vec<String>,
    /// Definitions of the sets that they name.
    pub(super) sets: Vec<String>,
}

/// The conditions as expressions; none: no packet of this family fulfils them.
pub(super) fn conditions(when: &Match, sets: &Sets<'_>) -> Option<Found> {
    let family = sets.family;
    if when.family.is_some_and(|asked| asked != family.number()) {
        return None;
    }
    let mut found = vec![];
    let mut definitions = vec![];
    if !when.vlan.is_empty() {
        // The tag's type is any of both, which `vlan id` would not say; the id is the lower 12 bits.
        let ids = when.vlan.iter().map(|id| *id..=*id);
        found.push("@ll,96,16 { 0x8100, 0x88a8 }".to_owned());
        found.push(format!("@ll,112,16 & 0x0fff {}", set(ids)));
    }
    for (side, places) in [("saddr", &when.source), ("daddr", &when.destination)] {
        if places.is_empty() {
            continue;
        }
        match sets.within(side, places) {
            Within::Nothing => return None,
            Within::All => {}
            Within::Set { name, definition } => {
                found.push(format!("{} {side} @{name}", family.header()));
                definitions.push(definition);
            }
        }
    }
    if !when.protocol.is_empty() {
        found.push(format!("meta l4proto {}", bytes(&when.protocol)));
    }
    if !when.source_port.is_empty() || !when.destination_port.is_empty() {
        found.push("meta l4proto { 6, 17, 33, 132, 136 }".to_owned());
    }
    for (side, ports) in [("sport", &when.source_port), ("dport", &when.destination_port)] {
        if !ports.is_empty() {
            found.push(format!("th {side} {}", set(ports.iter().cloned())));
        }
    }
    if let Some(flags) = when.tcp_flags {
        found.push(format!("meta l4proto 6 @th,104,8 & {:#x} == {:#x}", flags.mask, flags.value));
    }
    if !when.icmp_type.is_empty() {
        let protocol = if family == Family::V4 { 1 } else { 58 };
        found.push(format!("meta l4proto {protocol} @th,0,8 {}", bytes(&when.icmp_type)));
    }
    if !when.length.is_empty() {
        found.push(length(&when.length, family)?);
    }
    if !when.dscp.is_empty() {
        found.push(dscp(&when.dscp, family));
    }
    let rest = found.join(" ");
    let alternatives = match when.fragment {
        None => vec![rest],
        Some(asked) => {
            let parts = fragment(asked, family);
            parts.iter().map(|part| format!("{part} {rest}").trim_end().to_owned()).collect()
        }
    };
    Some(Found { alternatives, sets: definitions })
}

/// A set of numbers; nftables takes no overlapping ranges.
fn set(ranges: impl Iterator<Item = RangeInclusive<u16>>) -> String {
    let mut ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
    ranges.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u16>> = vec![];
    for range in ranges {
        match merged.last_mut() {
            Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    let texts: Vec<_> = merged
        .iter()
        .map(|range| match (range.start(), range.end()) {
            (start, end) if start == end => start.to_string(),
            (start, end) => format!("{start}-{end}"),
        })
        .collect();
    format!("{{ {} }}", texts.join(", "))
}

fn bytes(values: &[u8]) -> String {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    format!("{{ {} }}", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn length(ranges: &[RangeInclusive<u16>], family: Family) -> Option<String> {
    match family {
        Family::V4 => Some(format!("ip length {}", set(ranges.iter().cloned()))),
        Family::V6 => {
            let mut payload = ranges
                .iter()
                .filter(|range| *range.end() >= IPV6_LEN)
                .map(|range| range.start().saturating_sub(IPV6_LEN)..=*range.end() - IPV6_LEN)
                .peekable();
            payload.peek()?;
            Some(format!("ip6 length {}", set(payload)))
        }
    }
}

/// By the bits of the header: where DSCP crosses bytes, as in IPv6, sets of it are not what they seem.
fn dscp(values: &[u8], family: Family) -> String {
    let (field, shift) = match family {
        Family::V4 => ("@nh,8,8 & 0xfc", 2),
        Family::V6 => ("@nh,0,16 & 0x0fc0", 6),
    };
    let shifted = values.iter().map(|value| u16::from(*value) << shift);
    format!("{field} {}", set_apart(shifted))
}

/// A set of numbers that are each meant alone.
fn set_apart(values: impl Iterator<Item = u16>) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    format!("{{ {} }}", values.iter().map(|value| format!("{value:#x}")).collect::<Vec<_>>().join(", "))
}

/// IPv4 has the fields in every header; IPv6 in a header of their own, whose absence is not the same as its zero fields.
fn fragment(asked: Fragment, family: Family) -> &'static [&'static str] {
    match (family, asked) {
        (Family::V4, Fragment::No) => &["ip frag-off & 0x3fff == 0"],
        (Family::V4, Fragment::Any) => &["ip frag-off & 0x3fff != 0"],
        (Family::V4, Fragment::First) => &["ip frag-off & 0x3fff == 0x2000"],
        (Family::V4, Fragment::Later) => &["ip frag-off & 0x1fff != 0"],
        (Family::V6, Fragment::No) => &["exthdr frag missing", "frag frag-off 0 frag more-fragments 0"],
        (Family::V6, Fragment::Any) => &["frag frag-off != 0", "frag frag-off 0 frag more-fragments 1"],
        (Family::V6, Fragment::First) => &["frag frag-off 0 frag more-fragments 1"],
        (Family::V6, Fragment::Later) => &["frag frag-off != 0"],
    }
}
