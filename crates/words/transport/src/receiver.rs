//! The receiving side of a connection: frames in order of their numbers, each once.

use std::sync::Arc;

use crate::{
    Budget, Flags, Nanos, Serial,
    header::RECEIVED_BITS,
    sender::ACK_DELAY,
    slots::{Pool, Slots},
};

/// Frames for one acknowledgement.
const FRAMES_PER_ACK: u32 = 2;

/// Result of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    Again,
    /// There is no room for it: its sender did not keep to its credit.
    NoRoom,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    slots: Slots,
    /// The next number that the application reads.
    read: Serial,
    /// The first that has not arrived.
    next: Serial,
    /// Behind the highest that arrived.
    end: Serial,
    /// The number of the last one, once it has arrived.
    fin: Option<Serial>,
    unacknowledged: u32,
    ack_at: Option<Nanos>,
    advertised_credit: u32,
    /// Frames of congestion that the sender has yet to hear of.
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

    /// Frames behind the acknowledged ones that there is room for.
    pub(crate) fn credit(&self) -> u32 {
        self.room().saturating_sub(self.next.since(self.read) as u32)
    }

    /// Frames that there is room for, those that wait to be read included.
    fn room(&self) -> u32 {
        self.slots.room_from(self.read)
    }

    /// Counts its memory there from now on.
    pub(crate) fn share(&mut self, budget: &Arc<Budget>) {
        self.slots.part.share(budget);
    }

    /// What arrived behind the first gap.
    pub(crate) fn received(&self) -> u32 {
        let beyond = (self.end.since(self.next) - 1).clamp(0, RECEIVED_BITS as i32) as u32;
        (0..beyond).fold(0, |bits, bit| bits | u32::from(self.slots.has(self.next.plus(1 + bit))) << bit)
    }

    /// A frame of data.
    pub(crate) fn take(&mut self, pool: &mut Pool, now: Nanos, number: Serial, flags: Flags, payload: &[u8]) -> Taken {
        let room = number.is_within(self.read, self.room());
        self.congested |= flags.has(Flags::CONGESTED) && room;
        let taken = if number.is_before(self.next) {
            Taken::Again
        } else if !room || self.fin.is_some_and(|fin| fin.is_before(number)) {
            Taken::NoRoom
        } else if self.slots.has(number) {
            Taken::Again
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

    /// An acknowledgement is wanted.
    pub(crate) fn asked(&mut self, now: Nanos) {
        self.ack_at = Some(now);
    }

    /// When an acknowledgement is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.ack_at
    }

    /// A frame with an acknowledgement is on its way. True: it is to echo congestion.
    pub(crate) fn acknowledges(&mut self) -> bool {
        self.unacknowledged = 0;
        self.ack_at = None;
        self.advertised_credit = self.credit();
        std::mem::take(&mut self.congested)
    }

    /// The next frame in order; none: it has yet to come.
    pub(crate) fn peek(&self) -> Option<(Flags, &[u8])> {
        self.read.is_before(self.next).then(|| self.slots.get(self.read))
    }

    /// The `at`th frame from the next one on.
    pub(crate) fn peek_at(&self, at: u32) -> Option<(Flags, &[u8])> {
        let number = self.read.plus(at);
        (at < self.slots.count() && number.is_before(self.next)).then(|| self.slots.get(number))
    }

    /// The application has read `count` frames.
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

    /// What is there is dropped, as if it had been read.
    pub(crate) fn consume_all(&mut self, pool: &mut Pool, now: Nanos) {
        self.consume(pool, now, self.next.since(self.read).max(0).cast_unsigned());
    }

    /// Nothing of it is read any longer.
    pub(crate) fn stop(&mut self, pool: &mut Pool) {
        self.slots.empty(pool);
    }

    /// Something that the other end sent waits to be read; that nothing follows does not count.
    pub(crate) fn has_unread(&self) -> bool {
        self.peek().is_some_and(|(flags, _)| !flags.has(Flags::FIN))
    }

    /// All has been read, and nothing follows.
    pub(crate) fn is_at_end(&self) -> bool {
        self.fin.is_some_and(|fin| self.read == fin.plus(1))
    }

    /// The last one has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.fin.is_some()
    }

    /// Frames that wait for the application, as a share of the room.
    pub(crate) fn filled(&self) -> f64 {
        f64::from(self.next.since(self.read)) / f64::from(self.room())
    }
}
