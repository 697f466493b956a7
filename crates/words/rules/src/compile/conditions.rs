//! The condition of a rule on each field, as ranges of the field's values.

use std::ops::{Range, RangeInclusive};

use crate::{
    known::Known,
    tables::{Field, VLAN_NONE},
};

use super::values::Condition;
use crate::rule::{Fragment, Match, TcpFlags};

/// Fields of [`crate::tables::RuleTables::fields`] in its order, what they are called, and how many values they have.
pub(super) const FIELDS: [(Field, &str, usize); 8] = [
    (Field::SourcePort, "source ports", 65_536),
    (Field::DestinationPort, "destination ports", 65_536),
    (Field::Kind, "protocols", 512),
    (Field::Detail, "TCP flags and ICMP types", DETAIL_NONE + 1),
    (Field::Header, "DSCP and fragments", 192),
    (Field::Vlan, "VLAN ids", VLAN_NONE + 1),
    (Field::Length, "lengths", 65_536),
    (Field::Known, "what is known", Known::VALUES),
];

/// The field of the fewest values that every packet has, [`Field::Header`], as an index of [`FIELDS`].
pub(super) const SHORTEST: usize = 4;

/// The detail of packets that have none.
pub(super) const DETAIL_NONE: usize = 768;

/// The condition of this rule on the field; none: nothing is asked.
pub(super) fn condition(when: &Match, field: Field) -> Condition {
    match field {
        Field::Source | Field::Destination => None,
        Field::SourcePort => ranges(&when.source_port),
        Field::DestinationPort => ranges(&when.destination_port),
        Field::Kind => kind(when.family, &when.protocol),
        Field::Detail => detail(when.tcp_flags, &when.icmp_type),
        Field::Header => header(when.fragment, &when.dscp),
        Field::Vlan => values(&when.vlan),
        Field::Length => ranges(&when.length),
        Field::Known => known(&when.known),
    }
}

fn ranges(of: &[RangeInclusive<u16>]) -> Condition {
    let range = |r: &RangeInclusive<u16>| usize::from(*r.start())..usize::from(*r.end()) + 1;
    (!of.is_empty()).then(|| of.iter().map(range).collect())
}

fn values<T: Copy + Into<usize>>(of: &[T]) -> Condition {
    (!of.is_empty()).then(|| of.iter().map(|value| one((*value).into())).collect())
}

fn one(value: usize) -> Range<usize> {
    value..value + 1
}

fn kind(family: Option<u8>, protocols: &[u8]) -> Condition {
    let bases: &[usize] = match family {
        None if protocols.is_empty() => return None,
        None => &[0, 256],
        Some(4) => &[0],
        Some(6) => &[256],
        Some(_) => &[],
    };
    let of = |base: usize| -> Vec<Range<usize>> {
        match protocols {
            [] => std::iter::once(base..base + 256).collect(),
            some => some.iter().map(|protocol| one(base + usize::from(*protocol))).collect(),
        }
    };
    Some(bases.iter().flat_map(|base| of(*base)).collect())
}

fn known(wanted: &Known) -> Condition {
    let answers = |number: &usize| Known::of(*number).answers(wanted);
    (!wanted.is_nothing()).then(|| (0..Known::VALUES).filter(answers).map(one).collect())
}

/// Both together are asked of no packet: what has TCP flags has no ICMP type.
fn detail(flags: Option<TcpFlags>, types: &[u8]) -> Condition {
    match (flags, types) {
        (None, []) => None,
        (Some(TcpFlags { mask, value }), []) => {
            Some((0..=u8::MAX).filter(|flags| flags & mask == value).map(|flags| one(flags.into())).collect())
        }
        (None, types) => Some(types.iter().flat_map(|t| [256, 512].map(|base| one(base + usize::from(*t)))).collect()),
        (Some(_), _) => Some(Vec::new()),
    }
}

fn header(fragment: Option<Fragment>, dscp: &[u8]) -> Condition {
    let parts: &[usize] = match fragment {
        None if dscp.is_empty() => return None,
        None => &[0, 1, 2],
        Some(Fragment::No) => &[0],
        Some(Fragment::Any) => &[1, 2],
        Some(Fragment::First) => &[1],
        Some(Fragment::Later) => &[2],
    };
    let of = |part: usize| -> Vec<Range<usize>> {
        match dscp {
            [] => std::iter::once(part * 64..part * 64 + 64).collect(),
            // A code point above 63 is no packet's.
            some => some.iter().filter(|d| **d < 64).map(|d| one(part * 64 + usize::from(*d))).collect(),
        }
    };
    Some(parts.iter().flat_map(|part| of(*part)).collect())
}
