//! Buffers for the payloads of consecutive frames, allocated in pages: an idle connection has none.

use std::{collections::VecDeque, sync::Arc};

use crate::{Budget, Charge, Flags, Serial};

/// Frames of a page, as a power of two.
const PAGE_BITS: u32 = 3;
const PAGE_FRAMES: usize = 1 << PAGE_BITS;
/// Bytes of free payload memory in a pool.
const POOL_BYTES_MAX: usize = 1 << 20;
/// Pages in an empty list beyond which its memory is freed.
const EMPTY_LIST_PAGES_MAX: usize = 4;

/// Free pages of a node.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "a page goes from list to list: its address, not its slots")]
    pages: Vec<Box<Page>>,
}

impl Pool {
    fn take(&mut self, size: usize) -> Box<Page> {
        match self.pages.pop() {
            Some(page) if page.bytes.len() == PAGE_FRAMES * size => page,
            _ => Box::new(Page {
                bytes: vec![0; PAGE_FRAMES * size].into(),
                slots: [Slot::default(); PAGE_FRAMES],
                full: 0,
            }),
        }
    }

    fn give(&mut self, page: Box<Page>) {
        if self.pages.len() * page.bytes.len() < POOL_BYTES_MAX {
            self.pages.push(page);
        }
    }
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8]>,
    slots: [Slot; PAGE_FRAMES],
    full: u32,
}

/// State of an outgoing frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FlightState {
    #[default]
    New,
    InFlight,
    /// The frame is lost, and not retransmitted yet.
    Lost,
    Arrived,
}

/// Sending state of a frame, with its neighbours in the list of frames in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flight {
    pub(crate) sent: u64,
    pub(crate) previous: Serial,
    pub(crate) following: Serial,
    pub(crate) state: FlightState,
    pub(crate) is_retransmission: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    flight: Flight,
    len: u16,
    flags: Flags,
    full: bool,
}

#[derive(Debug)]
pub(crate) struct Slots {
    /// Pages of consecutive numbers.
    pages: VecDeque<Option<Box<Page>>>,
    /// Number of the first page.
    first: u32,
    count: u32,
    size: u16,
    /// Bytes of its pages.
    charge: Charge,
}

