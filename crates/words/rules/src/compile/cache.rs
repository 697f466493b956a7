//! Address tables of earlier rules, kept while the lists of prefixes that they are made of stay the same.

use std::sync::Arc;

use crate::{
    prefixes::{Laid, TableError},
    rule::{Place, Prefix, PrefixSet},
};

/// The source of the last tables: reused as it is, or as what a few prefixes more are laid over. One for each series of rules that
/// follow each other.
#[derive(Debug, Default)]
pub struct Cache {
    /// Destinations that rules are likely to name soon: they have classes of their own from the beginning.
    expected: Vec<Place>,
    pub(super) source: Kept,
    pub(super) destination: Kept,
    pub(super) protected: Option<(Vec<Prefix>, crate::tables::AddressTable)>,
}

impl Cache {
    /// A cache for rules some of which will name these destinations.
    pub fn expecting(expected: &[Prefix]) -> Self {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        expected.dedup();
        let expected = expected.into_iter().map(Place::Prefix).collect();
        Self { expected, ..Self::default() }
    }

    /// The destinations that are expected.
    pub(super) fn expected(&self) -> Vec<Place> {
        self.expected.clone()
    }
}

/// A list of prefixes. Sets that are the same object are equal at once.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum List {
    One(Prefix),
    Set(Arc<PrefixSet>),
}

impl List {
    pub(super) fn prefixes(&self) -> &[Prefix] {
        match self {
            Self::One(prefix) => std::slice::from_ref(prefix),
            Self::Set(set) => &set.prefixes,
        }
    }
}

/// Lists that always make the same rules apply: one list to the overlay.
pub(super) type Group = Vec<List>;

/// The tables of one address field.
#[derive(Debug, Default)]
pub(super) struct Kept {
    groups: Vec<Group>,
    laid: Option<Arc<Laid>>,
}

impl Kept {
    /// The overlay of `groups`, and for each of its lists the number of the group.
    pub(super) fn lay(&mut self, groups: &[Group]) -> Result<(Arc<Laid>, Vec<usize>), TableError> {
        // A group of expected prefixes or of sets is where it was; others may have come in between.
        let mut numbers = Vec::with_capacity(groups.len());
        let mut new = 0..groups.len();
        for kept in &self.groups {
            numbers.extend(new.find(|&at| groups[at] == *kept));
        }
        if let Some(laid) = self.laid.as_ref().filter(|_| numbers.len() == self.groups.len()) {
            let more: Vec<usize> = (0..groups.len()).filter(|at| !numbers.contains(at)).collect();
            if more.is_empty() {
                return Ok((Arc::clone(laid), numbers));
            }
            let size = |group: &Group| group.iter().map(|list| list.prefixes().len()).sum::<usize>();
            let of_kept: usize = self.groups.iter().map(size).sum();
            if more.iter().map(|&at| size(&groups[at])).sum::<usize>() * OVERLAY_DIVISOR <= of_kept {
                let from = numbers.len();
                let parts = more.iter().enumerate().flat_map(|(n, &at)| parts(from + n, &groups[at]));
                let laid = laid.with(parts)?;
                numbers.extend(more);
                return Ok((laid.into(), numbers));
            }
        }
        let laid = Arc::new(Laid::of(groups.iter().enumerate().flat_map(|(n, group)| parts(n, group)))?);
        (self.groups, self.laid) = (groups.to_vec(), Some(Arc::clone(&laid)));
        Ok((laid, (0..groups.len()).collect()))
    }
}

/// Largest share of entries that an overlay changes: one in this many.
const OVERLAY_DIVISOR: usize = 100;

fn parts(number: usize, group: &Group) -> impl Iterator<Item = (usize, &[Prefix])> + Clone {
    group.iter().map(move |list| (number, list.prefixes()))
}
