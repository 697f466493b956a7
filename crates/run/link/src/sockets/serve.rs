//! What carries the sockets of programs: one loop over the questions, the ends and the streams.

mod closers;
mod direct;
mod entry;
mod guests;
mod offers;
mod open;
mod pairs;
mod requests;
mod sought;
mod stages;
mod table;
mod wishes;

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
    entry::{Stage, Who},
    guests::{Counted, Guests, Sent, User, program},
    pairs::Pairs,
    sought::Sought,
    table::{FRAMES, QUESTIONS, Table},
    wishes::LOOK,
};
use super::{
    allow::Allow,
    flow::PIECE,
    ids::{Cookie, EntryId},
    places::{Known, Listening, Places},
    questions::listener,
};
use crate::{Claim, Either, Engine, LinkError, Paths};

/// The port of link that brokers take connections of programs on.
const PORT: u16 = 2;
/// Connections that wait to be accepted.
const WAITING: usize = 256;
/// Actively waited for before a wait sleeps.
const SPIN: Duration = Duration::from_micros(20);
const TURN: Duration = Duration::from_millis(20);
/// How often all are looked at, whether something happened or not.
const LOOKED_AT: Duration = Duration::from_secs(1);
const EVENTS: usize = 64;
/// How long a program that asks may say nothing.
const ASKED: Duration = Duration::from_secs(2);
/// Another node's broker says within this time which connection a stream is, and so many of a node's have not said it.
const NAMED: Duration = Duration::from_secs(5);

/// The carrier of the sockets of programs.
#[derive(Debug)]
pub struct Sockets {
    _claim: Claim,
    engine: Engine<Either>,
    epoll: Epoll,
    requests: Requests,
    guests: Guests,
    pairs: Pairs,
    cluster: Cluster,
    known: Known,
    table: Table,
    /// Connections that broke, of late, by the cookies of their programs' ends.
    broke: VecDeque<(Cookie, Errno)>,
    looked: Instant,
    piece: Vec<u8>,
}

/// Where programs ask.
#[derive(Debug)]
struct Requests {
    socket: Disposed,
    /// Releases programs that are not let in, with what they have sent.
    disposer: Arc<Disposer>,
    /// More programs wait to be let in.
    has_more: bool,
    /// The network namespace, as its sockets have it.
    namespace: u64,
}

/// Which addresses are nodes of the cluster, and who listens here.
#[derive(Debug)]
struct Cluster {
    places: Places,
    sought: Sought,
    allowed: Vec<Allow>,
    listening: Listening,
    /// Where the kernel says which socket has two addresses.
    diag: Netlink,
}

