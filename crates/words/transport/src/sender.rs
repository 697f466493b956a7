//! The sending side of a connection: frames, retransmissions, acknowledgements.

use std::sync::Arc;

use crate::{
    Budget, Flags, Header, Nanos, Serial,
    order::{List, Lost},
    rtt::RoundTrip,
    slots::{Flight, FlightState, Pool, Slots},
    window::Window,
};

const FIRST_WINDOW_FRAMES: u32 = 16;
/// Minimum reordering window: frames overtaken by less than this are not retransmitted.
const REORDER_WINDOW_MIN: Nanos = 50_000;
/// Longest delay of an acknowledgement (receiver.rs).
pub(crate) const ACK_DELAY: Nanos = 100_000;

/// The next frame to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Data { number: Serial, is_retransmission: bool, wants_ack: bool },
    Probe,
}

#[derive(Debug)]
pub(crate) struct Sender {
    slots: Slots,
    /// First number that is not acknowledged.
    base: Serial,
    /// Next number to send for the first time.
    next: Serial,
    /// The last queued number, plus 1.
    end: Serial,
    /// The last number of the receive window, plus 1.
    limit: Serial,
    /// Frames in flight, in the order of their last transmission.
    in_flight: List,
    /// Lost frames that are not retransmitted yet.
    lost: Lost,
    window: Window,
    round_trip: RoundTrip,
    /// `next` at the start of this round, and at the last decrease of the window.
    round_ends: Serial,
    shrank_until: Serial,
    /// Transmission time of the latest frame that arrived.
    arrived_sent: Nanos,
    last_sent: Nanos,
    last_heard: Nanos,
    /// A tail loss probe was sent (RFC 8985), and no acknowledgement arrived since.
    tail_probed: bool,
    /// True: a lost frame may exceed the window, as the tail loss probe.
    may_exceed_window: bool,
    /// A window probe is due.
    probe: bool,
    /// Time since when the oldest data is not acknowledged.
    waiting_since: Nanos,
    pub(crate) resent: u64,
    /// Acknowledgements with a congestion echo.
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
            in_flight: List::default(),
            lost,
            window,
            round_trip: RoundTrip::default(),
            round_ends: first,
            shrank_until: first,
            arrived_sent: 0,
            last_sent: 0,
            last_heard: 0,
            tail_probed: false,
            may_exceed_window: false,
            probe: false,
            waiting_since: 0,
            resent: 0,
            echoes: 0,
        }
    }

    /// Restarts the timeout of unacknowledged frames.
    pub(crate) fn restart_timeout(&mut self, now: Nanos) {
        self.waiting_since = now;
    }

    /// Free frames of the send buffer.
    pub(crate) fn room(&self) -> u32 {
        self.slots.room_from(self.base).saturating_sub(self.end.since(self.base) as u32)
    }

    pub(crate) fn charge_to(&mut self, budget: Option<&Arc<Budget>>) {
        self.slots.charge_to(budget);
    }

    /// True if all queued frames are acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.base == self.end
    }

    pub(crate) fn next_number(&self) -> Serial {
        self.next
    }

    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        self.round_trip.smoothed()
    }

    /// Queues a frame, for which there has to be room.
    pub(crate) fn put(&mut self, pool: &mut Pool, now: Nanos, flags: Flags, payload: &[u8]) {
        if self.is_empty() {
            self.waiting_since = now;
        }
        self.slots.put(pool, self.end, flags, payload);
        self.end = self.end.plus(1);
    }

    pub(crate) fn payload(&self, number: Serial) -> (Flags, &[u8]) {
        self.slots.get(number)
    }

    /// True if `number` is not acknowledged and was sent, or is the next one.
    pub(crate) fn is_current(&self, number: Serial) -> bool {
        number.is_within(self.base, self.next.since(self.base) as u32 + 1)
    }

    /// Processes the acknowledgement, window and flags of a header.
    pub(crate) fn on_ack(&mut self, pool: &mut Pool, now: Nanos, header: &Header) {
        let ack = header.acknowledged;
        if ack.is_before(self.base) || self.next.is_before(ack) {
            // Older than the last acknowledgement, or of frames that were never sent.
            return;
        }
        let limit = ack.plus(u32::from(header.credit));
        let opens = self.limit.is_before(limit);
        if opens {
            self.limit = limit;
            self.probe = false;
        }
        if ack != self.base || header.credit == 0 {
            // The receiver makes progress, or is alive and has no room.
            self.waiting_since = now;
        }
        self.last_heard = now;
        (self.tail_probed, self.may_exceed_window) = (false, false);
        let (mut arrived, mut newest) = (0, None);
        let mut number = self.base;
        while number != ack {
            arrived += self.mark_arrived(number, &mut newest);
            self.slots.clear(pool, number);
            number = number.plus(1);
        }
        self.base = ack;
        let mut received = header.received;
        while received != 0 {
            let number = ack.plus(1 + received.trailing_zeros());
            received &= received - 1;
            if number.is_before(self.next) {
                arrived += self.mark_arrived(number, &mut newest);
            }
        }
        if let Some((sent, is_retransmission)) = newest {
            self.arrived_sent = self.arrived_sent.max(sent);
            // Only the latest frame is a sample, as acknowledgements of older ones may be lost; no retransmission is (Karn).
            if !is_retransmission {
                self.round_trip.add_sample(now.saturating_sub(sent));
            }
        }
        let marked = header.flags.has(Flags::ECHO);
        self.echoes += u64::from(marked);
        if arrived > 0 || opens {
            // Probes of a closed window keep backing off.
            self.round_trip.reset_backoff();
        }
        if arrived > 0 {
            self.window.acked(arrived, marked);
        }
        if !self.base.is_before(self.round_ends) {
            self.window.end_round();
            self.round_ends = self.next;
        }
        self.detect_losses(now);
    }

    /// Marks a frame as arrived; returns 1 if it was not before. Updates `newest`: transmission time and retransmission of the latest frame.
    fn mark_arrived(&mut self, number: Serial, newest: &mut Option<(Nanos, bool)>) -> u32 {
        let Some(&Flight { sent, state, is_retransmission, .. }) = self.slots.flight(number) else { return 0 };
        match state {
            FlightState::InFlight => self.in_flight.remove(&mut self.slots, number),
            FlightState::Lost => self.lost.remove(number),
            FlightState::New | FlightState::Arrived => return 0,
        }
        if let Some(flight) = self.slots.flight_mut(number) {
            flight.state = FlightState::Arrived;
        }
        if newest.is_none_or(|(before, _)| before <= sent) {
            *newest = Some((sent, is_retransmission));
        }
        1
    }

    fn mark_lost(&mut self, number: Serial) {
        self.in_flight.remove(&mut self.slots, number);
        self.lost.insert(number);
        if let Some(flight) = self.slots.flight_mut(number) {
            flight.state = FlightState::Lost;
        }
    }

    /// Reordering window (RFC 8985).
    fn reorder_window(&self) -> Nanos {
        self.round_trip.smoothed().map_or(REORDER_WINDOW_MIN, |time| (time / 4).max(REORDER_WINDOW_MIN))
    }

    /// Marks overtaken frames as lost (RACK, RFC 8985).
    fn detect_losses(&mut self, now: Nanos) {
        let mut found = false;
        while let Some((number, _)) = self.first_overtaken().filter(|&(_, at)| at <= now) {
            self.mark_lost(number);
            found = true;
        }
        if found && !self.base.is_before(self.shrank_until) {
            self.window.lost();
            self.shrank_until = self.next;
        }
    }

    /// The first frame that was overtaken, and the time at which it counts as lost.
    fn first_overtaken(&self) -> Option<(Serial, Nanos)> {
        let first = self.in_flight.first()?;
        let sent = self.slots.flight(first)?.sent;
        let trip = self.round_trip.smoothed().unwrap_or(0);
        (sent < self.arrived_sent).then(|| (first, sent + trip + self.reorder_window()))
    }

    /// Deadline of the next [`Sender::on_time`]; none: no timer runs.
    pub(crate) fn due(&self) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        if self.in_flight.count() == 0 && self.lost.count() == 0 {
            // Closed window: its update may be lost.
            let blocked = !self.next.is_before(self.limit) && !self.probe;
            return blocked.then(|| self.last_sent.max(self.last_heard) + self.round_trip.timeout());
        }
        let timeout = self.last_sent + self.round_trip.timeout();
        let tail = self.round_trip.smoothed().filter(|_| !self.tail_probed && self.in_flight.count() > 0);
        let tail = tail.map(|trip| self.last_sent + 2 * trip + 2 * ACK_DELAY);
        let late = self.first_overtaken().map(|(_, at)| at);
        [Some(timeout), tail, late].into_iter().flatten().min()
    }

    /// Processes expired timers.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        if self.is_empty() {
            return;
        }
        self.detect_losses(now);
        if self.in_flight.count() == 0 && self.lost.count() == 0 {
            let since = self.last_sent.max(self.last_heard);
            if !self.next.is_before(self.limit) && now >= since + self.round_trip.timeout() {
                self.round_trip.back_off();
                self.last_sent = now;
                self.probe = true;
            }
            return;
        }
        if self.in_flight.count() == 0 {
            return;
        }
        if now >= self.last_sent + self.round_trip.timeout() {
            self.mark_all_lost();
            self.round_trip.back_off();
            self.window.timed_out();
            self.shrank_until = self.next;
            self.last_sent = now;
        } else if let Some(trip) = self.round_trip.smoothed()
            && !self.tail_probed
            && now >= self.last_sent + 2 * trip + 2 * ACK_DELAY
        {
            // Tail loss probe: no later frame reveals the loss of the last one. The first unacknowledged frame is sent again, as a selective
            // acknowledgement might not reach to the last one.
            self.tail_probed = true;
            self.may_exceed_window = true;
            if self.slots.flight(self.base).is_some_and(|flight| flight.state == FlightState::InFlight) {
                self.mark_lost(self.base);
            }
        }
    }

    fn mark_all_lost(&mut self) {
        while let Some(number) = self.in_flight.first() {
            self.mark_lost(number);
        }
    }

    /// The next frame to send now.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Next> {
        let within = self.in_flight.count() < self.window.frames();
        if (within || self.may_exceed_window)
            && let Some(number) = self.lost.first()
        {
            self.may_exceed_window = false;
            self.resent += 1;
            self.lost.remove(number);
            self.on_sent(now, number, true);
            return Some(Next::Data { number, is_retransmission: true, wants_ack: true });
        }
        if self.next != self.end && self.next.is_before(self.limit) && within {
            let number = self.next;
            self.next = number.plus(1);
            self.on_sent(now, number, false);
            // The last frame that the window allows wants an acknowledgement.
            let stops = !self.next.is_before(self.limit) || self.in_flight.count() >= self.window.frames();
            return Some(Next::Data { number, is_retransmission: false, wants_ack: stops });
        }
        std::mem::take(&mut self.probe).then_some(Next::Probe)
    }

    fn on_sent(&mut self, now: Nanos, number: Serial, is_retransmission: bool) {
        // Transmission times are unique, as their order decides what is lost.
        let now = now.max(self.last_sent + 1);
        if let Some(flight) = self.slots.flight_mut(number) {
            *flight = Flight { sent: now, state: FlightState::InFlight, is_retransmission, ..*flight };
        }
        self.in_flight.push(&mut self.slots, number);
        self.last_sent = now;
    }

    /// Frees the buffer for good.
    pub(crate) fn stop(&mut self, pool: &mut Pool) {
        self.slots.empty(pool);
        (self.in_flight, self.lost) = (List::default(), Lost::new(self.slots.count()));
    }

    /// Time since when data is not acknowledged; none: all is.
    pub(crate) fn waiting_since(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(self.waiting_since)
    }
}
