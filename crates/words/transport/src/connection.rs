//! One end of a connection: frames and time in, frames and states out.

mod types;

pub use self::types::{Counts, Outgoing, SendError, Settings, State};
use std::sync::Arc;

use crate::{
    Budget, Flags, HEADER_BYTES, Header, Kind, Nanos, Offer, Reason, Serial,
    receiver::{Receiver, Taken},
    rtt::TIMEOUT_MIN,
    sender::{Next, Sender},
    slots::Pool,
};

/// Time without an answer after which a connection fails.
pub const PEER_TIMEOUT: Nanos = 10_000_000_000;
/// Time for which an ended connection answers duplicates, and its number is not reused.
pub const TIME_WAIT: Nanos = 2_000_000_000;
/// Share of the receive buffer from which on the receiver signals congestion.
const CONGESTED_SHARE: f64 = 0.5;
/// Longest time between two offers.
const OFFER_PERIOD_MAX: Nanos = 1_000_000_000;
/// Retransmission timeout of an answer to an offer, and its backoff factor: 4, 32, 256 and 2048 ms.
const ANSWER_TIMEOUT: Nanos = 4_000_000;
const ANSWER_BACKOFF: u64 = 8;
/// Retransmissions of an answer to an offer.
const ANSWER_RETRIES_MAX: u32 = 4;

#[derive(Debug)]
pub struct Connection {
    settings: Settings,
    state: State,
    peer_number: u32,
    peer_epoch: Option<u32>,
    /// True: the peer made the offer.
    is_acceptor: bool,
    sender: Sender,
    receiver: Option<Receiver>,
    /// Bytes of the next piece of a stream that have been read.
    read_offset: usize,
    payload_max: u16,
    fin_sent: bool,
    /// Time of the next transmission of the offer, or of the answer.
    offer_at: Option<Nanos>,
    offer_timeout: Nanos,
    /// Remaining transmissions of the answer that no further offer triggers.
    answers_left: u32,
    opened_at: Nanos,
    /// End of TIME-WAIT; none: not in TIME-WAIT.
    time_wait_until: Option<Nanos>,
    reset: Option<(Reason, Serial)>,
    counts: Counts,
    offer: [u8; Offer::BYTES],
    reason: [u8; 1],
    polled: Payload,
    /// The node's pool while the node works on this connection.
    pool: Pool,
}

/// The payload of an outgoing frame.
#[derive(Debug, Clone, Copy)]
enum Payload {
    Nothing,
    Reason,
    Offer,
    Data(Serial),
}

impl Connection {
    pub fn open(now: Nanos, settings: Settings) -> Self {
        Self::new(now, settings, false)
    }

    /// Accepts an offer. The connection is open once the peer acknowledges the answer, within [`PEER_TIMEOUT`].
    pub fn accept(now: Nanos, settings: Settings, header: &Header, offer: &Offer) -> Self {
        let mut this = Self::new(now, settings, true);
        this.peer_epoch = Some(header.epoch);
        this.learn_peer(offer, header.sequence);
        this
    }

    /// Leaves the answer to further offers, without retransmissions.
    pub(crate) fn disable_answer_retries(&mut self) {
        self.answers_left = 1;
    }

    /// True while the answer to an offer is not acknowledged.
    pub(crate) fn is_half_open(&self) -> bool {
        self.is_acceptor && self.state == State::Opening
    }

    fn new(now: Nanos, settings: Settings, is_acceptor: bool) -> Self {
        let sender = Sender::new(settings.first, settings.slots, settings.payload_max);
        let Settings { number: connection, payload_max, stream, .. } = settings;
        Self {
            settings,
            state: State::Opening,
            peer_number: 0,
            peer_epoch: None,
            is_acceptor,
            sender,
            receiver: None,
            read_offset: 0,
            payload_max,
            fin_sent: false,
            offer_at: Some(now),
            offer_timeout: if is_acceptor { ANSWER_TIMEOUT } else { TIMEOUT_MIN },
            answers_left: 1 + ANSWER_RETRIES_MAX,
            opened_at: now,
            time_wait_until: None,
            reset: None,
            counts: Counts::default(),
            offer: Offer { connection, payload_max, stream }.bytes(),
            reason: [0],
            polled: Payload::Nothing,
            pool: Pool::default(),
        }
    }

    fn learn_peer(&mut self, offer: &Offer, first: Serial) {
        self.peer_number = offer.connection;
        self.payload_max = self.payload_max.min(offer.payload_max);
        self.receiver = Some(Receiver::new(first, self.settings.slots, self.settings.payload_max));
    }

