//! A node: its listeners, and its connections by number.

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
pub use self::types::{Endpoints, FREE_PORTS, Handle, NodeCounts, NodeSettings};
use crate::{
    Connection, Flags, HEADER_BYTES, Header, Kind, Nanos, Peer, Reason, Serial, Settings, State, echo::Echoes,
    peers::Peers, slots::Pool, version::Versions,
};

/// Connections of a node.
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
    /// Epoch and number of the offer; zeros: made by this node.
    offered: (u32, u32),
    /// Time of its entry in `timers`, no later than its deadline.
    armed: Option<Nanos>,
    /// True while the connection is queued in `ready`.
    is_ready: bool,
    /// True while the connection is queued in `changed`.
    is_changed: bool,
}

/// A node. `P` is the address type of nodes.
#[derive(Debug)]
pub struct Node<P> {
    settings: NodeSettings,
    entries: Vec<Option<Entry<P>>>,
    free: Vec<u32>,
    listeners: HashMap<u16, Listener>,
    /// Accepted connections by peer, epoch and number of the offer.
    offers: HashMap<(P, u32, u32), Handle>,
    /// Connections by peer, own port and peer port.
    by_ports: HashMap<(P, u16, u16), Handle>,
    half_open: HalfOpen<P>,
    ready: VecDeque<u32>,
    /// Connections changed by a frame or timer; none until [`Node::next_changed`] is called.
    changed: Option<VecDeque<Handle>>,
    /// Slots of connections that opened or were removed; none until [`Node::next_changed_slot`] is called.
    changed_slots: Option<VecDeque<u32>>,
    /// Deadlines with slots, at most one for each connection.
    timers: BTreeSet<(Nanos, u32)>,
    is_down: bool,
    pool: Pool,
    answers: VecDeque<(P, [u8; HEADER_BYTES], Vec<u8>)>,
    answer: Vec<u8>,
    peers: Peers<P>,
    versions: Versions<P>,
    echoes: Echoes<P>,
    counts: NodeCounts,
    /// Numbers drawn so far.
    numbers_drawn: u64,
    next_port: u16,
}

