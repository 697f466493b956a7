//! A node: its listeners, and its connections to others, found by their numbers.

mod half_open;
mod unmatched;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::{Hash, Hasher},
    ops::RangeInclusive,
};

use siphasher::sip::SipHasher24;

use self::half_open::{HalfOpen, Room};
use crate::{
    Connection, Flags, HEADER_BYTES, Header, Kind, Nanos, Offer, Peer, Reason, Serial, Settings, State, echo::Echoes,
    peers::Peers, slots::Pool, version::Versions,
};

/// Connections of a node at the most.
const CONNECTIONS_MAX: usize = 1 << 16;
/// The ports that are given to whoever asks for none, unless a node has others: those that IANA registers to nobody.
pub const FREE_PORTS: RangeInclusive<u16> = 49_152..=u16::MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Its name, at most 255 bytes.
    pub name: String,
    /// Drawn at random when it starts.
    pub epoch: u32,
    /// The longest payload of a frame.
    pub payload_max: u16,
    /// Frames that each connection keeps each way.
    pub slots: u32,
    /// Known to nobody else: the numbers of its connections and the first ones of their frames follow from it.
    pub secret: u128,
    /// The ports that it gives to whoever asks for none.
    pub ports: RangeInclusive<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u32);

impl Handle {
    /// Its number, as other languages hold it; never 0.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The connection of this number. Of any other number there is none, as of a connection that ended and rested.
    pub fn of(number: u32) -> Self {
        Self(number)
    }
}

/// Counts of a node beside its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Frames that were shorter than they say.
    pub short: u64,
    /// Of another version, notices of it left out ([`Node::other_versions`]).
    pub version: u64,
    /// Notices that this node speaks another version than theirs, to those who sent such frames.
    pub version_notices_sent: u64,
    /// Notices that another node speaks another version.
    pub version_notices_received: u64,
    /// Of an unknown kind.
    pub kind: u64,
    /// With a wrong checksum.
    pub checksum: u64,
    /// For a connection that is not there, or not from its peer.
    pub unknown: u64,
    /// Offers to a port where nobody listens.
    pub refused: u64,
    /// Offers that a listener, or the node, had no room for.
    pub busy: u64,
    /// Offers whose answer was not acknowledged, by an address that nobody has for example.
    pub half_open: u64,
    /// Frames that had met congestion on this node's way in.
    pub congested: u64,
    /// Probes of this node that were answered.
    pub probed: u64,
    /// Hellos of nodes whose name another node, or this one, has ([`Node::namesakes`]), each once.
    pub namesakes: u64,
}

/// What another one has to know of an open connection to ask its peer about it ([`Node::ask_for`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends<P> {
    pub peer: P,
    pub port: u16,
    /// The port at the other end.
    pub peer_port: u16,
    /// The other end's number of the connection.
    pub peer_number: u32,
    pub epoch: u32,
}

#[derive(Debug)]
struct Listener {
    stream: bool,
    room: usize,
    waiting: VecDeque<Handle>,
}

#[derive(Debug)]
struct Entry<P> {
    peer: P,
    connection: Connection,
    /// The number of its offer; 0 if this node made it.
    offered: (u32, u32),
    /// When it stands among the timers: when it is due, or before.
    armed: Option<Nanos>,
    /// It stands among those that may have something to send.
    is_ready: bool,
    /// It stands among those that have news.
    has_news: bool,
}

/// A node. `P` is the address of another one.
#[derive(Debug)]
pub struct Node<P> {
    settings: NodeSettings,
    entries: Vec<Option<Entry<P>>>,
    free: Vec<u32>,
    listeners: HashMap<u16, Listener>,
    /// By peer, epoch and number of an offer.
    offers: HashMap<(P, u32, u32), Handle>,
    /// By peer, own port and its port.
    by_ports: HashMap<(P, u16, u16), Handle>,
    half_open: HalfOpen<P>,
    ready: VecDeque<u32>,
    /// Connections that a frame or time has changed; none: nobody asks for them.
    news: Option<VecDeque<Handle>>,
    /// Places of connections that opened or are no more; none: nobody asks for them.
    opened: Option<VecDeque<u32>>,
    /// One for each connection at the most.
    timers: BTreeSet<(Nanos, u32)>,
    /// See [`Node::set_down`].
    is_down: bool,
    pool: Pool,
    answers: VecDeque<(P, [u8; HEADER_BYTES], Vec<u8>)>,
    answer: Vec<u8>,
    peers: Peers<P>,
    versions: Versions<P>,
    echoes: Echoes<P>,
    counts: NodeCounts,
    /// Numbers drawn so far.
    drawn: u64,
    next_port: u16,
}

