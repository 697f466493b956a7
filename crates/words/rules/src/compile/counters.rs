//! The counters of rules: a slot for each name, kept across reloads.

use std::collections::{BTreeMap, BTreeSet};

use crate::tables::RuleCount;
use serde::{Deserialize, Serialize};

use crate::{error::RulesError, rule::RULES_MAX};

/// Slots that the kernel program has.
pub const COUNTERS_MAX: usize = crate::tables::COUNTERS;

// All rules can be replaced at once by as many others.
const _: () = assert!(COUNTERS_MAX >= 2 * RULES_MAX);

/// The slots that names have been given. Saved beside the kernel's counters, so that an upgrade goes on counting.
///
/// A name keeps its slot when its rule is gone, and goes on from there when that returns, until the slots are needed for others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    slots: BTreeMap<String, Slot>,
    /// Taken from names by [`Self::make_room`].
    free: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    number: u16,
    /// Packets, bytes and those beyond the limit that others had counted here before. The counters themselves are only ever added to,
    /// by programs and threads that nobody stops for this.
    before: [u64; 3],
}

impl Slot {
    fn count(&self, counted: &[RuleCount]) -> Option<RuleCount> {
        let now = counted.get(usize::from(self.number))?;
        let [packets, bytes, limited] = self.before;
        Some(RuleCount {
            packets: now.packets.saturating_sub(packets),
            bytes: now.bytes.saturating_sub(bytes),
            limited: now.limited.saturating_sub(limited),
        })
    }
}

impl Counters {
    /// No name has a slot yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No name has a slot, and what has been `counted` in them is of nobody who is known: the next owners begin anew.
    ///
    /// Old rules may count on until new ones are in their place, so that as many slots again as have counted anything are given out first.
    pub fn behind(counted: &[RuleCount]) -> Self {
        let used = counted.iter().rposition(|count| count.packets > 0).map_or(0, |last| last + 1);
        let slot = |number: usize| {
            let count = counted.get(number).copied().unwrap_or_default();
            let before = [count.packets, count.bytes, count.limited];
            Some(Slot { number: u16::try_from(number).ok()?, before })
        };
        Self { slots: BTreeMap::new(), free: (0..COUNTERS_MAX.min(2 * used)).filter_map(slot).collect() }
    }

    /// The slot of this name: its own, or one that nobody has.
    ///
    /// # Errors
    /// All [`COUNTERS_MAX`] are given out; see [`Self::make_room`].
    pub fn slot(&mut self, name: &str) -> Result<u16, RulesError> {
        if let Some(slot) = self.slots.get(name) {
            return Ok(slot.number);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => match u16::try_from(self.end()) {
                Ok(number) if usize::from(number) < COUNTERS_MAX => Slot { number, before: [0; 3] },
                _ => return Err(RulesError::NoCounter { rule: name.to_owned(), capacity: COUNTERS_MAX }),
            },
        };
        self.slots.insert(name.to_owned(), slot);
        Ok(slot.number)
    }

    /// All slots that were ever given out are below this one.
    pub fn end(&self) -> usize {
        self.slots.len() + self.free.len()
    }

    /// The counts under this name, out of what has been `counted` in each slot; none: it has no slot.
    pub fn count(&self, name: &str, counted: &[RuleCount]) -> Option<RuleCount> {
        self.slots.get(name)?.count(counted)
    }

    /// All names with what has been counted under them, by name.
    pub fn iter(&self, counted: &[RuleCount]) -> impl Iterator<Item = (&str, RuleCount)> {
        self.slots.iter().filter_map(|(name, slot)| Some((name.as_str(), slot.count(counted)?)))
    }

    /// All names with their slots, by name.
    pub fn slots(&self) -> impl Iterator<Item = (&str, u16)> {
        self.slots.iter().map(|(name, slot)| (name.as_str(), slot.number))
    }

