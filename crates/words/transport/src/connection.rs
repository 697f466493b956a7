//! One end of a connection: frames and time in, frames and states out.

mod words;

pub use self::words::{Counts, Outgoing, SendError, Settings, State};
use std::sync::Arc;

use crate::{
    Budget, Flags, HEADER_BYTES, Header, Kind, Nanos, Offer, Reason, Serial,
    receiver::{Receiver, Taken},
    rtt::TIMEOUT_MIN,
    sender::{Next, Sender},
    slots::Pool,
};

/// A peer that says nothing to what waits for it is given up after this.
pub const PEER_TIMEOUT: Nanos = 10_000_000_000;
/// Numbers of an ended connection are not used again before this; its duplicates are answered until then.
pub const REST_TIME: Nanos = 2_000_000_000;
/// From this share of the room on the receiver says that it is congested.
const CONGESTED_SHARE: f64 = 0.5;
/// Between two offers at the most.
const OFFER_PERIOD_MAX: Nanos = 1_000_000_000;
/// An answer to an offer is sent again after this, and after this many times the wait each time: 4, 32, 256 and 2048 ms.
const ANSWER_TIMEOUT: Nanos = 4_000_000;
const ANSWER_BACKOFF: u64 = 8;
/// Retransmissions of an answer to an offer.
const ANSWER_RETRIES_MAX: u32 = 4;

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    settings: Settings,
    state: State,
    peer_number: u32,
    peer_epoch: Option<u32>,
    /// This end answers an offer rather than making one.
    accepts: bool,
    sender: Sender,
    receiver: Option<Receiver>,
    /// Bytes of the next piece of a stream that have been read.
    taken: usize,
    payload_max: u16,
    fin_sent: bool,
    /// When the offer, or the answer to it, is to be sent; none: not.
    offer_at: Option<Nanos>,
    offer_wait: Nanos,
    /// How often the answer to an offer is still sent by itself.
    answers_left: u32,
    opened_at: Nanos,
    /// None: it does not rest, or no longer.
    rests_until: Option<Nanos>,
    reset: Option<(Reason, Serial)>,
    counts: Counts,
    offer: [u8; Offer::BYTES],
    reason: [u8; 1],
    polled: Part,
    /// Of the node while it works on this connection; otherwise of this connection alone.
    pool: Pool,
}

/// The payload of a frame that is sent.
#[derive(Debug, Clone, Copy)]
enum Part {
    Nothing,
    Reason,
    Offer,
    Data(Serial),
}

impl Connection {
    /// Offers a connection.
    pub fn open(now: Nanos, settings: Settings) -> Self {
        Self::new(now, settings, false)
    }

    /// Accepts what `header` offers. It is open once the other end acknowledges the answer; an end that does not is given up after [`PEER_TIMEOUT`].
    pub fn accept(now: Nanos, settings: Settings, header: &Header, offer: &Offer) -> Self {
        let mut this = Self::new(now, settings, true);
        this.peer_epoch = Some(header.epoch);
        this.meet(offer, header.sequence);
        this
    }

    /// It answers an offer once, and again only where that is made again.
    pub(crate) fn answers_once(&mut self) {
        self.answers_left = 1;
    }

    /// It answers an offer, and its answer is not acknowledged.
    pub(crate) fn is_half_open(&self) -> bool {
        self.accepts && self.state == State::Opening
    }

    fn new(now: Nanos, settings: Settings, accepts: bool) -> Self {
        let sender = Sender::new(settings.first, settings.slots, settings.payload_max);
        let Settings { number: connection, payload_max, stream, .. } = settings;
        Self {
            settings,
            state: State::Opening,
            peer_number: 0,
            peer_epoch: None,
            accepts,
            sender,
            receiver: None,
            taken: 0,
            payload_max,
            fin_sent: false,
            offer_at: Some(now),
            offer_wait: if accepts { ANSWER_TIMEOUT } else { TIMEOUT_MIN },
            answers_left: 1 + ANSWER_RETRIES_MAX,
            opened_at: now,
            rests_until: None,
            reset: None,
            counts: Counts::default(),
            offer: Offer { connection, payload_max, stream }.bytes(),
            reason: [0],
            polled: Part::Nothing,
            pool: Pool::default(),
        }
    }

