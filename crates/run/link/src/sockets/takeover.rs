//! The program's side of a takeover: an engine in its own process carries the connections, past both brokers.
//!
//! The program's descriptor stays the end of a pair, and poll(2) of it stays true: bytes that [`Takeovers::read`] does not take are passed into the pair
//! after a timeout ([`Takeovers::pass_stale`]), and bytes written into the pair are sent. So calls that are not intercepted (io_uring, stdio, a child) work, slower.
//!
//! The caller holds a lock; nothing here blocks.

mod calls;
mod join;
mod pairs;

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::{
        epoll::{Epoll, EpollCreateFlags},
        socket::{MsgFlags, Shutdown, shutdown},
    },
    unistd::pipe2,
};
use transport::{Handle, Reason};

use self::join::Join;
use super::{
    broker_client::{BrokerClient, Request, Traffic},
    flow::{Flow, PIECE_BYTES},
};
use crate::{BrokerCarrier, Claim, Engine, LinkError};

/// Time until unread bytes and unfinished joins are checked again.
const CHECK_TIMEOUT: Duration = Duration::from_millis(1);
/// Time between two reports of traffic counts to the broker.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Streams that wait to be accepted.
const ACCEPT_BACKLOG: usize = 64;
const EVENTS_MAX: usize = 64;
/// Streams that have not sent their token yet.
const UNMATCHED_MAX: usize = 64;
const PEEK: MsgFlags = MsgFlags::MSG_PEEK.union(MsgFlags::MSG_DONTWAIT);

/// Number of a connection of this process.
pub type ConnectionId = u32;

/// Result of a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Bytes read or written; of a read, 0: the end.
    Done(usize),
    /// No bytes, or no room.
    Waits,
    /// The kernel's call has to be made on the descriptor.
    Kernel,
    /// The connection broke, with this error number.
    Broke(i32),
}

/// The connections that this process carries or is about to carry.
#[derive(Debug)]
pub struct Takeovers {
    claim: Claim,
    engine: Engine<BrokerCarrier>,
    /// Port on which programs of other nodes connect.
    port: u16,
    broker: BrokerClient,
    /// The broker gets the read end, and sees the write end closed when the last process that carries connections ends.
    life: (OwnedFd, OwnedFd),
    connections: Connections,
    /// Accepted streams without a token yet.
    unmatched: Vec<(Handle, Vec<u8>, Instant)>,
    /// Connections with unread bytes; some may have none.
    unread: Vec<ConnectionId>,
    pairs: Epoll,
    piece: Vec<u8>,
    reported: Instant,
    sleeping: Sleeping,
}

/// Connections by id and by stream.
#[derive(Debug, Default)]
struct Connections {
    all: BTreeMap<ConnectionId, Connection>,
    by_stream: HashMap<Handle, ConnectionId>,
    last: ConnectionId,
}

/// Numbers of sleeping calls.
#[derive(Debug, Default)]
struct Sleeping {
    for_any: u32,
    all: u32,
}

#[derive(Debug)]
struct Connection {
    progress: Progress,
    /// Calls that sleep for it.
    waits: u32,
    /// The program has closed it, or hidden it from this library.
    is_orphan: bool,
    /// Time since when unread bytes are there.
    unread: Option<Instant>,
    /// Bytes arrived after the last [`Takeovers::readable`].
    is_fresh: bool,
    broke: Option<Errno>,
    traffic: Traffic,
}

#[derive(Debug)]
enum Progress {
    /// The brokers move the bytes; both programs come together.
    Joining(Join),
    /// This process moves the bytes.
    TakenOver {
        flow: Box<Flow>,
        /// The pair may have bytes for the program.
        has_passed: bool,
    },
    /// The brokers keep the connection, or it has ended.
    Released,
}

impl Takeovers {
    /// Gets ports from the broker, and opens the engine.
    pub fn start() -> Result<Self, LinkError> {
        let (claim, mut engine) = Claim::take_plain()?;
        let port = engine.listen_free(ACCEPT_BACKLOG)?;
        // The first sleep needs it.
        engine.descriptor()?;
        let failed = |e: Errno| LinkError::System { operation: "make an epoll descriptor", source: e.into() };
        Ok(Self {
            claim,
            engine,
            port,
            broker: BrokerClient::here(),
            life: pipe2(OFlag::O_CLOEXEC)
                .map_err(|e| LinkError::System { operation: "make a pipe", source: e.into() })?,
            connections: Connections::default(),
            unmatched: Vec::new(),
            unread: Vec::new(),
            pairs: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?,
            piece: vec![0; PIECE_BYTES],
            reported: Instant::now(),
            sleeping: Sleeping::default(),
        })
    }

