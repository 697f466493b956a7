//! Prefixes as nftables has them: sets of disjoint intervals of one family.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::Family;
use crate::rule::{Place, Prefix, Rules};

/// The source of a rule's places, and their family.
pub(super) struct Sets<'a> {
    pub(super) rules: &'a Rules,
    /// The rule's index, by which its sets are named.
    pub(super) number: usize,
    pub(super) family: Family,
}

/// A condition on an address, in one family.
pub(super) enum Within {
    Nothing,
    All,
    /// Addresses of this set, which is to be defined so.
    Set {
        name: String,
        definition: String,
    },
}

impl Sets<'_> {
    /// The set of all places of a condition on `side`: `saddr` or `daddr`.
    pub(super) fn within(&self, side: &str, places: &[Place]) -> Within {
        let mut prefixes: Vec<Prefix> = places.iter().flat_map(|place| self.prefixes(place)).collect();
        prefixes.sort_unstable();
        // Prefixes are nested or apart: one that an earlier one holds is nothing new, and nftables refuses it.
        let mut kept: Vec<Prefix> = vec![];
        for prefix in prefixes {
            if !kept.last().is_some_and(|last| holds(last, &prefix)) {
                kept.push(prefix);
            }
        }
        match kept.first() {
            None => Within::Nothing,
            Some(first) if first.len == 0 => Within::All,
            Some(_) => {
                let name = format!("r{}_{side}_{}", self.number, self.family.header());
                let mut definition =
                    format!("set {name} {{ type {}; flags interval; elements = {{", self.family.set_type());
                for (i, prefix) in kept.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    // Writing to a String cannot fail.
                    let _ = write!(definition, "{comma} {}/{}", prefix.address, prefix.len);
                }
                definition.push_str(" }; }");
                Within::Set { name, definition }
            }
        }
    }

    fn prefixes(&self, place: &Place) -> Vec<Prefix> {
        let all = match place {
            Place::Prefix(prefix) => std::slice::from_ref(prefix),
            Place::Set(name) => self.rules.sets.get(name).map_or(&[][..], |set| &set.prefixes),
        };
        all.iter().filter(|p| p.address.is_ipv4() == (self.family == Family::V4)).copied().collect()
    }
}

/// True if `outer` holds all of `inner`, of the same family.
fn holds(outer: &Prefix, inner: &Prefix) -> bool {
    let differ = match (outer.address, inner.address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        _ => return false,
    };
    outer.len <= inner.len && differ.checked_shr(128 - u32::from(outer.len)).unwrap_or(0) == 0
}

/// The mask of a prefix length, of IPv4 and IPv6, as an address.
pub(super) fn mask(family: Family, lens: (u8, u8)) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(!u32::MAX.checked_shr(lens.0.into()).unwrap_or(0)).into(),
        Family::V6 => Ipv6Addr::from_bits(!u128::MAX.checked_shr(lens.1.into()).unwrap_or(0)).into(),
    }
}