    fn meet(&mut self, offer: &Offer, first: Serial) {
        self.peer_number = offer.connection;
        self.payload_max = self.payload_max.min(offer.payload_max);
        self.receiver = Some(Receiver::new(first, self.settings.slots, self.settings.payload_max));
    }

    /// Counts the memory of an open connection there from now on, and no longer elsewhere.
    pub fn share(&mut self, budget: &Arc<Budget>) {
        self.sender.share(budget);
        self.receiver.iter_mut().for_each(|receiver| receiver.share(budget));
    }

    /// Bytes of a stream that there is room for now.
    pub fn room(&self) -> usize {
        self.sender.room() as usize * self.payload_max()
    }

    /// Changes its free pages for those of the node, and back.
    pub(crate) fn lend(&mut self, pool: &mut Pool) {
        std::mem::swap(&mut self.pool, pool);
    }

    /// Its pages go to those that come.
    pub(crate) fn give_back(&mut self, pool: &mut Pool) {
        self.sender.stop(pool);
        self.receiver.iter_mut().for_each(|receiver| receiver.stop(pool));
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The other end's number of the connection; 0 as long as it is not known.
    pub fn peer_number(&self) -> u32 {
        self.peer_number
    }

    pub fn counts(&self) -> Counts {
        Counts { resent: self.sender.resent, echoes: self.sender.echoes, ..self.counts }
    }

    /// The smoothed round trip; none before the first.
    pub fn round_trip(&self) -> Option<Nanos> {
        self.sender.smoothed()
    }

    /// True if the number can be used again, and nothing of it has to be kept. What both ends closed is kept until all has been read, or
    /// [`Connection::abort`].
    pub fn is_over(&self, now: Nanos) -> bool {
        match self.state {
            State::Resting if self.receiver.as_ref().is_some_and(Receiver::has_unread) => false,
            State::Resting | State::Failed(_) => {
                self.reset.is_none() && self.rests_until.is_none_or(|until| now >= until)
            }
            State::Opening | State::Open => false,
        }
    }

    /// The longest payload that one frame to the other end has.
    pub fn payload_max(&self) -> usize {
        usize::from(self.payload_max)
    }

    /// Sends a message, whole or not at all.
    ///
    /// # Errors
    /// Why it was not sent. [`SendError::Full`] passes.
    pub fn send(&mut self, now: Nanos, message: &[u8]) -> Result<(), SendError> {
        self.may_send()?;
        let frames = message.len().div_ceil(self.payload_max()).max(1);
        if frames > self.settings.slots.next_power_of_two() as usize {
            return Err(SendError::TooLong);
        }
        if frames > self.sender.room() as usize {
            return Err(SendError::Full);
        }
        self.put(now, message, frames);
        Ok(())
    }

    /// Sends as many of the bytes of a stream as there is room for; how many.
    ///
    /// # Errors
    /// [`SendError::Full`] if there is none, [`SendError::Closed`].
    pub fn write(&mut self, now: Nanos, bytes: &[u8]) -> Result<usize, SendError> {
        self.may_send()?;
        let bytes = &bytes[..bytes.len().min(self.room())];
        if bytes.is_empty() {
            return Err(SendError::Full);
        }
        self.put(now, bytes, bytes.len().div_ceil(self.payload_max()));
        Ok(bytes.len())
    }

    fn may_send(&self) -> Result<(), SendError> {
        match self.state {
            _ if self.fin_sent => Err(SendError::Closed),
            State::Open => Ok(()),
            State::Opening => Err(SendError::Full),
            State::Resting | State::Failed(_) => Err(SendError::Closed),
        }
    }

    fn put(&mut self, now: Nanos, bytes: &[u8], frames: usize) {
        for at in 0..frames {
            let part = &bytes[at * self.payload_max()..bytes.len().min((at + 1) * self.payload_max())];
            let flags = Flags::default().with_if(at == 0, Flags::FIRST).with_if(at + 1 == frames, Flags::LAST);
            self.sender.put(&mut self.pool, now, flags, part);
        }
    }

    /// Says that nothing follows. Data still comes from the other end until it says so too.
    ///
    /// # Errors
    /// [`SendError::Full`]: once more when there is room.
    pub fn close(&mut self, now: Nanos) -> Result<(), SendError> {
        if self.fin_sent || !matches!(self.state, State::Opening | State::Open) {
            return Ok(());
        }
        if self.state == State::Opening {
            self.abort(now, Reason::Aborted);
            return Ok(());
        }
        if self.sender.room() == 0 {
            return Err(SendError::Full);
        }
        self.fin_sent = true;
        self.sender.put(&mut self.pool, now, Flags::FIN, &[]);
        Ok(())
    }

    /// Ends it at once; the other end is told why. What has not been read is dropped.
    pub fn abort(&mut self, now: Nanos, reason: Reason) {
        if self.state == State::Resting
            && let Some(receiver) = &mut self.receiver
        {
            receiver.consume_all(&mut self.pool, now);
        }
        if matches!(self.state, State::Opening | State::Open) {
            let answers = self.receiver.as_ref().map(Receiver::acknowledged);
            self.fail(now, reason, answers);
        }
    }

    fn fail(&mut self, now: Nanos, reason: Reason, tells: Option<Serial>) {
        self.state = State::Failed(reason);
        self.rests_until = Some(now + REST_TIME);
        self.sender.stop(&mut self.pool);
        self.offer_at = None;
        self.reset = tells.map(|number| (reason, number));
        self.reason = reason.bytes();
    }

    /// Reads the next message into `to`, whole. None: it is not there yet. An empty one has 0 bytes.
    ///
    /// # Errors
    /// The bytes that it has, if `to` is shorter; it stays.
    pub fn receive(&mut self, now: Nanos, to: &mut [u8]) -> Result<Option<usize>, usize> {
        let Some(receiver) = &mut self.receiver else { return Ok(None) };
        let (mut frames, mut len) = (0, 0);
        loop {
            let Some((flags, part)) = receiver.peek_at(frames) else { return Ok(None) };
            if flags.has(Flags::FIN) {
                if frames == 0 {
                    receiver.consume(&mut self.pool, now, 1);
                }
                return Ok(None);
            }
            frames += 1;
            len += part.len();
            if flags.has(Flags::LAST) {
                break;
            }
        }
        if len > to.len() {
            return Err(len);
        }
        let mut at = 0;
        for frame in 0..frames {
            let part = receiver.peek_at(frame).map_or(&[][..], |(_, part)| part);
            to[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        receiver.consume(&mut self.pool, now, frames);
        Ok(Some(len))
    }

    /// The bytes of a stream that are there, in one piece of them; empty: none yet, or the end ([`Connection::is_at_end`]).
    pub fn bytes(&mut self, now: Nanos) -> &[u8] {
        let Some(receiver) = &mut self.receiver else { return &[] };
        while receiver.peek().is_some_and(|(flags, part)| part.is_empty() || flags.has(Flags::FIN)) {
            receiver.consume(&mut self.pool, now, 1);
        }
        receiver.peek().map_or(&[], |(_, part)| &part[self.taken..])
    }

    /// Copies bytes of a stream into `to`: as many as are there and it has room for; how many. 0: none yet, or the end ([`Connection::is_at_end`]).
    pub fn read(&mut self, now: Nanos, to: &mut [u8]) -> usize {
        let mut read = 0;
        while read < to.len() {
            let piece = self.bytes(now);
            let (len, is_whole) = (piece.len().min(to.len() - read), piece.len() <= to.len() - read);
            if len == 0 {
                break;
            }
            to[read..read + len].copy_from_slice(&piece[..len]);
            read += len;
            if is_whole {
                self.consume(now);
            } else {
                self.taken += len;
            }
        }
        read
    }

    /// The piece of [`Connection::bytes`] has been read.
    pub fn consume(&mut self, now: Nanos) {
        self.taken = 0;
        if let Some(receiver) = self.receiver.as_mut().filter(|r| r.peek().is_some()) {
            receiver.consume(&mut self.pool, now, 1);
        }
    }

    /// All has been read, and the other end sends nothing more.
    pub fn is_at_end(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_at_end)
    }

    /// A frame for this connection arrived.
    pub fn on_frame(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        // A reset of a node that does not know the connection names none, and has another epoch where that node started again.
        let of_connection = header.kind != Kind::Reset || header.connection != 0;
        if of_connection && self.peer_epoch.is_some_and(|epoch| epoch != header.epoch) {
            self.counts.strange += 1;
            return;
        }
        match header.kind {
            Kind::OpenAck => self.on_open_ack(now, header, payload),
            Kind::Open if self.is_half_open() => {
                self.offer_at = Some(now);
                self.answers_left = self.answers_left.max(1);
            }
            // It was under way when the answer was acknowledged.
            Kind::Open if self.accepts => {}
            Kind::Reset => self.on_reset(now, header, payload),
            Kind::Busy if self.state == State::Opening && !self.accepts => {}
            // Whoever does not see the answer cannot guess its number.
            Kind::Data | Kind::Ack | Kind::Probe
                if self.is_half_open() && header.acknowledged != self.settings.first =>
            {
                self.counts.strange += 1;
            }
            Kind::Data | Kind::Ack | Kind::Probe if self.receiver.is_some() => self.on_data(now, header, payload),
            Kind::Open | Kind::Busy | Kind::Hello | Kind::Data | Kind::Ack | Kind::Probe => self.counts.strange += 1,
        }
    }

    fn on_open_ack(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        // It names the number that was offered: whoever does not see the frames cannot guess it.
        let answers = header.acknowledged == self.settings.first;
        match (self.state, Offer::read(payload)) {
            (State::Opening, _) if self.accepts => self.counts.strange += 1,
            (State::Opening, Some(offer)) if answers && offer.stream != self.settings.stream => {
                self.peer_number = offer.connection;
                self.fail(now, Reason::Mismatch, Some(header.sequence));
            }
            (State::Opening, Some(offer)) if answers => {
                self.peer_epoch = Some(header.epoch);
                self.meet(&offer, header.sequence);
                self.state = State::Open;
                self.offer_at = None;
                self.sender.heard(&mut self.pool, now, header);
                self.ask(now);
            }
            // The acknowledgement of the first one was lost.
            (State::Open | State::Resting, Some(_)) if !self.accepts => self.ask(now),
            _ => self.counts.strange += 1,
        }
    }

    fn ask(&mut self, now: Nanos) {
        if let Some(receiver) = &mut self.receiver {
            receiver.asked(now);
        }
    }

    fn on_reset(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        // It names a frame that this end sent: whoever does not see the frames cannot guess it.
        let known = match self.state {
            State::Opening => header.sequence == self.settings.first,
            State::Open => self.sender.is_current(header.sequence),
            State::Resting | State::Failed(_) => false,
        };
        if known {
            self.fail(now, Reason::read(payload), None);
        } else {
            self.counts.strange += 1;
        }
    }

    fn on_data(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        if self.is_half_open() {
            self.state = State::Open;
            self.offer_at = None;
        }
        self.sender.heard(&mut self.pool, now, header);
        let Some(receiver) = &mut self.receiver else { return };
        if header.kind == Kind::Probe {
            receiver.asked(now);
        }
        if header.kind == Kind::Data {
            match receiver.take(&mut self.pool, now, header.sequence, header.flags, payload) {
                Taken::New => self.counts.received += 1,
                Taken::Again => self.counts.again += 1,
                Taken::NoRoom => self.counts.no_room += 1,
            }
        }
        if self.state == State::Open && self.fin_sent && self.sender.is_empty() && receiver.is_complete() {
            self.state = State::Resting;
            self.rests_until = Some(now + REST_TIME);
        }
    }

    /// When [`Connection::on_time`] is to be called at the latest; none: nothing is waited for.
    pub fn due(&self) -> Option<Nanos> {
        let ack = self.receiver.as_ref().and_then(Receiver::due);
        let (sender, dead) = match self.state {
            State::Open => (self.sender.due(), self.sender.waits_since().map(|since| since + PEER_TIMEOUT)),
            State::Opening => (None, Some(self.opened_at + PEER_TIMEOUT)),
            State::Resting => (None, self.rests_until),
            // It acknowledges nothing any more: a time that nothing is done at would be due for ever.
            State::Failed(_) => return self.rests_until,
        };
        [self.offer_at, ack, sender, dead].into_iter().flatten().min()
    }

    /// Time has gone by.
    pub fn on_time(&mut self, now: Nanos) {
        match self.state {
            State::Opening if now >= self.opened_at + PEER_TIMEOUT => {
                self.fail(now, Reason::TimedOut, None);
                // Nobody has heard of its number.
                self.rests_until = self.rests_until.filter(|_| !self.accepts);
            }
            State::Open => {
                self.sender.on_time(now);
                if self.sender.waits_since().is_some_and(|since| now >= since + PEER_TIMEOUT) {
                    let answers = self.receiver.as_ref().map(Receiver::acknowledged);
                    self.fail(now, Reason::TimedOut, answers);
                }
            }
            State::Resting | State::Failed(_) => self.rests_until = self.rests_until.filter(|&until| now < until),
            State::Opening => {}
        }
    }

    /// The other end could not be reached until now: the time that it may take for an answer ([`PEER_TIMEOUT`]) begins again.
    pub fn wait_anew(&mut self, now: Nanos) {
        self.sender.wait_anew(now);
    }

    /// The next frame that is to be sent now; none: nothing until something arrives, is sent, or [`Connection::due`].
    pub fn poll(&mut self, now: Nanos) -> Option<Outgoing<'_>> {
        let head = self.poll_head(now)?;
        Some(Outgoing { head, payload: self.polled() })
    }

    /// The payload of the frame whose header was polled last.
    pub(crate) fn polled(&self) -> &[u8] {
        match self.polled {
            Part::Nothing => &[],
            Part::Reason => &self.reason,
            Part::Offer => &self.offer,
            Part::Data(number) => self.sender.payload(number).1,
        }
    }

    /// The header of the next frame; its payload is [`Connection::polled`].
    pub(crate) fn poll_head(&mut self, now: Nanos) -> Option<[u8; HEADER_BYTES]> {
        let (header, part) = self.poll_part(now)?;
        self.polled = part;
        Some(header.write(self.polled()))
    }

    fn poll_part(&mut self, now: Nanos) -> Option<(Header, Part)> {
        if let Some((_, number)) = self.reset.take() {
            return Some((Header { sequence: number, ..self.header(Kind::Reset, Flags::default()) }, Part::Reason));
        }
        if self.offer_at.is_some_and(|at| at <= now) && self.state == State::Opening {
            let kind = if self.accepts { Kind::OpenAck } else { Kind::Open };
            let longer =
                if self.accepts { ANSWER_BACKOFF * self.offer_wait } else { OFFER_PERIOD_MAX.min(2 * self.offer_wait) };
            self.answers_left -= u32::from(self.accepts);
            self.offer_at = (self.answers_left > 0).then_some(now + self.offer_wait);
            self.offer_wait = longer;
            return Some((
                Header { sequence: self.settings.first, ..self.header(kind, Flags::default()) },
                Part::Offer,
            ));
        }
        let next = if self.state == State::Open { self.sender.next(now) } else { None };
        match next {
            Some(Next::Data { number, again, ask }) => {
                let echo = self.acknowledges();
                let flags = self.sender.payload(number).0;
                let flags = flags.with_if(again, Flags::AGAIN).with_if(ask, Flags::ASK).with_if(echo, Flags::ECHO);
                self.counts.sent += 1;
                Some((Header { sequence: number, ..self.header(Kind::Data, flags) }, Part::Data(number)))
            }
            Some(Next::Probe) => {
                let echo = self.acknowledges();
                Some((self.header(Kind::Probe, Flags::ASK.with_if(echo, Flags::ECHO)), Part::Nothing))
            }
            None => {
                let due = self.receiver.as_ref().and_then(Receiver::due).is_some_and(|at| at <= now);
                if !due || matches!(self.state, State::Failed(_)) {
                    return None;
                }
                let echo = self.acknowledges();
                Some((self.header(Kind::Ack, Flags::default().with_if(echo, Flags::ECHO)), Part::Nothing))
            }
        }
    }

    fn acknowledges(&mut self) -> bool {
        self.receiver.as_mut().is_some_and(|receiver| {
            let congested = receiver.filled() >= CONGESTED_SHARE;
            receiver.acknowledges() | congested
        })
    }

    fn header(&self, kind: Kind, flags: Flags) -> Header {
        let receiver = self.receiver.as_ref();
        let credit = receiver.map_or(0, Receiver::credit);
        Header {
            kind,
            flags: flags.with_if(receiver.is_some() && credit == 0, Flags::NOT_READY),
            from_port: self.settings.port,
            to_port: self.settings.peer_port,
            connection: self.peer_number,
            epoch: self.settings.epoch,
            sequence: self.sender.next_number(),
            acknowledged: receiver.map_or(Serial(0), Receiver::acknowledged),
            received: receiver.map_or(0, Receiver::received),
            credit: credit.min(u32::from(u16::MAX)) as u16,
        }
    }
}
