//! TCP connections that a program carries itself: an engine of its own in its process, past which the brokers see nothing.
//!
//! The program's descriptor stays the end of a pair, and stays true: what the program does not read here by [`Direct::read`] is passed into the pair
//! after a while ([`Direct::pass_stale`]), and what it writes there is taken out again. So a call that knows nothing of this (io_uring, stdio, a child process) works, slower.
//!
//! Whoever calls, holds a lock. Nothing here waits.

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

use self::join::Joining;
use super::{
    ask::{Asker, Did, Question},
    flow::{Flow, PIECE},
};
use crate::{Claim, Either, Engine, LinkError};

/// What is to be looked at soon, is looked at within this time.
const SOON: Duration = Duration::from_millis(1);
/// How often the broker is told what a connection has done, at the most.
const TOLD: Duration = Duration::from_secs(1);
/// Connections that may come before they are known.
const WAITING: usize = 64;
const EVENTS: usize = 64;
/// Streams of other programs that have not said which connection they are, at the most.
const STRANGERS_MAX: usize = 64;
const PEEK: MsgFlags = MsgFlags::MSG_PEEK.union(MsgFlags::MSG_DONTWAIT);

/// A connection of this program.
pub type Id = u32;

/// What a read or a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many bytes; of a read, 0: nothing follows.
    Done(usize),
    /// Nothing is there, or there is no room.
    Waits,
    /// The kernel's own call on the descriptor is right.
    Kernel,
    /// The connection broke: an error number.
    Broke(i32),
}

/// The connections that this program carries itself.
#[derive(Debug)]
pub struct Direct {
    claim: Claim,
    engine: Engine<Either>,
    /// Where the programs of other nodes connect.
    port: u16,
    asker: Asker,
    /// The broker has the first one, and sees that the second is closed when no process has this any more.
    life: (OwnedFd, OwnedFd),
    all: BTreeMap<Id, One>,
    by_stream: HashMap<Handle, Id>,
    /// Streams that came and have not said for which connection.
    strangers: Vec<(Handle, Vec<u8>, Instant)>,
    /// Those that have something unread, and others.
    unread: Vec<Id>,
    /// What happens to the pairs.
    pairs: Epoll,
    next: Id,
    piece: Vec<u8>,
    told: Instant,
    /// Callers that sleep without saying for which connection.
    sleepers: u32,
    /// All callers that sleep.
    waited: u32,
}

/// One connection.
#[derive(Debug)]
struct One {
    stage: Stage,
    /// Callers that sleep until something comes for it.
    waits: u32,
    /// No call that is known comes for it any more.
    is_orphan: bool,
    /// Bytes are there that nobody has read, since then.
    unread: Option<Instant>,
    /// Something came since that was last told ([`Direct::tidings`]).
    is_fresh: bool,
    broke: Option<Errno>,
    did: Did,
}

#[derive(Debug)]
enum Stage {
    /// The brokers carry it, and both programs are about to.
    Joins(Joining),
    /// This program carries it.
    Open {
        flow: Box<Flow>,
        /// The pair may have bytes for the program.
        has_passed: bool,
    },
    /// It is the brokers' for good, or has ended.
    Over,
}

impl Direct {
    /// Asks the broker for ports.
    ///
    /// # Errors
    /// It refuses, or there is none.
    pub fn start() -> Result<Self, LinkError> {
        let (claim, mut engine) = Claim::take_plain()?;
        let port = engine.listen_free(WAITING)?;
        // It has to be there before the first sleep.
        engine.descriptor()?;
        let failed = |e: Errno| LinkError::System { operation: "make an epoll descriptor", source: e.into() };
        Ok(Self {
            claim,
            engine,
            port,
            asker: Asker::here(),
            life: pipe2(OFlag::O_CLOEXEC)
                .map_err(|e| LinkError::System { operation: "make a pipe", source: e.into() })?,
            all: BTreeMap::new(),
            by_stream: HashMap::new(),
            strangers: Vec::new(),
            unread: Vec::new(),
            pairs: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?,
            next: 0,
            piece: vec![0; PIECE],
            told: Instant::now(),
            sleepers: 0,
            waited: 0,
        })
    }