impl<P: Copy + Eq + Hash> Node<P> {
    /// A node without listeners and connections.
    pub fn new(settings: NodeSettings) -> Self {
        Self {
            numbers_drawn: 0,
            next_port: *settings.ports.start(),
            settings,
            entries: Vec::new(),
            free: Vec::new(),
            listeners: HashMap::new(),
            offers: HashMap::new(),
            by_ports: HashMap::new(),
            half_open: HalfOpen::new(),
            ready: VecDeque::new(),
            changed: None,
            changed_slots: None,
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

    /// Nodes that sent a hello.
    pub fn peers(&self) -> impl Iterator<Item = (&P, &Peer)> {
        self.peers.iter()
    }

    /// Number of changes of [`Node::peers`] so far, [`Peer::heard`] aside.
    pub fn peer_changes(&self) -> u64 {
        self.peers.changes()
    }

    /// The next unpredictable number, by a keyed hash.
    fn draw(&mut self) -> u64 {
        self.numbers_drawn += 1;
        let mut hash = SipHasher24::new_with_keys(self.settings.secret as u64, (self.settings.secret >> 64) as u64);
        hash.write_u64(self.numbers_drawn);
        hash.finish()
    }

    /// Listens on a port with a backlog of `room` connections. False: the port has a listener.
    pub fn listen(&mut self, port: u16, stream: bool, room: usize) -> bool {
        if self.listeners.contains_key(&port) {
            return false;
        }
        self.listeners.insert(port, Listener { stream, room, waiting: VecDeque::new() });
        true
    }

    /// Listens on an ephemeral port, and removes it from their range; none: one is left, or it has a listener.
    pub fn listen_free(&mut self, stream: bool, room: usize) -> Option<u16> {
        let (first, last) = (*self.settings.ports.start(), *self.settings.ports.end());
        if first == last || !self.listen(first, stream, room) {
            return None;
        }
        self.settings.ports = first + 1..=last;
        self.next_port = self.next_port.max(first + 1);
        Some(first)
    }

    /// Closes a listener. Connections in its backlog are reset.
    pub fn stop_listening(&mut self, now: Nanos, port: u16) {
        for handle in self.listeners.remove(&port).into_iter().flat_map(|l| l.waiting) {
            self.with(now, handle, |connection| connection.abort(now, Reason::Refused));
        }
    }

    /// Takes the next connection out of the backlog of a port.
    pub fn accept(&mut self, port: u16) -> Option<Handle> {
        self.listeners.get_mut(&port)?.waiting.pop_front()
    }

    /// Connects to a port of another node; none: too many connections, or no free port.
    pub fn connect(&mut self, now: Nanos, peer: P, peer_port: u16, stream: bool) -> Option<Handle> {
        let port = self.settings.ports.clone().find_map(|_| {
            let port = self.next_port;
            let last = port == *self.settings.ports.end();
            self.next_port = if last { *self.settings.ports.start() } else { port + 1 };
            // A connection in TIME-WAIT is found by its number: its ports can be reused.
            let used = self.by_ports.get(&(peer, port, peer_port)).and_then(|&handle| self.connection(handle));
            used.is_none_or(|c| matches!(c.state(), State::TimeWait | State::Failed(_))).then_some(port)
        })?;
        let settings = self.new_settings(port, peer_port, stream)?;
        Some(self.add(now, peer, (0, 0), Connection::open(now, settings)))
    }

    fn new_settings(&mut self, port: u16, peer_port: u16, stream: bool) -> Option<Settings> {
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

    /// Enters a connection in the slot that its number names.
    fn add(&mut self, now: Nanos, peer: P, offered: (u32, u32), connection: Connection) -> Handle {
        let at = self.free.pop().unwrap_or(self.entries.len() as u32);
        if at as usize == self.entries.len() {
            self.entries.push(None);
        }
        let handle = Handle(connection.settings().number);
        self.by_ports.insert((peer, connection.settings().port, connection.settings().peer_port), handle);
        self.entries[at as usize] =
            Some(Entry { peer, connection, offered, armed: None, is_ready: false, is_changed: false });
        self.schedule(now, at);
        handle
    }

    /// The next connection changed by a frame or timer. The first call starts the tracking.
    pub fn next_changed(&mut self) -> Option<Handle> {
        let handle = self.changed.get_or_insert_default().pop_front()?;
        if let Some(entry) = self.at(handle.0).and_then(|at| self.entries[at as usize].as_mut()) {
            entry.is_changed = false;
        }
        Some(handle)
    }

    /// The next slot below 65,535 whose connection opened or was removed. The first call starts the tracking.
    #[inline]
    pub fn next_changed_slot(&mut self) -> Option<(u32, Option<Endpoints<P>>)> {
        let at = self.changed_slots.get_or_insert_default().pop_front()?;
        let entry = self.entries.get(at as usize).and_then(Option::as_ref);
        let entry = entry.filter(|entry| entry.connection.peer_number() != 0);
        let ends = entry.map(|entry| {
            let &Settings { port, peer_port, epoch, .. } = entry.connection.settings();
            Endpoints { peer: entry.peer, port, peer_port, peer_number: entry.connection.peer_number(), epoch }
        });
        Some((at, ends))
    }

    fn mark_slot_changed(&mut self, at: u32) {
        if let Some(opened) = &mut self.changed_slots {
            opened.push_back(at);
        }
    }

    fn mark_changed(&mut self, at: u32) {
        if let (Some(changed), Some(entry)) = (&mut self.changed, &mut self.entries[at as usize])
            && !entry.is_changed
        {
            entry.is_changed = true;
            changed.push_back(Handle(entry.connection.settings().number));
        }
    }

    fn at(&self, number: u32) -> Option<u32> {
        let at = (number & 0xffff).checked_sub(1)?;
        let entry = self.entries.get(at as usize)?.as_ref()?;
        (entry.connection.settings().number == number).then_some(at)
    }

    /// A connection; none after the end of TIME-WAIT.
    pub fn connection(&self, handle: Handle) -> Option<&Connection> {
        Some(&self.entries[self.at(handle.0)? as usize].as_ref()?.connection)
    }

    /// The peer of a connection.
    pub fn peer_of(&self, handle: Handle) -> Option<P> {
        Some(self.entries[self.at(handle.0)? as usize].as_ref()?.peer)
    }

    /// Calls `work` with a connection; none after the end of TIME-WAIT.
    pub fn with<T>(&mut self, now: Nanos, handle: Handle, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let at = self.at(handle.0)?;
        let done = self.with_pool(at, work);
        self.schedule(now, at);
        done
    }

    /// Calls `work` with a connection that has the node's pool.
    fn with_pool<T>(&mut self, at: u32, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let entry = self.entries[at as usize].as_mut()?;
        entry.connection.swap_pool(&mut self.pool);
        let done = work(&mut entry.connection);
        entry.connection.swap_pool(&mut self.pool);
        Some(done)
    }

    fn remove(&mut self, at: u32) {
        let Some(mut entry) = self.entries[at as usize].take() else { return };
        if entry.offered != (0, 0) {
            self.half_open.remove(Handle(entry.connection.settings().number));
        }
        entry.connection.free_pages(&mut self.pool);
        let Settings { port, peer_port, number, .. } = *entry.connection.settings();
        entry.armed.map(|armed| self.timers.remove(&(armed, at)));
        self.offers.remove(&(entry.peer, entry.offered.0, entry.offered.1));
        if self.by_ports.get(&(entry.peer, port, peer_port)) == Some(&Handle(number)) {
            self.by_ports.remove(&(entry.peer, port, peer_port));
        }
        self.free.push(at);
        self.mark_slot_changed(at);
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
