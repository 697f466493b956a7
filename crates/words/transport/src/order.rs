//! Queues of frames: frames in flight by their time, lost frames by number. Neither searches the window.

use crate::{
    Serial,
    slots::{Flight, Slots},
};

/// A linked list of frames, within their slots.
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

    pub(crate) fn push(&mut self, slots: &mut Slots, number: Serial) {
        self.ends = Some(match self.ends {
            None => (number, number),
            Some((first, last)) => {
                join(slots, last, number);
                (first, number)
            }
        });
        self.count += 1;
    }

    /// Removes a frame of the list.
    pub(crate) fn remove(&mut self, slots: &mut Slots, number: Serial) {
        let (Some((first, last)), Some(&Flight { previous, following, .. })) = (self.ends, slots.flight(number)) else {
            return;
        };
        self.count -= 1;
        self.ends = match (number == first, number == last) {
            (true, true) => None,
            (true, false) => Some((following, last)),
            (false, true) => Some((first, previous)),
            (false, false) => {
                join(slots, previous, following);
                self.ends
            }
        };
    }
}

fn join(slots: &mut Slots, previous: Serial, following: Serial) {
    if let Some(flight) = slots.flight_mut(previous) {
        flight.following = following;
    }
    if let Some(flight) = slots.flight_mut(following) {
        flight.previous = previous;
    }
}

/// A set of numbers within a window: a bit for each slot.
#[derive(Debug)]
pub(crate) struct Lost {
    words: Box<[u64]>,
    /// A power of two.
    slots: u32,
    count: u32,
    /// Lower bound of all numbers.
    from: Serial,
}

impl Lost {
    /// A set for windows of `slots`, a power of two.
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

    /// Inserts a number that is not in the set.
    pub(crate) fn insert(&mut self, number: Serial) {
        let (word, bit) = self.bit(number);
        self.words[word] |= 1 << bit;
        if self.count == 0 || number.is_before(self.from) {
            self.from = number;
        }
        self.count += 1;
    }

    /// Removes a number of the set.
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
