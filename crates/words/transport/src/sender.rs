//! One end's way out: what is sent, again if it must be, and what arrived.

use crate::{Flags, Header, Nanos, Serial, header::RECEIVED_BITS, rtt::RoundTrip, slots::Slots, window::Window};

/// Frames that may be under way before anything is heard.
const FIRST_WINDOW: u32 = 16;
/// A frame that arrives this much later than one sent after it is late, not lost, at the least.
const REORDERED: Nanos = 50_000;
/// The receiver may keep an acknowledgement for this long (receiver.rs); twice of it before the last frame is sent again.
pub(crate) const ACK_DELAY: Nanos = 100_000;

#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    sent: Nanos,
    times: u32,
    arrived: bool,
    lost: bool,
}

/// What is to be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Data { number: Serial, again: bool, ask: bool },
    Probe,
}

#[derive(Debug)]
pub(crate) struct Sender {
    slots: Slots,
    flights: Box<[Flight]>,
    /// The first that has not arrived.
    base: Serial,
    /// The next one that is sent for the first time.
    next: Serial,
    /// Behind the last one that was put in.
    end: Serial,
    /// Behind the last one that the receiver has room for.
    limit: Serial,
    /// Under way: sent, and neither arrived nor given up.
    under_way: u32,
    /// Given up, not sent again yet.
    lost: u32,
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
    tail_asked: bool,
    /// Ask the receiver whether it has room again.
    probe: bool,
    /// When waiting began for something that the receiver has yet to say.
    waits_since: Nanos,
    /// Frames that were sent again.
    pub(crate) resent: u64,
    /// Acknowledgements with an echo of congestion.
    pub(crate) echoes: u64,
}

impl Sender {
    pub(crate) fn new(first: Serial, slots: u32, payload_max: u16) -> Self {
        let slots = Slots::new(slots, payload_max);
        let flights = vec![Flight::default(); slots.count() as usize].into();
        let window = Window::new(FIRST_WINDOW, slots.count());
        Self {
            slots,
            flights,
            base: first,
            next: first,
            end: first,
            limit: first,
            under_way: 0,
            lost: 0,
            window,
            round_trip: RoundTrip::default(),
            round_ends: first,
            shrank_until: first,
            arrived_sent: 0,
            last_sent: 0,
            last_heard: 0,
            tail_asked: false,
            probe: false,
            waits_since: 0,
            resent: 0,
            echoes: 0,
        }
    }

    fn flight(&mut self, number: Serial) -> &mut Flight {
        let mask = self.flights.len() - 1;
        &mut self.flights[number.0 as usize & mask]
    }

