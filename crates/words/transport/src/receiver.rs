//! The receiving side of a connection: each frame once, in order.

use std::sync::Arc;

use crate::{
    Budget, Flags, Nanos, Serial,
    header::RECEIVED_BITS,
    sender::ACK_DELAY,
    slots::{Pool, Slots},
};

/// Data frames per acknowledgement.
const FRAMES_PER_ACK: u32 = 2;

/// Result of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    Duplicate,
    /// The frame is beyond the advertised credit.
    NoRoom,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    slots: Slots,
    /// Next number to read by the application.
    read: Serial,
    /// First number that has not arrived.
    next: Serial,
    /// The highest number that arrived, plus 1.
    end: Serial,
    /// Number of the last frame, once it has arrived.
    fin: Option<Serial>,
    unacknowledged: u32,
    ack_at: Option<Nanos>,
    advertised_credit: u32,
    /// A congestion mark has to be echoed.
    congested: bool,
}

impl Receiver {
    pub(crate) fn new(first: Serial, slots: u32, payload_max: u16) -> Self {
        let slots = Slots::new(slots, payload_max);
        let advertised_credit = slots.count();
        Self {
            slots,
            read: first,
            next: first,
            end: first,
            fin: None,
            unacknowledged: 0,
            ack_at: None,
            advertised_credit,
            congested: false,
        }
    }

    pub(crate) fn acknowledged(&self) -> Serial {
        self.next
    }

    /// Receive window in frames.
    pub(crate) fn credit(&self) -> u32 {
        self.room().saturating_sub(self.next.since(self.read) as u32)
    }

    /// Size of the receive buffer in frames.
    fn room(&self) -> u32 {
        self.slots.room_from(self.read)
    }

    pub(crate) fn charge_to(&mut self, budget: Option<&Arc<Budget>>) {
        self.slots.charge_to(budget);
    }

    /// Selective acknowledgement: bits of the frames after the first gap.
    pub(crate) fn received(&self) -> u32 {
        let beyond = (self.end.since(self.next) - 1).clamp(0, RECEIVED_BITS as i32) as u32;
        (0..beyond).fold(0, |bits, bit| bits | u32::from(self.slots.has(self.next.plus(1 + bit))) << bit)
    }

    /// Stores a data frame.
    pub(crate) fn take(&mut self, pool: &mut Pool, now: Nanos, number: Serial, flags: Flags, payload: &[u8]) -> Taken {
        let room = number.is_within(self.read, self.room());
        self.congested |= flags.has(Flags::CONGESTED) && room;
        let taken = if number.is_before(self.next) {
            Taken::Duplicate
        } else if !room || self.fin.is_some_and(|fin| fin.is_before(number)) {
            Taken::NoRoom
        } else if self.slots.has(number) {
            Taken::Duplicate
        } else {
            self.slots.put(pool, number, flags, payload);
            Taken::New
        };
        if taken != Taken::New {
            // The sender does not know what arrived.
            self.ack_at = Some(now);
            return taken;
        }
        let in_order = number == self.next && !self.next.is_before(self.end);
        if self.end.is_before(number.plus(1)) {
            self.end = number.plus(1);
        }
        while self.next.is_before(self.end) && self.slots.has(self.next) {
            if self.slots.get(self.next).0.has(Flags::FIN) {
                self.fin = Some(self.next);
            }
            self.next = self.next.plus(1);
        }
        self.unacknowledged += 1;
        let at_once =
            !in_order || flags.has(Flags::ASK) || flags.has(Flags::FIN) || self.unacknowledged >= FRAMES_PER_ACK;
        let at = if at_once { now } else { now + ACK_DELAY };
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
        taken
    }

    /// Makes an acknowledgement due now.
    pub(crate) fn request_ack(&mut self, now: Nanos) {
        self.ack_at = Some(now);
    }

    /// Time of the next acknowledgement.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.ack_at
    }

    /// Records that an acknowledgement is sent. True: it has to echo congestion.
    pub(crate) fn on_ack_sent(&mut self) -> bool {
        self.unacknowledged = 0;
        self.ack_at = None;
        self.advertised_credit = self.credit();
        std::mem::take(&mut self.congested)
    }

    /// The next frame in order, if it has arrived.
    pub(crate) fn peek(&self) -> Option<(Flags, &[u8])> {
        self.read.is_before(self.next).then(|| self.slots.get(self.read))
    }

    /// The frame at an offset from the next one.
    pub(crate) fn peek_at(&self, at: u32) -> Option<(Flags, &[u8])> {
        let number = self.read.plus(at);
        (at < self.slots.count() && number.is_before(self.next)).then(|| self.slots.get(number))
    }

    /// Frees `count` frames that were read.
    pub(crate) fn consume(&mut self, pool: &mut Pool, now: Nanos, count: u32) {
        for _ in 0..count {
            self.slots.clear(pool, self.read);
            self.read = self.read.plus(1);
        }
        // A sender that stands still is told as soon as it is worth while.
        let half = self.room().div_ceil(2);
        if self.advertised_credit < half.div_ceil(2) && self.credit() >= half {
            self.ack_at = Some(now);
        }
    }

    /// Drops all unread frames.
    pub(crate) fn consume_all(&mut self, pool: &mut Pool, now: Nanos) {
        self.consume(pool, now, self.next.since(self.read).max(0).cast_unsigned());
    }

    /// Frees the buffer for good.
    pub(crate) fn stop(&mut self, pool: &mut Pool) {
        self.slots.empty(pool);
    }

    /// True if data is unread; the FIN does not count.
    pub(crate) fn has_unread(&self) -> bool {
        self.peek().is_some_and(|(flags, _)| !flags.has(Flags::FIN))
    }

    /// True if the FIN is next.
    pub(crate) fn is_at_end(&self) -> bool {
        self.fin.is_some_and(|fin| self.read == fin.plus(1))
    }

    /// True if all frames up to the FIN have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.fin.is_some()
    }

    /// Filled share of the receive buffer.
    pub(crate) fn filled(&self) -> f64 {
        f64::from(self.next.since(self.read)) / f64::from(self.room())
    }
}