impl Slots {
    /// `count` is rounded up to a power of two.
    pub(crate) fn new(count: u32, size: u16) -> Self {
        Self {
            pages: VecDeque::new(),
            first: 0,
            count: count.max(2).next_power_of_two(),
            size,
            charge: Charge::default(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn charge_to(&mut self, budget: Option<&Arc<Budget>>) {
        self.charge.charge_to(budget);
    }

    /// Capacity in frames from `number` on; with an exhausted budget that of the page.
    pub(crate) fn room_from(&self, number: Serial) -> u32 {
        match self.charge.is_exhausted() {
            true => (PAGE_FRAMES as u32 - number.0 % PAGE_FRAMES as u32).min(self.count),
            false => self.count,
        }
    }

    fn page(&self, number: Serial) -> Option<&Page> {
        self.pages.get((number.0 >> PAGE_BITS).wrapping_sub(self.first) as usize & PAGE_NUMBERS)?.as_deref()
    }

    fn page_mut(&mut self, number: Serial) -> Option<&mut Page> {
        self.pages.get_mut((number.0 >> PAGE_BITS).wrapping_sub(self.first) as usize & PAGE_NUMBERS)?.as_deref_mut()
    }

    /// Stores a payload, truncated to the size of a slot. The number is within [`Slots::count`] of all full slots.
    pub(crate) fn put(&mut self, pool: &mut Pool, number: Serial, flags: Flags, payload: &[u8]) {
        let (at, size) = (number.0 as usize & (PAGE_FRAMES - 1), usize::from(self.size));
        let len = payload.len().min(size);
        let place = self.page_slot(number);
        let is_new = place.is_none();
        let page = place.get_or_insert_with(|| pool.take(size));
        page.bytes[at * size..][..len].copy_from_slice(&payload[..len]);
        page.full += u32::from(!page.slots[at].full);
        page.slots[at] = Slot { flight: Flight::default(), len: len as u16, flags, full: true };
        if is_new {
            self.charge.set(self.charge.bytes() + PAGE_FRAMES * size);
        }
    }

    /// The entry of the page of `number`.
    fn page_slot(&mut self, number: Serial) -> &mut Option<Box<Page>> {
        let wanted = number.0 >> PAGE_BITS;
        if self.pages.is_empty() {
            self.first = wanted;
        }
        let ahead = self.first.wrapping_sub(wanted) & PAGE_NUMBERS as u32;
        if (1..=PAGE_NUMBERS as u32 / 2).contains(&ahead) {
            (0..ahead).for_each(|_| self.pages.push_front(None));
            self.first = wanted;
        }
        let at = wanted.wrapping_sub(self.first) as usize & PAGE_NUMBERS;
        while self.pages.len() <= at {
            self.pages.push_back(None);
        }
        &mut self.pages[at]
    }

    pub(crate) fn has(&self, number: Serial) -> bool {
        self.page(number).is_some_and(|page| page.slots[number.0 as usize & (PAGE_FRAMES - 1)].full)
    }

    /// Flags and payload; empty if the slot is.
    pub(crate) fn get(&self, number: Serial) -> (Flags, &[u8]) {
        let at = number.0 as usize & (PAGE_FRAMES - 1);
        self.page(number).map_or((Flags::default(), &[]), |page| {
            let slot = &page.slots[at];
            (slot.flags, &page.bytes[at * usize::from(self.size)..][..usize::from(slot.len)])
        })
    }

    pub(crate) fn flight(&self, number: Serial) -> Option<&Flight> {
        Some(&self.page(number)?.slots[number.0 as usize & (PAGE_FRAMES - 1)].flight)
    }

    pub(crate) fn flight_mut(&mut self, number: Serial) -> Option<&mut Flight> {
        Some(&mut self.page_mut(number)?.slots[number.0 as usize & (PAGE_FRAMES - 1)].flight)
    }

    /// Frees a slot before which none is full.
    pub(crate) fn clear(&mut self, pool: &mut Pool, number: Serial) {
        let Some(page) = self.page_mut(number) else { return };
        let slot = &mut page.slots[number.0 as usize & (PAGE_FRAMES - 1)];
        page.full -= u32::from(std::mem::take(&mut slot.full));
        while self.pages.front().is_some_and(|page| page.as_ref().is_none_or(|page| page.full == 0)) {
            self.first = self.first.wrapping_add(1);
            if let Some(page) = self.pages.pop_front().flatten() {
                self.charge.set(self.charge.bytes() - page.bytes.len());
                pool.give(page);
            }
        }
        if self.pages.is_empty() && self.pages.capacity() > EMPTY_LIST_PAGES_MAX {
            self.pages = VecDeque::new();
        }
    }

    pub(crate) fn empty(&mut self, pool: &mut Pool) {
        for mut page in std::mem::take(&mut self.pages).into_iter().flatten() {
            (page.slots, page.full) = ([Slot::default(); PAGE_FRAMES], 0);
            pool.give(page);
        }
        self.charge.set(0);
    }
}

/// Page numbers wrap with frame numbers.
const PAGE_NUMBERS: usize = (u32::MAX >> PAGE_BITS) as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_in_any_order_across_the_wrap_and_pages_go_back() {
        let (mut pool, mut slots) = (Pool::default(), Slots::new(64, 10));
        let number = |at: u32| Serial((u32::MAX - 20).wrapping_add(at));
        for round in 0..3u8 {
            // The last first.
            for at in (0..60u32).rev() {
                assert!(!slots.has(number(at)));
                slots.put(&mut pool, number(at), Flags(at as u8), &[at as u8, round]);
            }
            for at in 0..60u32 {
                assert_eq!(slots.get(number(at)), (Flags(at as u8), &[at as u8, round][..]));
                slots.clear(&mut pool, number(at));
                assert!(!slots.has(number(at)) && (at == 59 || slots.has(number(at + 1))));
            }
            assert!(slots.pages.is_empty() && slots.pages.capacity() <= EMPTY_LIST_PAGES_MAX);
            assert_eq!(pool.pages.len(), 8, "60 frames from the fourth of a page on");
        }
        slots.put(&mut pool, number(3), Flags::default(), &[1; 20]);
        assert_eq!(slots.get(number(3)).1.len(), 10, "cut to the room");
        slots.empty(&mut pool);
        assert!(!slots.has(number(3)) && pool.pages.len() == 8);
    }

    #[test]
    fn a_pool_keeps_a_bounded_number_of_bytes_and_pages_of_one_size() {
        let (mut pool, mut slots) = (Pool::default(), Slots::new(1 << 12, 9000));
        (0..1000).for_each(|at| slots.put(&mut pool, Serial(at), Flags::default(), &[1]));
        slots.empty(&mut pool);
        assert!(pool.pages.len() * PAGE_FRAMES * 9000 <= POOL_BYTES_MAX + PAGE_FRAMES * 9000 && !pool.pages.is_empty());
        let mut small = Slots::new(8, 10);
        small.put(&mut pool, Serial(0), Flags::default(), &[1; 10]);
        assert_eq!(small.get(Serial(0)).1, [1; 10]);
    }
}