    /// Frames that can be put in.
    pub(crate) fn room(&self) -> u32 {
        self.slots.count() - self.end.since(self.base) as u32
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
    pub(crate) fn put(&mut self, now: Nanos, flags: Flags, payload: &[u8]) {
        if self.is_empty() {
            self.waits_since = now;
        }
        self.slots.put(self.end, flags, payload);
        *self.flight(self.end) = Flight::default();
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
    pub(crate) fn heard(&mut self, now: Nanos, header: &Header) {
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
        self.tail_asked = false;
        let mut arrived = 0;
        let mut number = self.base;
        while number != ack {
            arrived += self.arrives(now, number);
            self.slots.clear(number);
            number = number.plus(1);
        }
        self.base = ack;
        for bit in (0..RECEIVED_BITS).filter(|bit| header.received >> bit & 1 == 1) {
            let number = ack.plus(1 + bit);
            if number.is_before(self.next) {
                arrived += self.arrives(now, number);
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

    /// 1 if it was not known to have arrived.
    fn arrives(&mut self, now: Nanos, number: Serial) -> u32 {
        let flight = self.flight(number);
        if flight.arrived || flight.times == 0 {
            return 0;
        }
        flight.arrived = true;
        let Flight { sent, times, lost, .. } = *flight;
        flight.lost = false;
        if lost {
            self.lost -= 1;
        } else {
            self.under_way -= 1;
        }
        // Which of several was answered cannot be told.
        if times == 1 {
            self.round_trip.measured(now.saturating_sub(sent));
        }
        self.arrived_sent = self.arrived_sent.max(sent);
        1
    }

    /// The time by which a frame may come after one that was sent later.
    fn late(&self) -> Nanos {
        self.round_trip.smoothed().map_or(REORDERED, |time| (time / 4).max(REORDERED))
    }

    /// Gives up frames that were sent so much before one that arrived that they would have come (RACK, RFC 8985). When the next one is due.
    fn find_lost(&mut self, now: Nanos) -> Option<Nanos> {
        let (late, trip) = (self.late(), self.round_trip.smoothed().unwrap_or(0));
        let (mut number, mut due) = (self.base, None);
        let mut found = false;
        while number != self.next {
            let arrived_sent = self.arrived_sent;
            let flight = self.flight(number);
            if !flight.arrived && !flight.lost && flight.sent < arrived_sent {
                let at = flight.sent + trip + late;
                if at <= now {
                    flight.lost = true;
                    found = true;
                    self.under_way -= 1;
                    self.lost += 1;
                } else {
                    due = Some(due.map_or(at, |d: Nanos| d.min(at)));
                }
            }
            number = number.plus(1);
        }
        if found && !self.base.is_before(self.shrank_until) {
            self.window.lost();
            self.shrank_until = self.next;
        }
        due
    }

    /// When [`Sender::on_time`] is to be called; none: nothing is waited for.
    pub(crate) fn due(&self) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        if self.under_way == 0 && self.lost == 0 {
            // No room at the receiver: it may have said otherwise, and that was lost.
            let blocked = !self.next.is_before(self.limit) && !self.probe;
            return blocked.then(|| self.last_sent.max(self.last_heard) + self.round_trip.timeout());
        }
        let timeout = self.last_sent + self.round_trip.timeout();
        let tail = self.round_trip.smoothed().filter(|_| !self.tail_asked && self.under_way > 0);
        let tail = tail.map(|trip| self.last_sent + 2 * trip + 2 * ACK_DELAY);
        let late = self.first_late();
        [Some(timeout), tail, late].into_iter().flatten().min()
    }

    fn first_late(&self) -> Option<Nanos> {
        let (late, trip) = (self.late(), self.round_trip.smoothed()?);
        let mask = self.flights.len() - 1;
        let numbers = (0..self.next.since(self.base) as u32).map(|i| self.base.plus(i).0 as usize & mask);
        let flights = numbers.map(|at| &self.flights[at]);
        let open = flights.filter(|f| !f.arrived && !f.lost && f.sent < self.arrived_sent);
        open.map(|f| f.sent + trip + late).min()
    }

    /// Time has gone by.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        if self.is_empty() {
            return;
        }
        self.find_lost(now);
        if self.under_way == 0 && self.lost == 0 {
            let since = self.last_sent.max(self.last_heard);
            if !self.next.is_before(self.limit) && now >= since + self.round_trip.timeout() {
                self.round_trip.double();
                self.last_sent = now;
                self.probe = true;
            }
            return;
        }
        if self.under_way == 0 {
            return;
        }
        if now >= self.last_sent + self.round_trip.timeout() {
            self.give_up_all();
            self.round_trip.double();
            self.window.timed_out();
            self.shrank_until = self.next;
            self.last_sent = now;
        } else if let Some(trip) = self.round_trip.smoothed()
            && !self.tail_asked
            && now >= self.last_sent + 2 * trip + 2 * ACK_DELAY
        {
            // The last one may be all that is missing, and nothing that comes later would show it.
            self.tail_asked = true;
            self.give_up_last();
        }
    }

    fn give_up_all(&mut self) {
        let mut number = self.base;
        while number != self.next {
            let flight = self.flight(number);
            if !flight.arrived && !flight.lost {
                flight.lost = true;
                self.under_way -= 1;
                self.lost += 1;
            }
            number = number.plus(1);
        }
    }

    fn give_up_last(&mut self) {
        let mut number = self.next;
        while number != self.base {
            number = number.plus(u32::MAX);
            let flight = self.flight(number);
            if !flight.arrived && !flight.lost {
                flight.lost = true;
                self.under_way -= 1;
                self.lost += 1;
                return;
            }
        }
    }

    /// What is to be sent now.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Next> {
        if self.lost > 0 && (self.under_way < self.window.frames() || self.tail_asked) {
            let mut number = self.base;
            while number != self.next {
                if self.flight(number).lost {
                    self.lost -= 1;
                    self.resent += 1;
                    self.sends(now, number);
                    return Some(Next::Data { number, again: true, ask: true });
                }
                number = number.plus(1);
            }
        }
        if self.next != self.end && self.next.is_before(self.limit) && self.under_way < self.window.frames() {
            let number = self.next;
            self.next = number.plus(1);
            self.sends(now, number);
            // What can send no more waits for an answer.
            let stops = !self.next.is_before(self.limit) || self.under_way >= self.window.frames();
            return Some(Next::Data { number, again: false, ask: stops });
        }
        std::mem::take(&mut self.probe).then_some(Next::Probe)
    }

    fn sends(&mut self, now: Nanos, number: Serial) {
        let flight = self.flight(number);
        *flight = Flight { sent: now, times: flight.times + 1, arrived: false, lost: false };
        self.under_way += 1;
        self.last_sent = now;
    }

    /// Since when the receiver has yet to say something; none if nothing is waited for.
    pub(crate) fn waits_since(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(self.waits_since)
    }
}