    /// Readable when a frame arrives or a timer is due after [`Takeovers::arm`].
    ///
    /// # Errors
    /// None after [`Takeovers::start`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, LinkError> {
        self.engine.descriptor()
    }

    /// Readable when a pair has an event, for [`Takeovers::on_pairs`].
    pub fn pairs(&self) -> BorrowedFd<'_> {
        self.pairs.0.as_fd()
    }

    pub fn arm(&mut self) -> Result<bool, LinkError> {
        self.engine.arm()
    }

    /// Nothing is in flight or unacknowledged.
    pub fn is_quiet(&self) -> bool {
        self.engine.is_quiet() && self.unmatched.is_empty()
    }

    /// True if there are connections.
    pub fn has_any(&self) -> bool {
        !self.connections.all.is_empty()
    }

    /// True if there is exactly one connection.
    pub fn has_one(&self) -> bool {
        self.connections.all.len() == 1
    }

    /// Counts a call that begins (true) or ends to sleep for a connection.
    pub fn sleeps(&mut self, id: ConnectionId, does: bool) {
        self.sleeping.all = if does { self.sleeping.all + 1 } else { self.sleeping.all.saturating_sub(1) };
        if let Some(one) = self.connections.all.get_mut(&id) {
            one.waits = if does { one.waits + 1 } else { one.waits.saturating_sub(1) };
        }
    }

    /// Counts a call that begins (true) or ends to sleep for any connection.
    pub fn sleeps_for_any(&mut self, does: bool) {
        self.sleeping.all = if does { self.sleeping.all + 1 } else { self.sleeping.all.saturating_sub(1) };
        self.sleeping.for_any = if does { self.sleeping.for_any + 1 } else { self.sleeping.for_any.saturating_sub(1) };
    }

    /// Calls that sleep.
    pub fn waited(&self) -> u32 {
        self.sleeping.all
    }

    /// True if frames have to be polled as they arrive: a call sleeps in the kernel, a connection joins, or none else reads it.
    pub fn is_waited_for(&self) -> bool {
        let is_one = |one: &Connection| one.waits > 0 || one.is_orphan || matches!(one.progress, Progress::Joining(_));
        self.sleeping.for_any > 0 || self.connections.all.values().any(is_one)
    }

    /// Polls the receive ring, and passes bytes into the pairs of sleeping calls, except for the connection `but`, which the caller reads.
    pub fn poll(&mut self, but: Option<ConnectionId>) {
        if let Err(error) = self.engine.poll() {
            // Without the interface all connections break.
            let ids: Vec<ConnectionId> = self.connections.all.keys().copied().collect();
            ids.into_iter().for_each(|id| self.broke(id, &error));
            return;
        }
        while let Some(stream) = self.engine.accept(self.port) {
            match self.unmatched.len() < UNMATCHED_MAX {
                true => self.unmatched.push((stream, Vec::new(), Instant::now())),
                false => drop(self.engine.abort(stream)),
            }
        }
        if !self.unmatched.is_empty() {
            self.match_streams();
        }
        while let Some(stream) = self.engine.next_changed() {
            if let Some(&id) = self.connections.by_stream.get(&stream) {
                self.on_change(id, Some(id) == but);
            }
        }
        // Sends what was written while bytes were passed on.
        if let Err(error) = self.engine.flush() {
            let ids: Vec<ConnectionId> = self.connections.all.keys().copied().collect();
            ids.into_iter().for_each(|id| self.broke(id, &error));
        }
    }

    /// The program has closed its last known descriptor. Other processes may hold one; without any the connection is closed.
    pub fn closed(&mut self, id: ConnectionId) {
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        one.is_orphan = true;
        match &mut one.progress {
            Progress::TakenOver { flow, .. } => {
                flow.from_program.is_readable = true;
                self.pass(id);
                self.poll(None);
            }
            // The descriptor's number may be reused from now on.
            Progress::Joining(join) if join.flow.is_none() => self.give_up(id),
            Progress::Joining(_) => {}
            Progress::Released => self.end(id),
        }
    }

    /// Error number of a connection that broke.
    pub fn ended(&self, id: ConnectionId) -> Option<i32> {
        Some(self.connections.all.get(&id)?.broke? as i32)
    }

    /// Connections whose descriptor no process holds, whichever call closed it.
    pub fn gone(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        let is_gone =
            |one: &Connection| matches!(&one.progress, Progress::TakenOver { flow, .. } if flow.hung_up.is_some());
        self.connections.all.iter().filter(move |(_, one)| is_gone(one)).map(|(&id, _)| id)
    }

    /// [`Takeovers::closed`] for all connections.
    pub fn closed_all(&mut self) {
        let ids: Vec<ConnectionId> = self.connections.all.keys().copied().collect();
        ids.into_iter().for_each(|id| self.closed(id));
    }

    /// True if this process moves its bytes.
    pub fn carries(&self, id: ConnectionId) -> bool {
        self.connections.all.get(&id).is_some_and(|one| matches!(one.progress, Progress::TakenOver { .. }))
    }

    /// Breaks a connection: its pair is shut down, and reads return the error.
    fn broke(&mut self, id: ConnectionId, error: &LinkError) {
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        let error = match error {
            LinkError::Ended(Reason::TimedOut) => Errno::ETIMEDOUT,
            LinkError::Ended(_) => Errno::ECONNRESET,
            _ => Errno::ENETDOWN,
        };
        if let Progress::TakenOver { flow, .. } = &mut one.progress {
            one.broke.get_or_insert(error);
            let _ = shutdown(flow.end.as_raw_fd(), Shutdown::Both);
            let _ = self.engine.abort(flow.stream);
            if one.is_orphan {
                self.end(id);
            }
        } else {
            self.give_up(id);
        }
    }

    /// Removes a connection that the program has closed.
    fn end(&mut self, id: ConnectionId) {
        if let Some(one) = self.connections.all.get_mut(&id) {
            // Otherwise a read may still ask for its error.
            if one.is_orphan {
                self.report(id);
                self.connections.all.remove(&id);
                self.connections.by_stream.retain(|_, of| *of != id);
            }
        }
    }

    /// Reports traffic counts to the broker once in a period, for `link status`.
    pub fn report_all(&mut self, now: Instant) {
        if now.duration_since(self.reported) >= REPORT_PERIOD {
            self.reported = now;
            let ids: Vec<ConnectionId> = self.connections.all.keys().copied().collect();
            ids.into_iter().for_each(|id| self.report(id));
        }
    }

    fn report(&mut self, id: ConnectionId) {
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        let Progress::TakenOver { flow, .. } = &one.progress else { return };
        let traffic = Traffic {
            sent: flow.from_program.bytes,
            received: flow.to_program.bytes,
            resent: self.engine.counts(flow.stream).map_or(0, |counts| counts.resent),
            round_trip: self.engine.round_trip(flow.stream),
        };
        if traffic != one.traffic {
            one.traffic = traffic;
            // A lost report is not repeated.
            let _ = self.broker.report(flow.end.as_raw_fd(), &Request::Did(traffic));
        }
    }

    /// Descriptors that are open here and that the program has not opened.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.engine.descriptors();
        all.extend([
            self.claim.as_fd().as_raw_fd(),
            self.pairs.0.as_raw_fd(),
            self.life.0.as_raw_fd(),
            self.life.1.as_raw_fd(),
        ]);
        all.extend(self.connections.all.values().filter_map(|one| match &one.progress {
            Progress::TakenOver { flow, .. } => Some(flow.end.as_raw_fd()),
            Progress::Joining(join) => join.flow.as_ref().map(|flow| flow.end.as_raw_fd()),
            Progress::Released => None,
        }));
        all
    }

    /// Time until [`Takeovers::join_all`], [`Takeovers::pass_stale`] or [`Takeovers::report_all`] is due; none: not before an event.
    pub fn due(&self) -> Option<Duration> {
        let is_soon = |one: &Connection| one.unread.is_some() || matches!(one.progress, Progress::Joining(_));
        if self.connections.all.values().any(is_soon) {
            return Some(CHECK_TIMEOUT);
        }
        let is_unreported = |one: &Connection| match &one.progress {
            Progress::TakenOver { flow, .. } => {
                (flow.from_program.bytes, flow.to_program.bytes) != (one.traffic.sent, one.traffic.received)
            }
            _ => false,
        };
        self.connections.all.values().any(is_unreported).then_some(REPORT_PERIOD)
    }
}
