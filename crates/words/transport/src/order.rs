//! Which frame comes first: of those under way by the time at which they were sent, of the lost ones by their number. Neither looks through the window.

use crate::{
    Serial,
    slots::{Flight, Slots},
};

/// Frames in the order in which they came into it, tied together within their slots.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct List {
    ends: Option<(Serial, Serial)>,
    count: u32,
}

impl List {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn first(&self) -> Option<Serial> {
        self.ends.map(|(first, _)| first)
    }

    /// Behind all that are in it.
    pub(crate) fn push(&mut self, slots: &mut Slots, number: Serial) {
        self.ends = Some(match self.ends {
            None => (number, number),
            Some((first, last)) => {
                tie(slots, last, number);
                (first, number)
            }
        });
        self.count += 1;
    }

    /// Takes one out that is in it.
    pub(crate) fn remove(&mut self, slots: &mut Slots, number: Serial) {
        let (Some((first, last)), Some(&Flight { before, behind, .. })) = (self.ends, slots.flight(number)) else {
            return;
        };
        self.count -= 1;
        self.ends = match (number == first, number == last) {
            (true, true) => None,
            (true, false) => Some((behind, last)),
            (false, true) => Some((first, before)),
            (false, false) => {
                tie(slots, before, behind);
                self.ends
            }
        };
    }
}

fn tie(slots: &mut Slots, before: Serial, behind: Serial) {
    if let Some(flight) = slots.flight_mut(before) {
        flight.behind = behind;
    }
    if let Some(flight) = slots.flight_mut(behind) {
        flight.before = before;
    }
}

/// Numbers within a window: a bit for each slot, and where to begin to look.
#[derive(Debug)]
pub(crate) struct Lost {
    words: Box<[u64]>,
    /// A power of two.
    slots: u32,
    count: u32,
    /// None is before it.
    from: Serial,
}

impl Lost {
    /// For windows of so many slots, a power of two.
    pub(crate) fn new(slots: u32) -> Self {
        Self { words: vec![0; slots.div_ceil(64) as usize].into(), slots, count: 0, from: Serial(0) }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn bit(&self, number: Serial) -> (usize, u32) {
        let at = number.0 & (self.slots - 1);
        (at as usize / 64, at % 64)
    }

    /// One that is not in it.
    pub(crate) fn insert(&mut self, number: Serial) {
        let (word, bit) = self.bit(number);
        self.words[word] |= 1 << bit;
        if self.count == 0 || number.is_before(self.from) {
            self.from = number;
        }
        self.count += 1;
    }

    /// One that is in it.
    pub(crate) fn remove(&mut self, number: Serial) {
        let (word, bit) = self.bit(number);
        self.words[word] &= !(1 << bit);
        self.count -= 1;
    }

    pub(crate) fn first(&mut self) -> Option<Serial> {
        if self.count == 0 {
            return None;
        }
        loop {
            let (word, bit) = self.bit(self.from);
            let ahead = self.words[word] >> bit;
            if ahead != 0 {
                self.from = self.from.plus(ahead.trailing_zeros());
                return Some(self.from);
            }
            // To the next word, or around to the first slot.
            self.from = self.from.plus((64 - bit).min(self.slots - (self.from.0 & (self.slots - 1))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, slots::Pool};

    #[test]
    fn the_first_lost_is_the_lowest_number_across_the_wrap() {
        for slots in [2, 8, 64, 256] {
            for first in [0, 5, u32::MAX - 1, u32::MAX - 70] {
                let mut lost = Lost::new(slots);
                let number = |at: u32| Serial(first).plus(at % slots);
                assert_eq!(lost.first(), None);
                let numbers: Vec<Serial> = (0..slots / 2).map(|at| number(at * 7 % slots)).collect();
                numbers.iter().rev().for_each(|&at| lost.insert(at));
                let mut came: Vec<u32> = Vec::new();
                while let Some(next) = lost.first() {
                    lost.remove(next);
                    came.push(next.since(Serial(first)) as u32);
                }
                let mut wanted: Vec<u32> = numbers.iter().map(|n| n.since(Serial(first)) as u32).collect();
                wanted.sort_unstable();
                assert_eq!(came, wanted, "{slots} slots from {first}");
            }
        }
    }

    #[test]
    fn a_list_keeps_the_order_in_which_frames_came_whatever_leaves_it() {
        let (mut pool, mut slots, mut list) = (Pool::default(), Slots::new(16, 4), List::default());
        (0..8).for_each(|at| slots.put(&mut pool, Serial(at), Flags::default(), &[]));
        for at in [3, 1, 4, 0, 5] {
            list.push(&mut slots, Serial(at));
        }
        for gone in [4, 3, 5] {
            list.remove(&mut slots, Serial(gone));
        }
        list.push(&mut slots, Serial(3));
        assert_eq!((list.first(), list.count()), (Some(Serial(1)), 3));
        let mut came = Vec::new();
        while let Some(first) = list.first() {
            list.remove(&mut slots, first);
            came.push(first.0);
        }
        assert_eq!((came, list.count()), (vec![1, 0, 3], 0));
    }
}