    /// Sees to it that each of the rules `coming` can have a slot. If there are not enough, names that are neither among these nor among
    /// those that are `holding` lose theirs; `counted` reads what has been counted in each slot, and is asked only then.
    pub fn make_room<'a>(
        &mut self,
        coming: impl IntoIterator<Item = &'a str>,
        holding: impl IntoIterator<Item = &'a str>,
        counted: impl FnOnce() -> Vec<RuleCount>,
    ) {
        let coming: BTreeSet<&str> = coming.into_iter().collect();
        let new = coming.iter().filter(|&&name| !self.slots.contains_key(name)).count();
        if self.slots.len() + new <= COUNTERS_MAX {
            return;
        }
        let (holding, counted): (BTreeSet<&str>, _) = (holding.into_iter().collect(), counted());
        self.slots.retain(|name, slot| {
            let used = coming.contains(name.as_str()) || holding.contains(name.as_str());
            if !used {
                let count = counted.get(usize::from(slot.number)).copied().unwrap_or_default();
                self.free.push(Slot { before: [count.packets, count.bytes, count.limited], ..*slot });
            }
            used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts of each slot.
    fn counted(packets: u64) -> Vec<RuleCount> {
        vec![RuleCount { packets, bytes: 60 * packets, limited: packets / 2 }; COUNTERS_MAX]
    }

    fn names(from: usize, to: usize) -> Vec<String> {
        (from..to).map(|n| n.to_string()).collect()
    }

    fn all(names: &[String]) -> impl Iterator<Item = &str> {
        names.iter().map(String::as_str)
    }

    #[test]
    fn a_name_keeps_its_slot() {
        let mut counters = Counters::new();
        let (a, b) = (counters.slot("a").unwrap(), counters.slot("b").unwrap());
        assert_ne!(a, b);
        assert_eq!((counters.slot("a").unwrap(), counters.slot("b").unwrap()), (a, b));
        let mut counted = counted(0);
        counted[usize::from(b)].packets = 9;
        let packets = |name| counters.count(name, &counted).map(|count| count.packets);
        assert_eq!((packets("a"), packets("b"), packets("c")), (Some(0), Some(9), None));
        let listed: Vec<_> = counters.iter(&counted).map(|(name, count)| (name, count.packets)).collect();
        assert_eq!(listed, [("a", 0), ("b", 9)]);
    }

    #[test]
    fn there_is_an_end_and_room_is_made_from_names_that_are_gone() {
        let mut counters = Counters::new();
        let many = names(0, COUNTERS_MAX);
        for name in &many {
            counters.slot(name).unwrap();
        }
        assert!(matches!(counters.slot("one more"), Err(RulesError::NoCounter { .. })));
        // Names that have slots need none.
        counters.make_room(["7"], ["8"], || panic!("there is room"));
        counters.make_room(["7", "one more"], ["8"], || counted(100));
        counters.slot("one more").unwrap();
        let packets = |name| counters.count(name, &counted(101)).map(|count| count.packets);
        assert_eq!(
            (packets("7"), packets("8"), packets("9"), packets("one more")),
            (Some(101), Some(101), None, Some(1))
        );
    }

    #[test]
    fn what_nobody_knows_is_not_counted_for_who_comes() {
        let mut left = counted(0);
        for (slot, packets) in [(0, 5), (2, 7)] {
            left[slot] = RuleCount { packets, bytes: 60 * packets, limited: 0 };
        }
        let mut counters = Counters::behind(&left);
        let slots: Vec<u16> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| counters.slot(name).unwrap()).to_vec();
        assert_eq!(slots, [5, 4, 3, 2, 1, 0, 6], "those that still count come late");
        left[2].packets += 3;
        let packets = |name| counters.count(name, &left).map(|count| count.packets);
        assert_eq!((packets("a"), packets("d"), packets("f"), packets("g")), (Some(0), Some(3), Some(0), Some(0)));
        assert_eq!(Counters::behind(&counted(0)), Counters::new());
    }

    #[test]
    fn all_rules_can_follow_all_others_for_ever() {
        let mut counters = Counters::new();
        let mut before = Vec::new();
        for round in 0..5 {
            let now = names(round * RULES_MAX, (round + 1) * RULES_MAX);
            counters.make_room(all(&now), all(&before), || counted(round as u64));
            let mut slots: BTreeSet<u16> = now.iter().map(|name| counters.slot(name).unwrap()).collect();
            // None that the rules before still count in.
            slots.extend(before.iter().map(|name| counters.slot(name).unwrap()));
            assert_eq!(slots.len(), now.len() + before.len());
            before = now;
        }
    }
}
