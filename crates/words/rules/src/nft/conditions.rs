//! Conditions as nftables expressions.

use std::ops::RangeInclusive;

use super::{
    Family,
    sets::{Sets, Within},
};
use crate::rule::{Fragment, Match};

/// Bytes of the IPv6 header, which a packet's length counts and the header's length field does not.
const IPV6_LEN: u16 = 40;

/// A rule's conditions in one family.
pub(super) struct Found {
    pub(super) alternatives: Vec<String>,
    /// Definitions of the sets that they name.
    pub(super) sets: Vec<String>,
}

/// The conditions as expressions; none: no packet of this family fulfils them.
pub(super) fn conditions(when: &Match, sets: &Sets<'_>) -> Option<Found> {
    let family = sets.family;
    if when.family.is_some_and(|wanted| wanted != family.number()) {
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
    if let Some(protocols) = protocols(when, family) {
        if protocols.is_empty() {
            return None;
        }
        found.push(format!("meta l4proto {}", bytes(&protocols)));
    }
    for (side, ports) in [("sport", &when.source_port), ("dport", &when.destination_port)] {
        if !ports.is_empty() {
            found.push(format!("th {side} {}", set(ports.iter().cloned())));
        }
    }
    if let Some(flags) = when.tcp_flags {
        found.push(format!("tcp flags & {:#x} == {:#x}", flags.mask, flags.value));
    }
    if !when.icmp_type.is_empty() {
        let protocol = if family == Family::V4 { "icmp" } else { "icmpv6" };
        found.push(format!("{protocol} type {}", bytes(&when.icmp_type)));
    }
    if !when.length.is_empty() {
        found.push(length(&when.length, family)?);
    }
    if !when.dscp.is_empty() {
        found.push(dscp(&when.dscp, family));
    }
    let rest = found.join(" ");
    let reads_transport = when.tcp_flags.is_some()
        || [!when.source_port.is_empty(), !when.destination_port.is_empty(), !when.icmp_type.is_empty()]
            .contains(&true);
    let parts = parts(when.fragment, family, reads_transport);
    let alternatives = parts.iter().map(|part| format!("{part} {rest}").trim().to_owned()).collect();
    Some(Found { alternatives, sets: definitions })
}

/// The protocols that all conditions leave; none: any. nftables refuses to compare fields of a protocol that a rule excludes.
fn protocols(when: &Match, family: Family) -> Option<Vec<u8>> {
    let icmp = [if family == Family::V4 { 1 } else { 58 }];
    let has_ports = !when.source_port.is_empty() || !when.destination_port.is_empty();
    let wanted: [(bool, &[u8]); 4] = [
        (!when.protocol.is_empty(), &when.protocol),
        (has_ports, &[6, 17, 33, 132, 136]),
        (when.tcp_flags.is_some(), &[6]),
        (!when.icmp_type.is_empty(), &icmp),
    ];
    let mut sets = wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, set)| set);
    let first = sets.next()?.to_vec();
    Some(sets.fold(first, |left, set| left.into_iter().filter(|protocol| set.contains(protocol)).collect()))
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

/// As to fragments: IPv4 has the fields in every header; IPv6 in a header of their own, whose absence is not the same as its zero
/// fields.
///
/// In later fragments nftables may look for a transport header where there is none (seen at netdev ingress of Linux 6.18):
/// conditions on that header have to keep away from them.
fn parts(wanted: Option<Fragment>, family: Family, reads_transport: bool) -> &'static [&'static str] {
    let wanted = match (wanted, reads_transport) {
        (Some(Fragment::Later), true) => return &[],
        (Some(Fragment::Any), true) => Some(Fragment::First),
        (wanted, _) => wanted,
    };
    match (family, wanted) {
        (Family::V4, None) if reads_transport => &["ip frag-off & 0x1fff == 0"],
        (Family::V6, None) if reads_transport => &["exthdr frag missing", "frag frag-off 0"],
        (_, None) => &[""],
        (Family::V4, Some(Fragment::No)) => &["ip frag-off & 0x3fff == 0"],
        (Family::V4, Some(Fragment::Any)) => &["ip frag-off & 0x3fff != 0"],
        (Family::V4, Some(Fragment::First)) => &["ip frag-off & 0x3fff == 0x2000"],
        (Family::V4, Some(Fragment::Later)) => &["ip frag-off & 0x1fff != 0"],
        (Family::V6, Some(Fragment::No)) => &["exthdr frag missing", "frag frag-off 0 frag more-fragments 0"],
        (Family::V6, Some(Fragment::Any)) => &["frag frag-off != 0", "frag frag-off 0 frag more-fragments 1"],
        (Family::V6, Some(Fragment::First)) => &["frag frag-off 0 frag more-fragments 1"],
        (Family::V6, Some(Fragment::Later)) => &["frag frag-off != 0"],
    }
}