impl Sockets {
    /// Begins to carry the sockets of programs that connect to addresses of `prefixes`, which are behind the broker's interface. What `allowed` lets in
    /// comes to programs that listen here; empty: the ports of programs from all of those.
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
        // A connection has two descriptors here. With fewer there are fewer connections.
        let _ = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
        let (claim, mut engine) = Claim::take_plain()?;
        let places = Places::new(prefixes, engine.carrier().wire())?;
        claim.listen(PORT)?;
        engine.listen(PORT, true, WAITING)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| failed(e.into()))?;
        let questions = Disposed::new(listener(&paths.sockets()).map_err(failed)?, disposer);
        epoll
            .add(&questions, QUESTIONS.event(EpollFlags::EPOLLIN | EpollFlags::EPOLLET))
            .map_err(|e| failed(e.into()))?;
        epoll.add(engine.descriptor()?, FRAMES.event(EpollFlags::EPOLLIN)).map_err(|e| failed(e.into()))?;
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
            guests: Guests::new(),
            pairs: Pairs::start().map_err(failed)?,
            cluster: Cluster {
                places,
                sought: Sought::default(),
                allowed,
                listening: Listening::read(paths.listening()),
                diag: Netlink::open(SockProtocol::NetlinkSockDiag).map_err(failed)?,
            },
            known,
            table: Table::new(),
            broke: VecDeque::new(),
            looked: Instant::now(),
            piece: vec![0; PIECE],
        })
    }

    /// Carries until `stop` is set.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), LinkError> {
        let mut busy = Instant::now();
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut came = 0;
        while !stop.load(Ordering::Relaxed) {
            let arrived = self.engine.turn()?;
            for event in &events[..came] {
                self.on_event(EntryId(event.data()), event.events());
            }
            while let Some(stream) = self.engine.accept(PORT) {
                self.on_stream(stream);
            }
            // The engine's descriptor stays readable until it is armed again.
            let others = events[..came].iter().any(|event| EntryId(event.data()) != FRAMES);
            let now = Instant::now();
            self.turn(now);
            let waits = !self.table.wishes.is_empty();
            if arrived > 0 || others || self.requests.has_more {
                busy = now;
            } else if now.duration_since(busy) > SPIN && self.engine.arm()? {
                let most = if waits { LOOK } else { TURN };
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

    /// Removes a descriptor from epoll. An entry ends with the file, and a program has the same file open.
    fn unwatch(&self, fd: impl AsFd) {
        // One that was not watched is none to forget.
        let _ = self.epoll.delete(fd);
    }

    fn on_event(&mut self, id: EntryId, what: EpollFlags) {
        if id == QUESTIONS {
            return self.on_programs();
        }
        match self.table.all.get_mut(id) {
            // Frames: the next turn takes them.
            None if id == FRAMES => {}
            Some(Stage::Asks { .. }) => self.on_question(id),
            Some(Stage::Offered { .. }) => drop(self.table.busy.insert(id)),
            Some(Stage::Open { flow, .. }) => {
                flow.is_readable |= what.intersects(!EpollFlags::EPOLLOUT);
                flow.is_writable |= what.intersects(!EpollFlags::EPOLLIN);
                if what.contains(EpollFlags::EPOLLHUP) {
                    flow.gone.get_or_insert_with(Instant::now);
                }
                self.table.busy.insert(id);
            }
            Some(Stage::Direct { .. }) => drop(self.table.busy.insert(id)),
            _ => {}
        }
    }

    fn abort(&mut self, stream: Handle) {
        // Without the interface nobody can be told, which the next turn says.
        let _ = self.engine.abort(stream);
    }

    /// Does what can be done for those that something happened to, and for all once in a while.
    fn turn(&mut self, now: Instant) {
        while let Some(stream) = self.engine.news() {
            if let Some(id) = self.table.streams.get(stream) {
                self.table.busy.insert(id);
            }
        }
        self.guests.look(now);
        let looks = now.duration_since(self.looked) >= LOOKED_AT;
        if looks {
            self.looked = now;
            self.table.busy.extend(self.table.all.iter().map(|(id, _)| id));
        }
        if looks || self.requests.has_more {
            self.on_programs();
        }
        self.table.busy.extend(self.table.wishes.iter().copied());
        for id in std::mem::take(&mut self.table.busy) {
            let Some(stage) = self.table.all.remove(id) else { continue };
            let after = match stage {
                Stage::Open { flow, who, direct, holds } => self.carry(flow, who, direct, holds, now),
                Stage::Direct { end, who, direct, holds } => self.watched(end, who, direct, holds),
                Stage::Tells { stream, node, line } => self.on_tells(stream, node, line),
                Stage::Connects(wish) => self.on_wish(id, wish, now),
                Stage::Named { stream, since, .. } if now.duration_since(since) > NAMED => {
                    self.abort(stream);
                    None
                }
                Stage::Named { stream, node, bytes, since } => self.on_head(id, stream, node, bytes, since),
                Stage::Offered { stream, who, tcp, is_answered } => self.on_offer(id, stream, who, tcp, is_answered),
                Stage::Asks { since, .. } if now.duration_since(since) > ASKED => None,
                asks @ Stage::Asks { .. } => Some(asks),
            };
            if !matches!(after, Some(Stage::Connects(_))) {
                self.table.wishes.remove(&id);
            }
            match after {
                Some(after) => self.table.all.insert(id, after),
                None => self.table.forget(id),
            }
        }
        if self.known.is_asked() {
            self.show();
        }
    }
}
