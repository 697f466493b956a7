//! The packets of a rule as a product of ranges: one may hold another, and two may meet.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use crate::rule::{Fragment, Match, Place, Prefix, Rules, TcpFlags};

/// A value of a field: for addresses the family and the bits, for others 0 and the number.
type Key = (u8, u128);

/// Protocols whose packets have ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Values, as ranges that are sorted and do not touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(Key, Key)>);

impl Ranges {
    fn of(mut ranges: Vec<(Key, Key)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(Key, Key)> = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            match merged.last_mut() {
                Some(last) if last.1.0 == from.0 && from.1 <= last.1.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    fn numbers(numbers: impl IntoIterator<Item = (u16, u16)>) -> Self {
        Self::of(numbers.into_iter().map(|(from, to)| ((0, from.into()), (0, to.into()))).collect())
    }

    fn prefixes<'a>(prefixes: impl IntoIterator<Item = &'a Prefix>) -> Self {
        let range = |prefix: &Prefix| match prefix.address {
            IpAddr::V4(address) => {
                let (first, len) = (u128::from(address.to_bits()), u32::from(prefix.len));
                ((4, first), (4, first | u128::from(u32::MAX.checked_shr(len).unwrap_or(0))))
            }
            IpAddr::V6(address) => {
                let first = address.to_bits();
                ((6, first), (6, first | u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0)))
            }
        };
        Self::of(prefixes.into_iter().map(range).collect())
    }

    /// True if the range that could hold `from` also reaches `to`.
    fn holds_range(&self, (from, to): &(Key, Key)) -> bool {
        let behind = self.0.partition_point(|range| range.0 <= *from);
        behind > 0 && self.0[behind - 1].1 >= *to
    }

    fn holds(&self, other: &Self) -> bool {
        other.0.iter().all(|range| self.holds_range(range))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().any(|(from, to)| {
            let reaching = many.0.partition_point(|range| range.1 < *from);
            many.0.get(reaching).is_some_and(|range| range.0 <= *to)
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// Values of the fields, those first that are quickly compared.
    fields: [Option<Arc<Ranges>>; 14],
    flags: TcpFlags,
}

/// Regions of the rules of one file. Lists of addresses are made into ranges once: a set of a million prefixes may be in many rules.
#[derive(Debug)]
pub(super) struct Regions<'a> {
    rules: &'a Rules,
    places: HashMap<&'a [Place], Arc<Ranges>>,
}

impl<'a> Regions<'a> {
    pub(super) fn of(rules: &'a Rules) -> Self {
        Self { rules, places: HashMap::new() }
    }

    /// A set without prefixes is a condition that nothing fulfils, which is not none.
    fn places(&mut self, places: &'a [Place]) -> Option<Arc<Ranges>> {
        let rules = self.rules;
        let ranges = || {
            let prefixes = places.iter().flat_map(|place| match place {
                Place::Prefix(prefix) => std::slice::from_ref(prefix),
                Place::Set(name) => rules.sets.get(name).map_or(&[][..], |set| &set.prefixes),
            });
            Ranges::prefixes(prefixes).into()
        };
        (!places.is_empty()).then(|| Arc::clone(self.places.entry(places).or_insert_with(ranges)))
    }

    /// The region of a rule's conditions, with the protocol and family that they imply.
    pub(super) fn region(&mut self, when: &'a Match) -> Region {
        let some = |ranges: Ranges| (!ranges.0.is_empty()).then(|| Arc::new(ranges));
        let bytes = |numbers: &[u8]| some(Ranges::numbers(numbers.iter().map(|n| (u16::from(*n), u16::from(*n)))));
        let ranges =
            |list: &[std::ops::RangeInclusive<u16>]| some(Ranges::numbers(list.iter().map(|r| (*r.start(), *r.end()))));
        let ports = !when.source_port.is_empty() || !when.destination_port.is_empty();
        let protocol = match &when.protocol[..] {
            [] if when.tcp_flags.is_some() => vec![6],
            [] if ports => WITH_PORTS.to_vec(),
            [] if !when.icmp_type.is_empty() => vec![1, 58],
            named => named.to_vec(),
        };
        let (source, destination) = (self.places(&when.source), self.places(&when.destination));
        let only = |ranges: &Option<Arc<Ranges>>| match ranges.as_ref().map(|ranges| &ranges.0[..]) {
            Some([first, .., last]) if first.0.0 == last.0.0 => Some(first.0.0),
            Some([one]) => Some(one.0.0),
            _ => None,
        };
        let family = when.family.or(only(&source)).or(only(&destination));
        let parts: &[u8] = match when.fragment {
            None if ports || when.tcp_flags.is_some() || !when.icmp_type.is_empty() => &[0, 1],
            None => &[],
            Some(Fragment::No) => &[0],
            Some(Fragment::Any) => &[1, 2],
            Some(Fragment::First) => &[1],
            Some(Fragment::Later) => &[2],
        };
        let [connection, listener, seen] = [when.known.connection, when.known.listener, when.known.source_seen]
            .map(|wanted| bytes(&wanted.map(u8::from).into_iter().collect::<Vec<_>>()));
        let vlan = some(Ranges::numbers(when.vlan.iter().map(|id| (*id, *id))));
        Region {
            fields: [
                bytes(&family.into_iter().collect::<Vec<_>>()),
                bytes(&protocol),
                ranges(&when.destination_port),
                ranges(&when.source_port),
                bytes(parts),
                bytes(&when.icmp_type),
                ranges(&when.length),
                bytes(&when.dscp),
                vlan,
                connection,
                listener,
                seen,
                source,
                destination,
            ],
            flags: when.tcp_flags.unwrap_or(TcpFlags { mask: 0, value: 0 }),
        }
    }
}

impl Region {
    pub(super) fn is_empty(&self) -> bool {
        self.fields.iter().flatten().any(|ranges| ranges.0.is_empty())
    }

    pub(super) fn holds(&self, other: &Self) -> bool {
        let (mine, its) = (self.flags, other.flags);
        mine.mask & its.mask == mine.mask
            && its.value & mine.mask == mine.value
            && self.fields.iter().zip(&other.fields).all(|(mine, its)| match (mine, its) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(mine), Some(its)) => Arc::ptr_eq(mine, its) || mine.holds(its),
            })
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        (self.flags.value ^ other.flags.value) & self.flags.mask & other.flags.mask == 0
            && self.fields.iter().zip(&other.fields).all(|(mine, its)| match (mine, its) {
                (Some(mine), Some(its)) => Arc::ptr_eq(mine, its) && !mine.0.is_empty() || mine.overlaps(its),
                _ => true,
            })
    }
}
