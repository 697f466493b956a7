//! A node: its listeners, and its connections to others, found by their numbers.

mod half_open;
mod input;
mod schedule;
mod types;
mod unmatched;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::{Hash, Hasher},
};

use siphasher::sip::SipHasher24;

use self::half_open::HalfOpen;
pub use self::types::{Ends, FREE_PORTS, Handle, NodeCounts, NodeSettings};
use crate::{
    Connection, Flags, HEADER_BYTES, Header, Kind, Nanos, Peer, Reason, Serial, Settings, State, echo::Echoes,
    peers::Peers, slots::Pool, version::Versions,
};

/// Connections of a node at the most.
const CONNECTIONS_MAX: usize = 1 << 16;

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

    /// Handles of all connections.
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