impl<P: Copy + Eq + Hash> Node<P> {
    /// A node without listeners and connections.
    pub fn new(settings: NodeSettings) -> Self {
        Self {
            drawn: 0,
            next_port: *settings.ports.start(),
            settings,
            entries: Vec::new(),
            free: Vec::new(),
            listeners: HashMap::new(),
            offers: HashMap::new(),
            by_ports: HashMap::new(),
            half_open: HalfOpen::new(),
            ready: VecDeque::new(),
            news: None,
            opened: None,
            timers: BTreeSet::new(),
            is_down: false,
            pool: Pool::default(),
            answers: VecDeque::new(),
            answer: Vec::new(),
            peers: Peers::new(),
            versions: Versions::new(),
            echoes: Echoes::new(),
            counts: NodeCounts::default(),
        }
    }

    pub fn counts(&self) -> NodeCounts {
        self.counts
    }

    /// Those that said hello.
    pub fn peers(&self) -> impl Iterator<Item = (&P, &Peer)> {
        self.peers.iter()
    }

    /// Counts changes of what [`Node::peers`] gives but for the time that they were heard.
    pub fn peer_changes(&self) -> u64 {
        self.peers.changes()
    }

    /// The next number that nobody can tell from those before: of a keyed hash.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut hash = SipHasher24::new_with_keys(self.settings.secret as u64, (self.settings.secret >> 64) as u64);
        hash.write_u64(self.drawn);
        hash.finish()
    }

    /// Listens at a port; `room` connections wait to be accepted at the most. False: somebody listens there.
    pub fn listen(&mut self, port: u16, stream: bool, room: usize) -> bool {
        if self.listeners.contains_key(&port) {
            return false;
        }
        self.listeners.insert(port, Listener { stream, room, waiting: VecDeque::new() });
        true
    }

    /// Listens on one of the ports that it gives to whoever asks for none, and gives that no more; none: there is but one left, or somebody listens there.
    pub fn listen_free(&mut self, stream: bool, room: usize) -> Option<u16> {
        let (first, last) = (*self.settings.ports.start(), *self.settings.ports.end());
        if first == last || !self.listen(first, stream, room) {
            return None;
        }
        self.settings.ports = first + 1..=last;
        self.next_port = self.next_port.max(first + 1);
        Some(first)
    }

    /// Listens no longer; what waited to be accepted is reset.
    pub fn stop_listening(&mut self, now: Nanos, port: u16) {
        for handle in self.listeners.remove(&port).into_iter().flat_map(|l| l.waiting) {
            self.with(now, handle, |connection| connection.abort(now, Reason::Refused));
        }
    }

    /// The next connection that was opened to a port.
    pub fn accept(&mut self, port: u16) -> Option<Handle> {
        self.listeners.get_mut(&port)?.waiting.pop_front()
    }

    /// Offers a connection to a port of another node; none: there are too many connections, or no port is free.
    pub fn connect(&mut self, now: Nanos, peer: P, peer_port: u16, stream: bool) -> Option<Handle> {
        let port = self.settings.ports.clone().find_map(|_| {
            let port = self.next_port;
            let last = port == *self.settings.ports.end();
            self.next_port = if last { *self.settings.ports.start() } else { port + 1 };
            // One that only rests is known by its number, and leaves its ports to others.
            let used = self.by_ports.get(&(peer, port, peer_port)).and_then(|&handle| self.connection(handle));
            used.is_none_or(|c| matches!(c.state(), State::Resting | State::Failed(_))).then_some(port)
        })?;
        let settings = self.ends(port, peer_port, stream)?;
        Some(self.add(now, peer, (0, 0), Connection::open(now, settings)))
    }

    fn ends(&mut self, port: u16, peer_port: u16, stream: bool) -> Option<Settings> {
        let at = match self.free.last() {
            Some(&at) => at,
            None if self.entries.len() < CONNECTIONS_MAX - 1 => self.entries.len() as u32,
            None => return None,
        };
        let drawn = self.draw();
        Some(Settings {
            epoch: self.settings.epoch,
            number: (drawn as u32) << 16 | (at + 1),
            first: Serial((drawn >> 32) as u32),
            port,
            peer_port,
            payload_max: self.settings.payload_max,
            slots: self.settings.slots,
            stream,
        })
    }

    /// At the place that its number names.
    fn add(&mut self, now: Nanos, peer: P, offered: (u32, u32), connection: Connection) -> Handle {
        let at = self.free.pop().unwrap_or(self.entries.len() as u32);
        if at as usize == self.entries.len() {
            self.entries.push(None);
        }
        let handle = Handle(connection.settings().number);
        self.by_ports.insert((peer, connection.settings().port, connection.settings().peer_port), handle);
        self.entries[at as usize] =
            Some(Entry { peer, connection, offered, armed: None, is_ready: false, has_news: false });
        self.touched(now, at);
        handle
    }

    /// The next connection that a frame, or time, has changed since it was last named here; each stands there once. The first call begins it.
    pub fn next_changed(&mut self) -> Option<Handle> {
        let handle = self.news.get_or_insert_default().pop_front()?;
        if let Some(entry) = self.at(handle.0).and_then(|at| self.entries[at as usize].as_mut()) {
            entry.has_news = false;
        }
        Some(handle)
    }

    /// The next place of a connection, below 65,535, at which one opened since it was last named here, or is no more. The first call begins it.
    #[inline]
    pub fn opened(&mut self) -> Option<(u32, Option<Ends<P>>)> {
        let at = self.opened.get_or_insert_default().pop_front()?;
        let entry = self.entries.get(at as usize).and_then(Option::as_ref);
        let entry = entry.filter(|entry| entry.connection.peer_number() != 0);
        let ends = entry.map(|entry| {
            let &Settings { port, peer_port, epoch, .. } = entry.connection.settings();
            Ends { peer: entry.peer, port, peer_port, peer_number: entry.connection.peer_number(), epoch }
        });
        Some((at, ends))
    }

    fn has_opened(&mut self, at: u32) {
        if let Some(opened) = &mut self.opened {
            opened.push_back(at);
        }
    }

    fn tell(&mut self, at: u32) {
        if let (Some(news), Some(entry)) = (&mut self.news, &mut self.entries[at as usize])
            && !entry.has_news
        {
            entry.has_news = true;
            news.push_back(Handle(entry.connection.settings().number));
        }
    }

    fn at(&self, number: u32) -> Option<u32> {
        let at = (number & 0xffff).checked_sub(1)?;
        let entry = self.entries.get(at as usize)?.as_ref()?;
        (entry.connection.settings().number == number).then_some(at)
    }

    /// The connection; none once it has ended and rested.
    pub fn connection(&self, handle: Handle) -> Option<&Connection> {
        Some(&self.entries[self.at(handle.0)? as usize].as_ref()?.connection)
    }

    /// The node at the other end.
    pub fn peer_of(&self, handle: Handle) -> Option<P> {
        Some(self.entries[self.at(handle.0)? as usize].as_ref()?.peer)
    }

    /// Does something with a connection; none once it has ended and rested.
    pub fn with<T>(&mut self, now: Nanos, handle: Handle, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let at = self.at(handle.0)?;
        let done = self.work(at, work);
        self.touched(now, at);
        done
    }

    /// Lends the connection the free pages of the node.
    fn work<T>(&mut self, at: u32, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let entry = self.entries[at as usize].as_mut()?;
        entry.connection.lend(&mut self.pool);
        let done = work(&mut entry.connection);
        entry.connection.lend(&mut self.pool);
        Some(done)
    }

    /// It may have something to send now; once it has nothing more, [`Node::poll`] arms its timer.
    fn touched(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &mut self.entries[at as usize] else { return };
        if entry.connection.is_over(now) {
            return self.remove(at);
        }
        if !entry.is_ready {
            entry.is_ready = true;
            self.ready.push_back(at);
        }
    }

    /// It has nothing to send before it is due: among the timers it stands no later than that. A timer that is too early stays, as most of them move later
    /// with each frame.
    fn arm(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &mut self.entries[at as usize] else { return };
        if entry.connection.is_over(now) {
            return self.remove(at);
        }
        // What is due and sends nothing is due again no sooner than a moment later.
        let Some(due) = entry.connection.due().map(|due| due.max(now + 1)) else { return };
        if let Some(armed) = entry.armed {
            if armed <= due {
                return;
            }
            self.timers.remove(&(armed, at));
        }
        entry.armed = Some(due);
        self.timers.insert((due, at));
    }

    fn remove(&mut self, at: u32) {
        let Some(mut entry) = self.entries[at as usize].take() else { return };
        if entry.offered != (0, 0) {
            self.half_open.remove(Handle(entry.connection.settings().number));
        }
        entry.connection.give_back(&mut self.pool);
        let Settings { port, peer_port, number, .. } = *entry.connection.settings();
        entry.armed.map(|armed| self.timers.remove(&(armed, at)));
        self.offers.remove(&(entry.peer, entry.offered.0, entry.offered.1));
        if self.by_ports.get(&(entry.peer, port, peer_port)) == Some(&Handle(number)) {
            self.by_ports.remove(&(entry.peer, port, peer_port));
        }
        self.free.push(at);
        self.has_opened(at);
    }

    /// A frame arrived from `peer`.
    pub fn on_frame(&mut self, now: Nanos, peer: P, frame: &[u8]) {
        self.take(now, peer, frame, false);
    }

    /// A frame arrived from `peer`, out of a ring that was filled beyond a half: it counts as one that met congestion, and its sender hears of it.
    pub fn on_frame_congested(&mut self, now: Nanos, peer: P, frame: &[u8]) {
        self.counts.congested += 1;
        self.take(now, peer, frame, true);
    }

    fn take(&mut self, now: Nanos, peer: P, frame: &[u8], congested: bool) {
        let (mut header, payload) = match Header::read(frame) {
            Ok(read) => read,
            Err(bad) => return self.on_bad(now, peer, frame, bad),
        };
        header.flags = header.flags.with_if(congested, Flags::CONGESTED);
        let connection = match header.connection {
            0 if header.kind == Kind::Reset => {
                self.by_ports.get(&(peer, header.to_port, header.from_port)).and_then(|h| self.at(h.0))
            }
            0 => None,
            number => self.at(number),
        };
        // Programs of a node have one address, and each sends from ports of its own alone.
        let connection = connection.filter(|&at| {
            let Some(entry) = &self.entries[at as usize] else { return false };
            let &Settings { port, peer_port, .. } = entry.connection.settings();
            (entry.peer, port, peer_port) == (peer, header.to_port, header.from_port)
        });
        match (header.kind, connection) {
            (Kind::Open, _) => self.on_open(now, peer, &header, payload),
            // In the name of a node speaks its broker alone, which has port 0.
            (Kind::Hello, _) if header.from_port == 0 => self.on_hello(now, peer, &header, payload),
            (_, Some(at)) => self.on_connection(now, at, &header, payload),
            (Kind::Probe, None) if header.connection == 0 && header.to_port == 0 => {
                self.on_probe(peer, &header, payload);
            }
            // The answer to a probe is the node's own, too.
            (Kind::Ack, None) if header.connection == 0 && header.from_port == 0 => {
                self.on_echo(now, peer, &header, payload);
            }
            (Kind::Reset | Kind::Busy | Kind::Hello, None) => self.counts.unknown += 1,
            (Kind::Data | Kind::Probe | Kind::Ack | Kind::OpenAck, None) => {
                self.counts.unknown += 1;
                self.refuse(peer, &header, Reason::Unknown);
            }
        }
    }

    fn on_connection(&mut self, now: Nanos, at: u32, header: &Header, payload: &[u8]) {
        let was_half_open = self.work(at, |connection| {
            let was_half_open = connection.is_half_open();
            connection.on_frame(now, header, payload);
            was_half_open && !connection.is_half_open()
        });
        if was_half_open == Some(true) {
            self.has_answered(now, at);
        }
        if header.kind == Kind::OpenAck {
            self.has_opened(at);
        }
        self.tell(at);
        self.touched(now, at);
    }

    /// The answer to its offer is acknowledged: it waits to be accepted; or refused.
    fn has_answered(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &self.entries[at as usize] else { return };
        let Settings { port, number, .. } = *entry.connection.settings();
        self.half_open.remove(Handle(number));
        if entry.connection.state() != State::Open {
            return;
        }
        match self.listeners.get_mut(&port) {
            Some(listener) => {
                listener.waiting.push_back(Handle(number));
                self.has_opened(at);
            }
            None => drop(self.work(at, |connection| connection.abort(now, Reason::Refused))),
        }
    }

    fn on_open(&mut self, now: Nanos, peer: P, header: &Header, payload: &[u8]) {
        let Some(offer) = Offer::read(payload) else {
            self.counts.kind += 1;
            return;
        };
        let offered = (header.epoch, offer.connection);
        if let Some(at) = self.offers.get(&(peer, offered.0, offered.1)).and_then(|h| self.at(h.0)) {
            self.work(at, |connection| connection.on_frame(now, header, payload));
            return self.touched(now, at);
        }
        match self.listeners.get(&header.to_port) {
            None => {
                self.counts.refused += 1;
                return self.refuse(peer, header, Reason::Refused);
            }
            Some(listener) if listener.stream != offer.stream => {
                return self.refuse(peer, header, Reason::Mismatch);
            }
            Some(listener) if listener.waiting.len() >= listener.room => {
                self.counts.busy += 1;
                let busy = Header { connection: offer.connection, ..self.reply(Kind::Busy, header) };
                self.answer(peer, busy, &[]);
                return;
            }
            Some(_) => {}
        }
        match self.half_open.room(now, peer) {
            Room::Free => {}
            Room::Evict(oldest) => {
                self.counts.half_open += 1;
                self.at(oldest.0).into_iter().for_each(|at| self.remove(at));
            }
            Room::Full => {
                self.counts.busy += 1;
                return;
            }
        }
        let Some(settings) = self.ends(header.to_port, header.from_port, offer.stream) else {
            self.counts.busy += 1;
            return;
        };
        let mut connection = Connection::accept(now, settings, header, &offer);
        if self.half_open.is_crowded() {
            connection.answers_once();
        }
        let handle = self.add(now, peer, offered, connection);
        self.half_open.add(now, peer, handle);
        self.offers.insert((peer, offered.0, offered.1), handle);
    }

    /// When [`Node::on_time`] is to be called, or some time before; none: nothing is waited for. It is right once [`Node::poll`] has given all.
    pub fn due(&self) -> Option<Nanos> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Says whether this node's carrier is down. The time until it is up again does not count for [`crate::PEER_TIMEOUT`].
    pub fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// Time has gone by.
    pub fn on_time(&mut self, now: Nanos) {
        while let Some(&(_, at)) = self.timers.first().filter(|&&(armed, _)| armed <= now) {
            self.timers.pop_first();
            let Some(entry) = &mut self.entries[at as usize] else { continue };
            entry.armed = None;
            if entry.connection.due().is_none_or(|due| due > now) {
                self.arm(now, at);
                continue;
            }
            let is_down = self.is_down;
            let given_up = self.work(at, |connection| {
                if is_down {
                    connection.wait_anew(now);
                }
                let was_half_open = connection.is_half_open();
                connection.on_time(now);
                was_half_open && !connection.is_half_open()
            });
            self.counts.half_open += u64::from(given_up == Some(true));
            self.tell(at);
            self.touched(now, at);
        }
    }

    /// The next frame that is to be sent now, and where to; none: nothing.
    pub fn poll(&mut self, now: Nanos) -> Option<(P, [u8; HEADER_BYTES], &[u8])> {
        if let Some((peer, head, payload)) = self.answers.pop_front() {
            self.answer = payload;
            return Some((peer, head, &self.answer));
        }
        // One frame of each in turn.
        loop {
            let at = self.ready.pop_front()?;
            let Some(entry) = &mut self.entries[at as usize] else { continue };
            entry.is_ready = false;
            let Some(head) = entry.connection.poll_head(now) else {
                self.arm(now, at);
                continue;
            };
            entry.is_ready = true;
            self.ready.push_back(at);
            let entry = self.entries[at as usize].as_ref()?;
            return Some((entry.peer, head, entry.connection.polled()));
        }
    }

    pub fn handles(&self) -> impl Iterator<Item = (Handle, P, State)> + '_ {
        let of = |entry: &Entry<P>| (Handle(entry.connection.settings().number), entry.peer, entry.connection.state());
        self.entries.iter().flatten().map(of)
    }
}

pub(crate) const EMPTY: Header = Header {
    kind: Kind::Hello,
    flags: Flags(0),
    from_port: 0,
    to_port: 0,
    connection: 0,
    epoch: 0,
    sequence: Serial(0),
    acknowledged: Serial(0),
    received: 0,
    credit: 0,
};