    /// Charges the memory of an open connection to a budget; none: to no budget any more.
    pub fn charge_to(&mut self, budget: Option<&Arc<Budget>>) {
        self.sender.charge_to(budget);
        self.receiver.iter_mut().for_each(|receiver| receiver.charge_to(budget));
    }

    /// Bytes of a stream that [`Connection::write`] accepts now.
    pub fn room(&self) -> usize {
        self.sender.room() as usize * self.payload_max()
    }

    /// Swaps the pool of free pages.
    pub(crate) fn swap_pool(&mut self, pool: &mut Pool) {
        std::mem::swap(&mut self.pool, pool);
    }

    /// Returns all pages to a pool.
    pub(crate) fn free_pages(&mut self, pool: &mut Pool) {
        self.sender.stop(pool);
        self.receiver.iter_mut().for_each(|receiver| receiver.stop(pool));
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The peer's number of the connection; 0: not known yet.
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

    /// True if the connection can be removed and its number reused. A closed connection is kept until all bytes are read, or [`Connection::abort`].
    pub fn is_finished(&self, now: Nanos) -> bool {
        match self.state {
            State::TimeWait if self.receiver.as_ref().is_some_and(Receiver::has_unread) => false,
            State::TimeWait | State::Failed(_) => {
                self.reset.is_none() && self.time_wait_until.is_none_or(|until| now >= until)
            }
            State::Opening | State::Open => false,
        }
    }

    /// Payload bytes of a full frame to the peer.
    pub fn payload_max(&self) -> usize {
        usize::from(self.payload_max)
    }

    /// Queues a whole message.
    ///
    /// # Errors
    /// [`SendError`]; after [`SendError::Full`] try again later.
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

    /// Queues bytes of a stream; returns how many there was room for.
    ///
    /// # Errors
    /// [`SendError::Full`] if there is no room, [`SendError::Closed`].
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
            State::TimeWait | State::Failed(_) => Err(SendError::Closed),
        }
    }

    fn put(&mut self, now: Nanos, bytes: &[u8], frames: usize) {
        for at in 0..frames {
            let part = &bytes[at * self.payload_max()..bytes.len().min((at + 1) * self.payload_max())];
            let flags = Flags::default().with_if(at == 0, Flags::FIRST).with_if(at + 1 == frames, Flags::LAST);
            self.sender.put(&mut self.pool, now, flags, part);
        }
    }

    /// Closes the sending direction. Data is still received until the peer closes, too.
    ///
    /// # Errors
    /// [`SendError::Full`]: try again later.
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

    /// Ends the connection at once by a reset. Unread data is dropped.
    pub fn abort(&mut self, now: Nanos, reason: Reason) {
        if self.state == State::TimeWait
            && let Some(receiver) = &mut self.receiver
        {
            receiver.consume_all(&mut self.pool, now);
        }
        if matches!(self.state, State::Opening | State::Open) {
            let answers = self.receiver.as_ref().map(Receiver::acknowledged);
            self.fail(now, reason, answers);
        }
    }

    fn fail(&mut self, now: Nanos, reason: Reason, reset_number: Option<Serial>) {
        self.state = State::Failed(reason);
        self.time_wait_until = Some(now + TIME_WAIT);
        self.sender.stop(&mut self.pool);
        self.offer_at = None;
        self.reset = reset_number.map(|number| (reason, number));
        self.reason = reason.bytes();
    }

    /// Reads the next whole message into `to`. None: not complete yet. An empty message has 0 bytes.
    ///
    /// # Errors
    /// The length of the message, if `to` is shorter; the message stays.
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

    /// The next contiguous bytes of a stream; empty: none yet, or the end ([`Connection::is_at_end`]).
    pub fn bytes(&mut self, now: Nanos) -> &[u8] {
        let Some(receiver) = &mut self.receiver else { return &[] };
        while receiver.peek().is_some_and(|(flags, part)| part.is_empty() || flags.has(Flags::FIN)) {
            receiver.consume(&mut self.pool, now, 1);
        }
        receiver.peek().map_or(&[], |(_, part)| &part[self.read_offset..])
    }

    /// Reads bytes of a stream into `to`; returns how many. 0: none yet, or the end ([`Connection::is_at_end`]).
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
                self.read_offset += len;
            }
        }
        read
    }

    /// Removes the bytes that [`Connection::bytes`] returned.
    pub fn consume(&mut self, now: Nanos) {
        self.read_offset = 0;
        if let Some(receiver) = self.receiver.as_mut().filter(|r| r.peek().is_some()) {
            receiver.consume(&mut self.pool, now, 1);
        }
    }

    /// True if the peer has closed, and all its data was read.
    pub fn is_at_end(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_at_end)
    }

    /// Processes a received frame.
    pub fn on_frame(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        // A reset of a node without the connection has number 0, and another epoch if that node has restarted.
        let of_connection = header.kind != Kind::Reset || header.connection != 0;
        if of_connection && self.peer_epoch.is_some_and(|epoch| epoch != header.epoch) {
            self.counts.unexpected += 1;
            return;
        }
        match header.kind {
            Kind::OpenAck => self.on_open_ack(now, header, payload),
            Kind::Open if self.is_half_open() => {
                self.offer_at = Some(now);
                self.answers_left = self.answers_left.max(1);
            }
            // The offer was in flight when the answer was acknowledged.
            Kind::Open if self.is_acceptor => {}
            Kind::Reset => self.on_reset(now, header, payload),
            Kind::Busy if self.state == State::Opening && !self.is_acceptor => {}
            // A host that does not see the answer cannot guess its number.
            Kind::Data | Kind::Ack | Kind::Probe
                if self.is_half_open() && header.acknowledged != self.settings.first =>
            {
                self.counts.unexpected += 1;
            }
            Kind::Data | Kind::Ack | Kind::Probe if self.receiver.is_some() => self.on_data(now, header, payload),
            Kind::Open | Kind::Busy | Kind::Hello | Kind::Data | Kind::Ack | Kind::Probe => self.counts.unexpected += 1,
        }
    }

    fn on_open_ack(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        // The answer has the offered number, which a host that does not see the frames cannot guess.
        let answers = header.acknowledged == self.settings.first;
        match (self.state, Offer::read(payload)) {
            (State::Opening, _) if self.is_acceptor => self.counts.unexpected += 1,
            (State::Opening, Some(offer)) if answers && offer.stream != self.settings.stream => {
                self.peer_number = offer.connection;
                self.fail(now, Reason::Mismatch, Some(header.sequence));
            }
            (State::Opening, Some(offer)) if answers => {
                self.peer_epoch = Some(header.epoch);
                self.learn_peer(&offer, header.sequence);
                self.state = State::Open;
                self.offer_at = None;
                self.sender.on_ack(&mut self.pool, now, header);
                self.request_ack(now);
            }
            // The acknowledgement of the first answer was lost.
            (State::Open | State::TimeWait, Some(_)) if !self.is_acceptor => self.request_ack(now),
            _ => self.counts.unexpected += 1,
        }
    }

    fn request_ack(&mut self, now: Nanos) {
        if let Some(receiver) = &mut self.receiver {
            receiver.request_ack(now);
        }
    }

    fn on_reset(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        // A reset names a frame of this end, which a host that does not see the frames cannot guess.
        let known = match self.state {
            State::Opening => header.sequence == self.settings.first,
            State::Open => self.sender.is_current(header.sequence),
            State::TimeWait | State::Failed(_) => false,
        };
        if known {
            self.fail(now, Reason::read(payload), None);
        } else {
            self.counts.unexpected += 1;
        }
    }

    fn on_data(&mut self, now: Nanos, header: &Header, payload: &[u8]) {
        if self.is_half_open() {
            self.state = State::Open;
            self.offer_at = None;
        }
        self.sender.on_ack(&mut self.pool, now, header);
        let Some(receiver) = &mut self.receiver else { return };
        if header.kind == Kind::Probe {
            receiver.request_ack(now);
        }
        if header.kind == Kind::Data {
            match receiver.take(&mut self.pool, now, header.sequence, header.flags, payload) {
                Taken::New => self.counts.received += 1,
                Taken::Duplicate => self.counts.duplicates += 1,
                Taken::NoRoom => self.counts.no_room += 1,
            }
        }
        if self.state == State::Open && self.fin_sent && self.sender.is_empty() && receiver.is_complete() {
            self.state = State::TimeWait;
            self.time_wait_until = Some(now + TIME_WAIT);
        }
    }

    /// Deadline of the next [`Connection::on_time`]; none: no timer runs.
    pub fn due(&self) -> Option<Nanos> {
        let ack = self.receiver.as_ref().and_then(Receiver::due);
        let (sender, dead) = match self.state {
            State::Open => (self.sender.due(), self.sender.waiting_since().map(|since| since + PEER_TIMEOUT)),
            State::Opening => (None, Some(self.opened_at + PEER_TIMEOUT)),
            State::TimeWait => (None, self.time_wait_until),
            // A failed connection acknowledges nothing: another deadline would stay due for ever.
            State::Failed(_) => return self.time_wait_until,
        };
        [self.offer_at, ack, sender, dead].into_iter().flatten().min()
    }

    /// Processes expired timers.
    pub fn on_time(&mut self, now: Nanos) {
        match self.state {
            State::Opening if now >= self.opened_at + PEER_TIMEOUT => {
                self.fail(now, Reason::TimedOut, None);
                // An acceptor's number is not known to the peer.
                self.time_wait_until = self.time_wait_until.filter(|_| !self.is_acceptor);
            }
            State::Open => {
                self.sender.on_time(now);
                if self.sender.waiting_since().is_some_and(|since| now >= since + PEER_TIMEOUT) {
                    let answers = self.receiver.as_ref().map(Receiver::acknowledged);
                    self.fail(now, Reason::TimedOut, answers);
                }
            }
            State::TimeWait | State::Failed(_) => {
                self.time_wait_until = self.time_wait_until.filter(|&until| now < until);
            }
            State::Opening => {}
        }
    }

    /// Restarts [`PEER_TIMEOUT`], as the peer could not be reached until now.
    pub fn restart_timeout(&mut self, now: Nanos) {
        self.sender.restart_timeout(now);
    }

    /// The next frame to send; none until a frame arrives, data is queued, or [`Connection::due`].
    pub fn poll(&mut self, now: Nanos) -> Option<Outgoing<'_>> {
        let head = self.poll_head(now)?;
        Some(Outgoing { head, payload: self.polled() })
    }

    /// The payload of the last [`Connection::poll_head`].
    pub(crate) fn polled(&self) -> &[u8] {
        match self.polled {
            Payload::Nothing => &[],
            Payload::Reason => &self.reason,
            Payload::Offer => &self.offer,
            Payload::Data(number) => self.sender.payload(number).1,
        }
    }

    /// The header of the next frame. Its payload is [`Connection::polled`].
    pub(crate) fn poll_head(&mut self, now: Nanos) -> Option<[u8; HEADER_BYTES]> {
        let (header, part) = self.poll_header(now)?;
        self.polled = part;
        Some(header.write(self.polled()))
    }

    fn poll_header(&mut self, now: Nanos) -> Option<(Header, Payload)> {
        if let Some((_, number)) = self.reset.take() {
            return Some((Header { sequence: number, ..self.header(Kind::Reset, Flags::default()) }, Payload::Reason));
        }
        if self.offer_at.is_some_and(|at| at <= now) && self.state == State::Opening {
            let kind = if self.is_acceptor { Kind::OpenAck } else { Kind::Open };
            let backed_off = if self.is_acceptor {
                ANSWER_BACKOFF * self.offer_timeout
            } else {
                OFFER_PERIOD_MAX.min(2 * self.offer_timeout)
            };
            self.answers_left -= u32::from(self.is_acceptor);
            self.offer_at = (self.answers_left > 0).then_some(now + self.offer_timeout);
            self.offer_timeout = backed_off;
            return Some((
                Header { sequence: self.settings.first, ..self.header(kind, Flags::default()) },
                Payload::Offer,
            ));
        }
        let next = if self.state == State::Open { self.sender.next(now) } else { None };
        match next {
            Some(Next::Data { number, is_retransmission, wants_ack }) => {
                let echo = self.on_ack_sent();
                let flags = self.sender.payload(number).0;
                let flags = flags
                    .with_if(is_retransmission, Flags::AGAIN)
                    .with_if(wants_ack, Flags::ASK)
                    .with_if(echo, Flags::ECHO);
                self.counts.sent += 1;
                Some((Header { sequence: number, ..self.header(Kind::Data, flags) }, Payload::Data(number)))
            }
            Some(Next::Probe) => {
                let echo = self.on_ack_sent();
                Some((self.header(Kind::Probe, Flags::ASK.with_if(echo, Flags::ECHO)), Payload::Nothing))
            }
            None => {
                let due = self.receiver.as_ref().and_then(Receiver::due).is_some_and(|at| at <= now);
                if !due || matches!(self.state, State::Failed(_)) {
                    return None;
                }
                let echo = self.on_ack_sent();
                Some((self.header(Kind::Ack, Flags::default().with_if(echo, Flags::ECHO)), Payload::Nothing))
            }
        }
    }

    fn on_ack_sent(&mut self) -> bool {
        self.receiver.as_mut().is_some_and(|receiver| {
            let congested = receiver.filled() >= CONGESTED_SHARE;
            receiver.on_ack_sent() | congested
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
