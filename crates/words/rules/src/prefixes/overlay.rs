//! Many lists of prefixes laid over each other: which lists an address is in, as one number.

use std::{collections::HashMap, net::IpAddr};

use crate::rule::Prefix;

/// Lists of prefixes as one list with classes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overlay {
    /// Each prefix whose class differs from that of the next shorter one around it, sorted by address and then length. The class of
    /// an address is that of the longest prefix that holds it, 0 without one. Numbers are right only up to
    /// [`CLASSES_MAX`](super::CLASSES_MAX) classes: look at `members` first.
    pub classes: Vec<(Prefix, u16)>,
    /// For each class the lists that its addresses are in, ascending; class 0 is in none.
    pub members: Vec<Vec<usize>>,
}

/// The last address of a prefix, as the bits of its family.
pub(super) fn last(prefix: Prefix) -> (bool, u128) {
    match prefix.address {
        IpAddr::V4(a) => (false, u128::from(a.to_bits() | u32::MAX.checked_shr(prefix.len.into()).unwrap_or(0))),
        IpAddr::V6(a) => (true, a.to_bits() | u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0)),
    }
}

pub(super) fn first(prefix: Prefix) -> (bool, u128) {
    match prefix.address {
        IpAddr::V4(a) => (false, u128::from(a.to_bits())),
        IpAddr::V6(a) => (true, a.to_bits()),
    }
}

/// Sets of lists, each kept once.
struct Interned {
    members: Vec<Vec<usize>>,
    number: HashMap<Vec<usize>, usize>,
    /// (class, list added to it) to class.
    with: HashMap<(usize, usize), usize>,
}

impl Interned {
    fn with(&mut self, class: usize, list: usize) -> usize {
        if let Some(&known) = self.with.get(&(class, list)) {
            return known;
        }
        let mut set = self.members[class].clone();
        if let Err(at) = set.binary_search(&list) {
            set.insert(at, list);
        }
        let number = *self.number.entry(set).or_insert_with_key(|set| {
            self.members.push(set.clone());
            self.members.len() - 1
        });
        self.with.insert((class, list), number);
        number
    }
}

/// Lays `lists` over each other; their prefixes may be in any order, nested, and occur more than once.
pub fn overlay(lists: &[&[Prefix]]) -> Overlay {
    overlay_numbered(lists.iter().copied().enumerate())
}

/// As [`overlay`], of lists with their numbers; several parts of a list may come under the same one.
pub(crate) fn overlay_numbered<'a>(lists: impl Iterator<Item = (usize, &'a [Prefix])> + Clone) -> Overlay {
    let mut all: Vec<((bool, u128), u8, u32, Prefix)> = Vec::with_capacity(lists.clone().map(|l| l.1.len()).sum());
    for (list, prefixes) in lists {
        all.extend(prefixes.iter().map(|&p| (first(p), p.len, list as u32, p)));
    }
    // Sets come sorted, which a stable sort notices.
    all.sort_by_key(|&(first, len, list, _)| (first, len, list));
    let mut sets = Interned { members: vec![vec![]], number: HashMap::from([(vec![], 0)]), with: HashMap::new() };
    let mut classes = Vec::with_capacity(all.len());
    // The prefixes that are open here, outermost first: last address and class.
    let mut open: Vec<((bool, u128), usize)> = vec![];
    let mut rest = &all[..];
    while let Some(&(begin, len, _, prefix)) = rest.first() {
        let same = rest.iter().take_while(|e| e.0 == begin && e.1 == len).count();
        while open.last().is_some_and(|&(end, _)| end < begin) {
            open.pop();
        }
        let around = open.last().map_or(0, |&(_, class)| class);
        let class = rest[..same].iter().fold(around, |class, e| sets.with(class, e.2 as usize));
        if class != around {
            classes.push((prefix, class as u16));
            open.push((last(prefix), class));
        }
        rest = &rest[same..];
    }
    Overlay { classes, members: sets.members }
}
