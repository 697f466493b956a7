//! Where rules are counted: a slot for each name, kept across reloads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::ShieldError;

/// Slots that the kernel program has.
pub const COUNTERS_MAX: usize = bpf::shield::COUNTERS;

/// The slots that names have been given. Saved beside the kernel's counters, so that an upgrade goes on counting.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    slots: BTreeMap<String, u16>,
    /// Given up by [`Self::retain`].
    free: Vec<u16>,
}

impl Counters {
    /// No name has a slot yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The slot of this name: its own, or one that nobody has.
    ///
    /// # Errors
    /// All [`COUNTERS_MAX`] are given out.
    pub fn slot(&mut self, name: &str) -> Result<u16, ShieldError> {
        if let Some(&slot) = self.slots.get(name) {
            return Ok(slot);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => match u16::try_from(self.slots.len()) {
                Ok(next) if usize::from(next) < COUNTERS_MAX => next,
                _ => return Err(ShieldError::NoCounter { rule: name.to_owned(), capacity: COUNTERS_MAX }),
            },
        };
        self.slots.insert(name.to_owned(), slot);
        Ok(slot)
    }

    /// The slot of this name, if it has one.
    pub fn get(&self, name: &str) -> Option<u16> {
        self.slots.get(name).copied()
    }

    /// Names and slots, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u16)> {
        self.slots.iter().map(|(name, slot)| (name.as_str(), *slot))
    }

    /// Takes the slots from names that are not to be kept, and says which: they must be zeroed before the next reload gives them to
    /// others, and no program may count on them any more.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) -> Vec<u16> {
        let mut gone = Vec::new();
        self.slots.retain(|name, slot| {
            let kept = keep(name);
            if !kept {
                gone.push(*slot);
            }
            kept
        });
        self.free.extend(&gone);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_slot_and_a_freed_one_is_given_again() {
        let mut counters = Counters::new();
        let (a, b) = (counters.slot("a").unwrap(), counters.slot("b").unwrap());
        assert_ne!(a, b);
        assert_eq!(counters.slot("a").unwrap(), a);
        assert_eq!(counters.retain(|name| name == "b"), [a]);
        assert_eq!((counters.get("a"), counters.get("b")), (None, Some(b)));
        assert_eq!(counters.slot("c").unwrap(), a);
        assert_eq!(counters.iter().collect::<Vec<_>>(), [("b", b), ("c", a)]);
    }

    #[test]
    fn there_is_an_end() {
        let mut counters = Counters::new();
        for i in 0..COUNTERS_MAX {
            assert_eq!(usize::from(counters.slot(&i.to_string()).unwrap()), i);
        }
        assert!(matches!(counters.slot("one more"), Err(ShieldError::NoCounter { .. })));
        assert_eq!(counters.retain(|name| name != "7"), [7]);
        assert_eq!(counters.slot("one more").unwrap(), 7);
    }
}
