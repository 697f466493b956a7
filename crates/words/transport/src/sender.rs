//! The sending side of a connection: frames, retransmissions, acknowledgements.

use std::sync::Arc;

use crate::{
    Budget, Flags, Header, Nanos, Serial,
    order::{List, Lost},
    rtt::RoundTrip,
    slots::{Flight, Pool, Slots, Stage},
    window::Window,
};

/// Initial window.
const FIRST_WINDOW_FRAMES: u32 = 16;
/// Minimum reordering window: frames overtaken by less than this are not retransmitted.
const REORDER_WINDOW_MIN: Nanos = 50_000;
/// The receiver may keep an acknowledgement for this long (receiver.rs); twice of it before the last frame is sent again.
pub(crate) const ACK_DELAY: Nanos = 100_000;

/// The next frame to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Data { number: Serial, again: bool, ask: bool },
    Probe,
}

#[derive(Debug)]
pub(crate) struct Sender {
    slots: Slots,
    /// The first that has not arrived.
    base: Serial,
    /// The next one that is sent for the first time.
    next: Serial,
    /// Behind the last one that was put in.
    end: Serial,
    /// Behind the last one that the receiver has room for.
    limit: Serial,
    /// Sent, and neither arrived nor given up, in the order in which they were sent.
    under_way: List,
    /// Given up, not sent again yet.
    lost: Lost,
    window: Window,
    round_trip: RoundTrip,
    /// Behind what was sent when this round began, and when the window last shrank.
    round_ends: Serial,
    shrank_until: Serial,
    /// When the latest of those that arrived was sent.
    arrived_sent: Nanos,
    last_sent: Nanos,
    last_heard: Nanos,
    /// The last frame was sent again to hear of what is under way; nothing was heard since.
    tail_probed: bool,
    /// One lost frame may go beyond the window: the one that asks.
    beyond: bool,
    /// Ask the receiver whether it has room again.
    probe: bool,
    /// When waiting began for something that the receiver has yet to say.
    waits_since: Nanos,
    pub(crate) resent: u64,
    /// Acknowledgements with an echo of congestion.
    pub(crate) echoes: u64,
}

impl Sender {
    pub(crate) fn new(first: Serial, slots: u32, payload_max: u16) -> Self {
        let slots = Slots::new(slots, payload_max);
        let (window, lost) = (Window::new(FIRST_WINDOW_FRAMES, slots.count()), Lost::new(slots.count()));
        Self {
            slots,
            base: first,
            next: first,
            end: first,
            limit: first,
            under_way: List::default(),
            lost,
            window,
            round_trip: RoundTrip::default(),
            round_ends: first,
            shrank_until: first,
            arrived_sent: 0,
            last_sent: 0,
            last_heard: 0,
            tail_probed: false,
            beyond: false,
            probe: false,
            waits_since: 0,
            resent: 0,
            echoes: 0,
        }
    }

    /// Restarts the time that unacknowledged frames have waited.
    pub(crate) fn wait_anew(&mut self, now: Nanos) {
        self.waits_since = now;
    }

    /// Frames that can be put in.
    pub(crate) fn room(&self) -> u32 {
        self.slots.room_from(self.base).saturating_sub(self.end.since(self.base) as u32)
    }

    /// Counts its memory there from now on.
    pub(crate) fn share(&mut self, budget: &Arc<Budget>) {
        self.slots.part.share(budget);
    }

