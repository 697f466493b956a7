//! The broker's loop over the sockets of programs: requests, ends of pairs, streams of other nodes.

mod brokered;
mod closers;
mod entries;
mod entry;
mod handover;
mod lookups;
mod pairs;
mod pending_accepts;
mod pending_connects;
mod requests;
mod table;
mod users;

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use host::netlink::Netlink;
use ipnet::IpNet;
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        resource::{Resource, getrlimit, setrlimit},
        socket::SockProtocol,
    },
};
use sys::{
    dispose::{Disposed, Disposer},
    socket_kind::network_namespace,
};
use transport::Handle;

use self::{
    entry::{Entry, Label},
    lookups::Lookups,
    pairs::Pairs,
    pending_connects::LOOKUP_PERIOD,
    table::{ENGINE_TOKEN, REQUESTS_TOKEN, Table},
    users::{Counted, Received, Users, program},
};
use super::{
    address_map::AddressMap,
    allow::Allow,
    broker_lines::listener,
    flow::PIECE_BYTES,
    ids::{Cookie, EntryId},
    listeners::Listening,
    shared::Known,
};
use crate::{BrokerCarrier, Claim, Engine, LinkError, Paths};

/// Port of link on which brokers take connections of programs.
const PORT: u16 = 2;
/// Streams that wait to be accepted.
const ACCEPT_BACKLOG: usize = 256;
/// Busy-poll time before the loop sleeps.
const BUSY_POLL_TIME: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Time between two checks of all entries.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
const EVENTS_MAX: usize = 64;
/// Time within which a program that has connected makes its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time within which another broker sends the head of its stream.
const STREAM_HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The loop, and all that it serves.
#[derive(Debug)]
pub struct Sockets {
    _claim: Claim,
    engine: Engine<BrokerCarrier>,
    epoll: Epoll,
    requests: Requests,
    users: Users,
    pairs: Pairs,
    cluster: Cluster,
    known: Known,
    table: Table,
    /// Errors of connections that broke lately, by the cookie of the program's end.
    broken: VecDeque<(Cookie, Errno)>,
    checked: Instant,
    piece: Vec<u8>,
}

/// The socket for requests of programs.
#[derive(Debug)]
struct Requests {
    socket: Disposed,
    /// Closes sockets of programs that are not let in, with the descriptors they have sent.
    disposer: Arc<Disposer>,
    /// More programs wait in the socket's backlog.
    has_more: bool,
    /// Cookie of this network namespace.
    namespace: u64,
}

/// The addresses of the cluster, and the listeners of this node.
#[derive(Debug)]
struct Cluster {
    addresses: AddressMap,
    lookups: Lookups,
    allowed: Vec<Allow>,
    listening: Listening,
    /// Socket of inet_diag, which finds a socket by its two addresses.
    diag: Netlink,
}

