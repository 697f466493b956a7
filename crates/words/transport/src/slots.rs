//! Room for the payloads of so many frames in a row, taken once.

use crate::{Flags, Serial};

#[derive(Debug)]
pub(crate) struct Slots {
    bytes: Box<[u8]>,
    heads: Box<[Slot]>,
    size: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    len: u16,
    flags: Flags,
    full: bool,
}

impl Slots {
    /// `count` is rounded up to a power of two.
    pub(crate) fn new(count: u32, size: u16) -> Self {
        let count = count.max(2).next_power_of_two() as usize;
        let size = usize::from(size);
        Self { bytes: vec![0; count * size].into(), heads: vec![Slot::default(); count].into(), size }
    }

    pub(crate) fn count(&self) -> u32 {
        self.heads.len() as u32
    }

    fn at(&self, number: Serial) -> usize {
        number.0 as usize & (self.heads.len() - 1)
    }

    /// Puts a payload there, cut to the room of a slot.
    pub(crate) fn put(&mut self, number: Serial, flags: Flags, payload: &[u8]) {
        let (at, len) = (self.at(number), payload.len().min(self.size));
        self.bytes[at * self.size..][..len].copy_from_slice(&payload[..len]);
        self.heads[at] = Slot { len: len as u16, flags, full: true };
    }

    pub(crate) fn has(&self, number: Serial) -> bool {
        self.heads[self.at(number)].full
    }

    pub(crate) fn get(&self, number: Serial) -> (Flags, &[u8]) {
        let at = self.at(number);
        (self.heads[at].flags, &self.bytes[at * self.size..][..usize::from(self.heads[at].len)])
    }

    pub(crate) fn clear(&mut self, number: Serial) {
        let at = self.at(number);
        self.heads[at].full = false;
    }
}
