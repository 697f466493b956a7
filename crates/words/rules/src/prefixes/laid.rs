//! Lists of prefixes laid over each other, with their tables: kept, so that a few prefixes more do not cost as much as all of them.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use crate::tables::{V4Prefixes, V6Prefixes};

use super::{
    CLASSES_MAX, TableError,
    overlay::{first, last, overlay_numbered},
    v4::{runs, table},
    v6::v6,
};
use crate::rule::Prefix;

/// Lists, numbered from 0, as tables of classes.
#[derive(Debug, Clone)]
pub(crate) struct Laid {
    /// For each class the lists that its addresses are in, ascending; class 0 is in none.
    pub(crate) members: Vec<Vec<usize>>,
    pub(crate) v4: Option<Arc<V4Prefixes>>,
    pub(crate) v6: Option<Arc<V6Prefixes>>,
    /// The source of the tables.
    runs: Arc<[(u32, u16)]>,
    long: Arc<[(Prefix, u16)]>,
}

impl Laid {
    /// Lays lists over each other; several parts of one may come under the same number.
    ///
    /// # Errors
    /// More than [`CLASSES_MAX`] classes, or a crowded table.
    pub(crate) fn of<'a>(lists: impl Iterator<Item = (usize, &'a [Prefix])> + Clone) -> Result<Self, TableError> {
        let overlay = overlay_numbered(lists);
        if overlay.members.len() > CLASSES_MAX {
            return Err(TableError::Classes { classes: overlay.members.len() });
        }
        let four = overlay.classes.iter().filter_map(|&(prefix, class)| match prefix.address {
            IpAddr::V4(a) => Some((a.to_bits(), prefix.len, class)),
            IpAddr::V6(_) => None,
        });
        let four = runs(four.collect());
        let six: Vec<_> = overlay.classes.iter().filter(|class| class.0.address.is_ipv6()).copied().collect();
        Ok(Self {
            members: overlay.members,
            v4: (four.len() > 1 || four[0].1 != 0).then(|| table(&four).into()),
            v6: if six.is_empty() { None } else { Some(v6(&six)?.into()) },
            runs: four.into(),
            long: six.into(),
        })
    }

    /// With `more` laid over it, whose numbers are its own. The tables of a family that `more` has no prefix of stay as they are.
    pub(crate) fn with<'a>(
        &self,
        more: impl Iterator<Item = (usize, &'a [Prefix])> + Clone,
    ) -> Result<Self, TableError> {
        let top = Self::of(more)?;
        let mut pairs = Pairs { members: self.members.clone(), top: &top.members, number: HashMap::new() };
        let mut out = self.clone();
        if top.v4.is_some() {
            let four = both(&self.runs, &top.runs, &mut pairs);
            (out.v4, out.runs) = (Some(table(&four).into()), four.into());
        }
        if top.v6.is_some() {
            let six = nested(&self.long, &top.long, &mut pairs);
            (out.v6, out.long) = (Some(v6(&six)?.into()), six.into());
        }
        out.members = pairs.members;
        match out.members.len() {
            classes if classes > CLASSES_MAX => Err(TableError::Classes { classes }),
            _ => Ok(out),
        }
    }
}

/// Classes of both, numbered: those of what lies below keep their numbers.
struct Pairs<'a> {
    members: Vec<Vec<usize>>,
    top: &'a [Vec<usize>],
    number: HashMap<(u16, u16), u16>,
}

impl Pairs<'_> {
    fn class(&mut self, below: u16, top: u16) -> u16 {
        if top == 0 {
            return below;
        }
        *self.number.entry((below, top)).or_insert_with(|| {
            let mut members = [&self.members[usize::from(below)][..], &self.top[usize::from(top)][..]].concat();
            members.sort_unstable();
            members.dedup();
            self.members.push(members);
            // Beyond CLASSES_MAX, which is less than u16::MAX, the whole is refused.
            (self.members.len() - 1) as u16
        })
    }
}