impl Sockets {
    /// Starts to carry connections to addresses of `prefixes`, which are behind the broker's interface. `allowed`: who may connect to programs
    /// here; empty: all of `prefixes`, to unprivileged ports.
    ///
    /// # Errors
    /// No broker serves; a prefix is not behind its interface alone.
    pub fn start(
        prefixes: &[IpNet],
        allowed: &[Allow],
        known: Known,
        disposer: &Arc<Disposer>,
    ) -> Result<Self, LinkError> {
        let failed = |source| LinkError::System { operation: "serve the sockets of programs", source };
        let paths = Paths::here();
        // A connection has two descriptors here: a lower limit means fewer connections.
        let _ = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
        let (claim, mut engine) = Claim::take_plain()?;
        let addresses = AddressMap::new(prefixes, engine.carrier().wire())?;
        claim.listen(PORT)?;
        engine.listen(PORT, true, ACCEPT_BACKLOG)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| failed(e.into()))?;
        let questions = Disposed::new(listener(&paths.sockets()).map_err(failed)?, disposer);
        epoll
            .add(&questions, REQUESTS_TOKEN.event(EpollFlags::EPOLLIN | EpollFlags::EPOLLET))
            .map_err(|e| failed(e.into()))?;
        epoll.add(engine.descriptor()?, ENGINE_TOKEN.event(EpollFlags::EPOLLIN)).map_err(|e| failed(e.into()))?;
        let lines: String = prefixes.iter().map(|prefix| format!("{prefix}\n")).collect();
        std::fs::write(paths.cluster(), lines).map_err(failed)?;
        let allowed_by_default = allowed.is_empty();
        let allowed: Vec<_> = match allowed {
            [] => prefixes.iter().copied().map(Allow::of).collect(),
            given => given.to_vec(),
        };
        {
            let mut shared = known.lock();
            (shared.is_carried, shared.allowed_by_default) = (true, allowed_by_default);
            shared.allowed = allowed.iter().map(ToString::to_string).collect();
        }
        let namespace = network_namespace(&questions).map_err(failed)?;
        Ok(Self {
            _claim: claim,
            engine,
            epoll,
            requests: Requests { socket: questions, disposer: Arc::clone(disposer), has_more: false, namespace },
            users: Users::new(),
            pairs: Pairs::start().map_err(failed)?,
            cluster: Cluster {
                addresses,
                lookups: Lookups::default(),
                allowed,
                listening: Listening::read(paths.listening()),
                diag: Netlink::open(SockProtocol::NetlinkSockDiag).map_err(failed)?,
            },
            known,
            table: Table::new(),
            broken: VecDeque::new(),
            checked: Instant::now(),
            piece: vec![0; PIECE_BYTES],
        })
    }

    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), LinkError> {
        let mut busy = Instant::now();
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let mut came = 0;
        while !stop.load(Ordering::Relaxed) {
            let arrived = self.engine.poll()?;
            for event in &events[..came] {
                self.on_event(EntryId(event.data()), event.events());
            }
            while let Some(stream) = self.engine.accept(PORT) {
                self.on_stream(stream);
            }
            // The engine's descriptor stays readable until it is armed again.
            let others = events[..came].iter().any(|event| EntryId(event.data()) != ENGINE_TOKEN);
            let now = Instant::now();
            self.process(now);
            let waits = !self.table.pending_connects.is_empty();
            if arrived > 0 || others || self.requests.has_more {
                busy = now;
            } else if now.duration_since(busy) > BUSY_POLL_TIME && self.engine.arm()? {
                let most = if waits { LOOKUP_PERIOD } else { SLEEP_MAX };
                let time = EpollTimeout::try_from(most).unwrap_or(EpollTimeout::ZERO);
                came = self.epoll.wait(&mut events, time).unwrap_or(0);
                continue;
            }
            came = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        }
        Ok(())
    }

    fn watch(&self, fd: BorrowedFd<'_>, id: EntryId) -> Result<(), Errno> {
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(fd, id.event(both))
    }

    /// Removes a descriptor from epoll. Closing it would not: the program has the same file open.
    fn unwatch(&self, fd: impl AsFd) {
        // Fails if it was not watched.
        let _ = self.epoll.delete(fd);
    }

    fn on_event(&mut self, id: EntryId, what: EpollFlags) {
        if id == REQUESTS_TOKEN {
            return self.accept_requesters();
        }
        match self.table.entries.get_mut(id) {
            // The next poll of the engine takes the frames.
            None if id == ENGINE_TOKEN => {}
            Some(Entry::Requester { .. }) => self.on_request(id),
            Some(Entry::PendingAccept(_)) => drop(self.table.ready.insert(id)),
            Some(Entry::Brokered { flow, .. }) => {
                flow.from_program.is_readable |= what.intersects(!EpollFlags::EPOLLOUT);
                flow.to_program.is_writable |= what.intersects(!EpollFlags::EPOLLIN);
                if what.contains(EpollFlags::EPOLLHUP) {
                    flow.hung_up.get_or_insert_with(Instant::now);
                }
                self.table.ready.insert(id);
            }
            Some(Entry::TakenOver { .. }) => drop(self.table.ready.insert(id)),
            _ => {}
        }
    }

    fn abort(&mut self, stream: Handle) {
        // Without the interface this fails, which the next poll reports.
        let _ = self.engine.abort(stream);
    }

    /// Processes the ready entries, and all entries once in a period.
    fn process(&mut self, now: Instant) {
        while let Some(stream) = self.engine.next_changed() {
            if let Some(id) = self.table.by_stream.get(stream) {
                self.table.ready.insert(id);
            }
        }
        self.users.look(now);
        let looks = now.duration_since(self.checked) >= CHECK_PERIOD;
        if looks {
            self.checked = now;
            self.table.ready.extend(self.table.entries.iter().map(|(id, _)| id));
        }
        if looks || self.requests.has_more {
            self.accept_requesters();
        }
        self.table.ready.extend(self.table.pending_connects.iter().copied());
        for id in std::mem::take(&mut self.table.ready) {
            let Some(entry) = self.table.entries.remove(id) else { continue };
            let after = match entry {
                Entry::Brokered { flow, label, handover, port_holder } => {
                    self.carry(flow, label, handover, port_holder, now)
                }
                Entry::TakenOver { end, label, handover, port_holder } => {
                    self.check_taken_over(end, label, handover, port_holder)
                }
                Entry::Notice { stream, node, line } => self.on_notice_stream(stream, node, line),
                Entry::PendingConnect(pending) => self.on_pending_connect(id, pending, now),
                Entry::Unnamed { stream, since, .. } if now.duration_since(since) > STREAM_HEAD_TIMEOUT => {
                    self.abort(stream);
                    None
                }
                Entry::Unnamed { stream, node, bytes, since } => self.on_stream_head(id, stream, node, bytes, since),
                Entry::PendingAccept(pending) => self.on_pending_accept(id, pending),
                Entry::Requester { since, .. } if now.duration_since(since) > REQUEST_TIMEOUT => None,
                asks @ Entry::Requester { .. } => Some(asks),
            };
            if !matches!(after, Some(Entry::PendingConnect(_))) {
                self.table.pending_connects.remove(&id);
            }
            match after {
                Some(after) => self.table.entries.insert(id, after),
                None => self.table.forget(id),
            }
        }
        if self.known.is_wanted() {
            self.show();
        }
    }
}