    /// All that was put in has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.base == self.end
    }

    pub(crate) fn next_number(&self) -> Serial {
        self.next
    }

    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        self.round_trip.smoothed()
    }

    /// Puts a frame in. There has to be room.
    pub(crate) fn put(&mut self, pool: &mut Pool, now: Nanos, flags: Flags, payload: &[u8]) {
        if self.is_empty() {
            self.waits_since = now;
        }
        self.slots.put(pool, self.end, flags, payload);
        self.end = self.end.plus(1);
    }

    pub(crate) fn payload(&self, number: Serial) -> (Flags, &[u8]) {
        self.slots.get(number)
    }

    /// True if `number` was sent and has yet to arrive, or is the next one.
    pub(crate) fn is_current(&self, number: Serial) -> bool {
        number.is_within(self.base, self.next.since(self.base) as u32 + 1)
    }

    /// Takes what a header of the receiver says.
    pub(crate) fn heard(&mut self, pool: &mut Pool, now: Nanos, header: &Header) {
        let ack = header.acknowledged;
        if ack.is_before(self.base) || self.next.is_before(ack) {
            // Older than one that came before, or of frames that were never sent.
            return;
        }
        let limit = ack.plus(u32::from(header.credit));
        let opens = self.limit.is_before(limit);
        if opens {
            self.limit = limit;
            self.probe = false;
        }
        if ack != self.base || header.credit == 0 {
            // It goes on, or is there and has no room.
            self.waits_since = now;
        }
        self.last_heard = now;
        (self.tail_probed, self.beyond) = (false, false);
        let (mut arrived, mut newest) = (0, None);
        let mut number = self.base;
        while number != ack {
            arrived += self.arrives(number, &mut newest);
            self.slots.clear(pool, number);
            number = number.plus(1);
        }
        self.base = ack;
        let mut received = header.received;
        while received != 0 {
            let number = ack.plus(1 + received.trailing_zeros());
            received &= received - 1;
            if number.is_before(self.next) {
                arrived += self.arrives(number, &mut newest);
            }
        }
        if let Some((sent, again)) = newest {
            self.arrived_sent = self.arrived_sent.max(sent);
            // What was sent last is what was answered; the answers to older ones may have been lost. Which of several was answered cannot be told.
            if !again {
                self.round_trip.measured(now.saturating_sub(sent));
            }
        }
        let marked = header.flags.has(Flags::ECHO);
        self.echoes += u64::from(marked);
        if arrived > 0 || opens {
            // One without room is asked ever less often.
            self.round_trip.heard();
        }
        if arrived > 0 {
            self.window.acked(arrived, marked);
        }
        if !self.base.is_before(self.round_ends) {
            self.window.round();
            self.round_ends = self.next;
        }
        self.find_lost(now);
    }

    /// 1 if it was not known to have arrived. `newest` is when the one of those that arrive now that was sent last was sent, and whether it was again.
    fn arrives(&mut self, number: Serial, newest: &mut Option<(Nanos, bool)>) -> u32 {
        let Some(&Flight { sent, stage, again, .. }) = self.slots.flight(number) else { return 0 };
        match stage {
            Stage::UnderWay => self.under_way.remove(&mut self.slots, number),
            Stage::Lost => self.lost.remove(number),
            Stage::New | Stage::Arrived => return 0,
        }
        if let Some(flight) = self.slots.flight_mut(number) {
            flight.stage = Stage::Arrived;
        }
        if newest.is_none_or(|(before, _)| before <= sent) {
            *newest = Some((sent, again));
        }
        1
    }

    fn give_up(&mut self, number: Serial) {
        self.under_way.remove(&mut self.slots, number);
        self.lost.insert(number);
        if let Some(flight) = self.slots.flight_mut(number) {
            flight.stage = Stage::Lost;
        }
    }

    /// The time by which a frame may come after one that was sent later.
    fn late(&self) -> Nanos {
        self.round_trip.smoothed().map_or(REORDER_WINDOW_MIN, |time| (time / 4).max(REORDER_WINDOW_MIN))
    }

    /// Gives up frames that were sent so much before one that arrived that they would have come (RACK, RFC 8985).
    fn find_lost(&mut self, now: Nanos) {
        let mut found = false;
        while let Some((number, _)) = self.first_late().filter(|&(_, at)| at <= now) {
            self.give_up(number);
            found = true;
        }
        if found && !self.base.is_before(self.shrank_until) {
            self.window.lost();
            self.shrank_until = self.next;
        }
    }

    /// The first that was sent before one that arrived, and when it is to be given up.
    fn first_late(&self) -> Option<(Serial, Nanos)> {
        let first = self.under_way.first()?;
        let sent = self.slots.flight(first)?.sent;
        let trip = self.round_trip.smoothed().unwrap_or(0);
        (sent < self.arrived_sent).then(|| (first, sent + trip + self.late()))
    }

    /// When [`Sender::on_time`] is to be called; none: nothing is waited for.
    pub(crate) fn due(&self) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        if self.under_way.count() == 0 && self.lost.count() == 0 {
            // No room at the receiver: it may have said otherwise, and that was lost.
            let blocked = !self.next.is_before(self.limit) && !self.probe;
            return blocked.then(|| self.last_sent.max(self.last_heard) + self.round_trip.timeout());
        }
        let timeout = self.last_sent + self.round_trip.timeout();
        let tail = self.round_trip.smoothed().filter(|_| !self.tail_probed && self.under_way.count() > 0);
        let tail = tail.map(|trip| self.last_sent + 2 * trip + 2 * ACK_DELAY);
        let late = self.first_late().map(|(_, at)| at);
        [Some(timeout), tail, late].into_iter().flatten().min()
    }

    /// Time has gone by.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        if self.is_empty() {
            return;
        }
        self.find_lost(now);
        if self.under_way.count() == 0 && self.lost.count() == 0 {
            let since = self.last_sent.max(self.last_heard);
            if !self.next.is_before(self.limit) && now >= since + self.round_trip.timeout() {
                self.round_trip.double();
                self.last_sent = now;
                self.probe = true;
            }
            return;
        }
        if self.under_way.count() == 0 {
            return;
        }
        if now >= self.last_sent + self.round_trip.timeout() {
            self.give_up_all();
            self.round_trip.double();
            self.window.timed_out();
            self.shrank_until = self.next;
            self.last_sent = now;
        } else if let Some(trip) = self.round_trip.smoothed()
            && !self.tail_probed
            && now >= self.last_sent + 2 * trip + 2 * ACK_DELAY
        {
            // What is missing may be the last that was sent, and nothing that comes later would show it. The first is sent again: it is missing, or all that
            // was heard of it was lost. Of the last one an acknowledgement might be unable to tell.
            self.tail_probed = true;
            self.beyond = true;
            if self.slots.flight(self.base).is_some_and(|flight| flight.stage == Stage::UnderWay) {
                self.give_up(self.base);
            }
        }
    }

    fn give_up_all(&mut self) {
        while let Some(number) = self.under_way.first() {
            self.give_up(number);
        }
    }

    /// The next frame to send now.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Next> {
        let within = self.under_way.count() < self.window.frames();
        if (within || self.beyond)
            && let Some(number) = self.lost.first()
        {
            self.beyond = false;
            self.resent += 1;
            self.lost.remove(number);
            self.sends(now, number, true);
            return Some(Next::Data { number, again: true, ask: true });
        }
        if self.next != self.end && self.next.is_before(self.limit) && within {
            let number = self.next;
            self.next = number.plus(1);
            self.sends(now, number, false);
            // What can send no more waits for an answer.
            let stops = !self.next.is_before(self.limit) || self.under_way.count() >= self.window.frames();
            return Some(Next::Data { number, again: false, ask: stops });
        }
        std::mem::take(&mut self.probe).then_some(Next::Probe)
    }

    fn sends(&mut self, now: Nanos, number: Serial, again: bool) {
        // No two at one moment: which of them was sent first tells what is lost.
        let now = now.max(self.last_sent + 1);
        if let Some(flight) = self.slots.flight_mut(number) {
            *flight = Flight { sent: now, stage: Stage::UnderWay, again, ..*flight };
        }
        self.under_way.push(&mut self.slots, number);
        self.last_sent = now;
    }

    /// Nothing is sent any longer.
    pub(crate) fn stop(&mut self, pool: &mut Pool) {
        self.slots.empty(pool);
        (self.under_way, self.lost) = (List::default(), Lost::new(self.slots.count()));
    }

    /// Since when the receiver has yet to say something; none if nothing is waited for.
    pub(crate) fn waits_since(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(self.waits_since)
    }
}