    /// Readable when frames came or time is due after [`Direct::arm`].
    ///
    /// # Errors
    /// None after [`Direct::start`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, LinkError> {
        self.engine.descriptor()
    }

    /// Readable when something happens to a pair: [`Direct::on_pairs`] comes then.
    pub fn pairs(&self) -> BorrowedFd<'_> {
        self.pairs.0.as_fd()
    }

    /// As [`Engine::arm`].
    ///
    /// # Errors
    /// The interface is gone.
    pub fn arm(&mut self) -> Result<bool, LinkError> {
        self.engine.arm()
    }

    /// Nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.engine.is_quiet() && self.strangers.is_empty()
    }

    /// It has connections.
    pub fn has_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// It has one connection.
    pub fn has_one(&self) -> bool {
        self.all.len() == 1
    }

    /// A call sleeps for this connection (true), or does no more.
    pub fn sleeps(&mut self, id: Id, does: bool) {
        self.waited = if does { self.waited + 1 } else { self.waited.saturating_sub(1) };
        if let Some(one) = self.all.get_mut(&id) {
            one.waits = if does { one.waits + 1 } else { one.waits.saturating_sub(1) };
        }
    }

    /// The same for any of them.
    pub fn sleeps_for_any(&mut self, does: bool) {
        self.waited = if does { self.waited + 1 } else { self.waited.saturating_sub(1) };
        self.sleepers = if does { self.sleepers + 1 } else { self.sleepers.saturating_sub(1) };
    }

    /// So many calls sleep.
    pub fn waited(&self) -> u32 {
        self.waited
    }

    /// Somebody has to look at frames as they come: a call sleeps in the kernel, or a connection is joined, or nobody else reads it.
    pub fn is_waited_for(&self) -> bool {
        let is_one = |one: &One| one.waits > 0 || one.is_orphan || matches!(one.stage, Stage::Joins(_));
        self.sleepers > 0 || self.all.values().any(is_one)
    }

    /// Takes what arrived, and passes it on where that is waited for, except for the connection `but`, which the caller reads.
    pub fn turn(&mut self, but: Option<Id>) {
        if let Err(error) = self.engine.turn() {
            // Without the interface none goes on.
            let ids: Vec<Id> = self.all.keys().copied().collect();
            ids.into_iter().for_each(|id| self.broke(id, &error));
            return;
        }
        while let Some(stream) = self.engine.accept(self.port) {
            match self.strangers.len() < STRANGERS_MAX {
                true => self.strangers.push((stream, Vec::new(), Instant::now())),
                false => drop(self.engine.abort(stream)),
            }
        }
        if !self.strangers.is_empty() {
            self.meet();
        }
        while let Some(stream) = self.engine.news() {
            if let Some(&id) = self.by_stream.get(&stream) {
                self.on_news(id, Some(id) == but);
            }
        }
        // What was written while passing on.
        if let Err(error) = self.engine.flush() {
            let ids: Vec<Id> = self.all.keys().copied().collect();
            ids.into_iter().for_each(|id| self.broke(id, &error));
        }
    }

    /// No call that is known comes for it any more. Others may hold its descriptor; where nobody does the other end is told.
    pub fn closed(&mut self, id: Id) {
        let Some(one) = self.all.get_mut(&id) else { return };
        one.is_orphan = true;
        match &mut one.stage {
            Stage::Open { flow, .. } => {
                flow.is_readable = true;
                self.pass(id);
                self.turn(None);
            }
            // The descriptor's number may be another's from now on.
            Stage::Joins(joins) if joins.flow.is_none() => self.give_up(id),
            Stage::Joins(_) => {}
            Stage::Over => self.end(id),
        }
    }

    /// Why a connection that says nothing more has ended, if not as both should.
    pub fn ended(&self, id: Id) -> Option<i32> {
        Some(self.all.get(&id)?.broke? as i32)
    }

    /// Connections whose descriptor nobody holds any more, whichever call closed it.
    pub fn gone(&self) -> impl Iterator<Item = Id> + '_ {
        let is_gone = |one: &One| matches!(&one.stage, Stage::Open { flow, .. } if flow.gone.is_some());
        self.all.iter().filter(move |(_, one)| is_gone(one)).map(|(&id, _)| id)
    }

    /// No call that is known comes for any of them any more: as [`Direct::closed`].
    pub fn closed_all(&mut self) {
        let ids: Vec<Id> = self.all.keys().copied().collect();
        ids.into_iter().for_each(|id| self.closed(id));
    }

    /// True once the program carries it.
    pub fn carries(&self, id: Id) -> bool {
        self.all.get(&id).is_some_and(|one| matches!(one.stage, Stage::Open { .. }))
    }

    /// It goes no further here: its end says so, and reads say why.
    fn broke(&mut self, id: Id, error: &LinkError) {
        let Some(one) = self.all.get_mut(&id) else { return };
        let error = match error {
            LinkError::Ended(Reason::TimedOut) => Errno::ETIMEDOUT,
            LinkError::Ended(_) => Errno::ECONNRESET,
            _ => Errno::ENETDOWN,
        };
        if let Stage::Open { flow, .. } = &mut one.stage {
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

    /// Forgets one; its pair is closed here.
    fn end(&mut self, id: Id) {
        if let Some(one) = self.all.get_mut(&id) {
            // A call that is known may ask still why it ended.
            if one.is_orphan {
                self.tell(id);
                self.all.remove(&id);
                self.by_stream.retain(|_, of| *of != id);
            }
        }
    }

    /// Tells the broker once in a while what the connections have done, which `link status` shows.
    pub fn tell_all(&mut self, now: Instant) {
        if now.duration_since(self.told) >= TOLD {
            self.told = now;
            let ids: Vec<Id> = self.all.keys().copied().collect();
            ids.into_iter().for_each(|id| self.tell(id));
        }
    }

    fn tell(&mut self, id: Id) {
        let Some(one) = self.all.get_mut(&id) else { return };
        let Stage::Open { flow, .. } = &one.stage else { return };
        let did = Did {
            sent: flow.sent,
            received: flow.received,
            resent: self.engine.counts(flow.stream).map_or(0, |counts| counts.resent),
            round_trip: self.engine.round_trip(flow.stream),
        };
        if did != one.did {
            one.did = did;
            // It is shown, no more.
            let _ = self.asker.tell(flow.end.as_raw_fd(), &Question::Did(did));
        }
    }

    /// The descriptors that this has open, of which the program knows nothing.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.engine.descriptors();
        all.extend([
            self.claim.as_fd().as_raw_fd(),
            self.pairs.0.as_raw_fd(),
            self.life.0.as_raw_fd(),
            self.life.1.as_raw_fd(),
        ]);
        all.extend(self.all.values().filter_map(|one| match &one.stage {
            Stage::Open { flow, .. } => Some(flow.end.as_raw_fd()),
            Stage::Joins(joins) => joins.flow.as_ref().map(|flow| flow.end.as_raw_fd()),
            Stage::Over => None,
        }));
        all
    }

    /// Within this time [`Direct::join_all`], [`Direct::pass_stale`] or [`Direct::tell_all`] has something to do; none: not before something happens.
    pub fn due(&self) -> Option<Duration> {
        let is_soon = |one: &One| one.unread.is_some() || matches!(one.stage, Stage::Joins(_));
        if self.all.values().any(is_soon) {
            return Some(SOON);
        }
        let is_untold = |one: &One| match &one.stage {
            Stage::Open { flow, .. } => (flow.sent, flow.received) != (one.did.sent, one.did.received),
            _ => false,
        };
        self.all.values().any(is_untold).then_some(TOLD)
    }
}