/// Two rows of runs as one.
fn both(below: &[(u32, u16)], top: &[(u32, u16)], pairs: &mut Pairs<'_>) -> Vec<(u32, u16)> {
    let mut out: Vec<(u32, u16)> = Vec::with_capacity(below.len() + 2 * top.len());
    let (mut i, mut j) = (0, 0);
    while i < below.len() || j < top.len() {
        let at = [below.get(i), top.get(j)].into_iter().flatten().map(|run| run.0).min().unwrap_or(0);
        i += usize::from(below.get(i).is_some_and(|run| run.0 == at));
        j += usize::from(top.get(j).is_some_and(|run| run.0 == at));
        // Both begin at 0.
        let class = pairs.class(below[i - 1].1, top[j - 1].1);
        if out.last().is_none_or(|run| run.1 != class) {
            out.push((at, class));
        }
    }
    out
}

/// Prefixes with classes that hold the address at hand, outermost first.
type Open = Vec<(Prefix, u16)>;

/// Prefixes with classes, the longest deciding, laid over others of the kind; both sorted by address and length.
fn nested(below: &[(Prefix, u16)], top: &[(Prefix, u16)], pairs: &mut Pairs<'_>) -> Vec<(Prefix, u16)> {
    let key = |prefix: Prefix| (first(prefix), prefix.len);
    let mut out = Vec::with_capacity(below.len() + top.len());
    let (mut under, mut over): (Open, Open) = (vec![], vec![]);
    let (mut i, mut j) = (0, 0);
    while i < below.len() || j < top.len() {
        let at = [below.get(i), top.get(j)].into_iter().flatten().map(|entry| entry.0).min_by_key(|p| key(*p));
        let Some(at) = at else { break };
        for (list, open, next) in [(below, &mut under, &mut i), (top, &mut over, &mut j)] {
            while open.last().is_some_and(|outer| last(outer.0) < first(at)) {
                open.pop();
            }
            if let Some(entry) = list.get(*next).filter(|entry| entry.0 == at) {
                open.push(*entry);
                *next += 1;
            }
        }
        let class = |open: &[(Prefix, u16)]| open.last().map_or(0, |entry| entry.1);
        out.push((at, pairs.class(class(&under), class(&over))));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixes(most: usize) -> impl Strategy<Value = Vec<Prefix>> {
        // Few bits, so that they nest and coincide.
        let one = (any::<bool>(), any::<u128>(), 0u8..=128).prop_map(|(four, bits, len)| {
            let bits = bits & 0xc003_0005_0000_0003_0000_0000_0000_0001;
            if four {
                let len = len % 33;
                let kept = !u32::MAX.checked_shr(len.into()).unwrap_or(0);
                return Prefix { address: IpAddr::V4(((bits >> 96) as u32 & kept).into()), len };
            }
            let kept = !u128::MAX.checked_shr(len.into()).unwrap_or(0);
            Prefix { address: IpAddr::V6((bits & kept).into()), len }
        });
        prop::collection::vec(one, 0..most)
    }

    fn members(laid: &Laid, address: IpAddr) -> Vec<usize> {
        let class = match address {
            IpAddr::V4(a) => laid.v4.as_ref().map_or(0, |table| table.class(a)),
            IpAddr::V6(a) => laid.v6.as_ref().map_or(0, |table| table.class(a)),
        };
        laid.members[usize::from(class)].clone()
    }

    proptest! {
        // Each case makes five whole tables.
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn laid_over_later_is_laid_together(a in prefixes(20), b in prefixes(20), c in prefixes(4), d in prefixes(4)) {
            let lists = [&a, &b, &c, &d];
            let numbered = |range: std::ops::Range<usize>| range.map(|n| (n, &lists[n][..]));
            let together = Laid::of(numbered(0..4)).unwrap();
            let later = Laid::of(numbered(0..2)).unwrap().with(numbered(2..4)).unwrap();
            for prefix in lists.into_iter().flatten() {
                let (begin, end) = (first(*prefix).1, last(*prefix).1);
                for bits in [begin, end, begin.wrapping_sub(1), end.wrapping_add(1)] {
                    let address: IpAddr = match prefix.address {
                        IpAddr::V4(_) => IpAddr::V4((bits as u32).into()),
                        IpAddr::V6(_) => IpAddr::V6(bits.into()),
                    };
                    prop_assert_eq!(members(&together, address), members(&later, address), "{}", address);
                }
            }
        }
    }
}
