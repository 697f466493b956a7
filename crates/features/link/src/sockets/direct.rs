//! TCP connections that a program carries itself: an engine of its own in its process, past which the brokers see nothing.
//!
//! The program's descriptor stays the end of a pair, and stays true: what the program does not read here by [`Direct::read`] is passed into the pair
//! after a while ([`Direct::pass_stale`]), and what it writes there is taken out again. So a call that knows nothing of this (io_uring, stdio, a child process) works, slower.
//!
//! Whoever calls, holds a lock. Nothing here waits.

mod join;

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{MsgFlags, Shutdown, recv, shutdown},
    },
    unistd::pipe2,
};
use transport::{Handle, Reason};

use self::join::Joining;
use super::{
    ask::{Asker, Did, Question},
    flow::{Flow, Next, PIECE},
};
use crate::{Claim, Either, Engine, LinkError};

/// What is to be looked at soon, is looked at within this time.
const SOON: Duration = Duration::from_millis(1);
/// How often the broker is told what a connection has done, at the most.
const TOLD: Duration = Duration::from_secs(1);
/// Connections that may come before they are known.
const WAITING: usize = 64;
const EVENTS: usize = 64;
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
    strangers: Vec<(Handle, Vec<u8>)>,
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
        let (claim, mut engine) = Claim::take()?;
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
            self.strangers.push((stream, Vec::new()));
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

    fn on_news(&mut self, id: Id, is_read: bool) {
        let Some(one) = self.all.get_mut(&id) else { return };
        match &mut one.stage {
            Stage::Joins(_) => self.join(id),
            Stage::Over => {}
            Stage::Open { flow, .. } => {
                let is_wanted = !is_read && (one.waits > 0 || one.is_orphan || self.sleepers > 0);
                let is_full = !flow.has_sent_all();
                if is_wanted {
                    self.pass(id);
                } else {
                    one.is_fresh = true;
                    if one.unread.is_none() {
                        one.unread = Some(Instant::now());
                        self.unread.push(id);
                    }
                    if is_full {
                        self.collect(id);
                    }
                }
            }
        }
    }

    /// Moves all that can be moved between the pair of a connection and its stream.
    fn pass(&mut self, id: Id) {
        let Some(one) = self.all.get_mut(&id) else { return };
        let Stage::Open { flow, has_passed } = &mut one.stage else { return };
        *has_passed = true;
        one.unread = None;
        let was_full = !flow.is_writable;
        let next = flow.turn(&mut self.engine, &mut self.piece);
        if was_full == flow.is_writable {
            let mut event = EpollEvent::new(watched(!flow.is_writable), id.into());
            // It is watched since it was taken.
            let _ = self.pairs.modify(&flow.end, &mut event);
        }
        match next {
            Ok(Next::More) => {}
            Ok(Next::Done) => self.end(id),
            Err(error) => self.broke(id, &error),
        }
    }

    fn collect(&mut self, id: Id) {
        let Some(one) = self.all.get_mut(&id) else { return };
        let Stage::Open { flow, .. } = &mut one.stage else { return };
        if let Err(error) = flow.collect(&mut self.engine, &mut self.piece) {
            self.broke(id, &error);
        }
    }

    /// Makes the descriptor of each connection, whose bytes are here unread, true: before a call of the kernel that looks at many.
    pub fn pass_unread(&mut self) {
        self.pass_those(|_| true);
    }

    /// The same for those that have waited too long for a call that is known.
    pub fn pass_stale(&mut self, now: Instant, after: Duration) {
        self.pass_those(|since| now.duration_since(since) >= after);
    }

    fn pass_those(&mut self, is_one: impl Fn(Instant) -> bool) {
        let mut ids = std::mem::take(&mut self.unread);
        ids.retain(|&id| match self.all.get(&id).and_then(|one| one.unread) {
            Some(since) if is_one(since) => {
                self.pass(id);
                false
            }
            unread => unread.is_some(),
        });
        // What came meanwhile.
        ids.append(&mut self.unread);
        self.unread = ids;
    }

    /// Calls `each` with the connections that have something to read, and whether that is new since the last call of this. Those for which it is true
    /// are passed into their pairs.
    pub fn tidings(&mut self, mut each: impl FnMut(Id, bool) -> bool) {
        let mut ids = std::mem::take(&mut self.unread);
        ids.retain(|&id| {
            if self.all.get(&id).is_none_or(|one| one.unread.is_none()) {
                return false;
            }
            if !self.is_readable(id) {
                // An acknowledgement, no more.
                if let Some(one) = self.all.get_mut(&id) {
                    (one.unread, one.is_fresh) = (None, false);
                }
                return false;
            }
            let is_fresh = self.all.get_mut(&id).is_some_and(|one| std::mem::take(&mut one.is_fresh));
            let is_passed = each(id, is_fresh);
            if is_passed {
                self.pass(id);
            }
            !is_passed
        });
        ids.append(&mut self.unread);
        self.unread = ids;
    }

    /// Something came for any of them since it was looked.
    pub fn has_news(&self) -> bool {
        !self.unread.is_empty()
    }

    /// [`Direct::read`] has something to say.
    pub fn is_readable(&mut self, id: Id) -> bool {
        match self.all.get(&id) {
            Some(One { stage: Stage::Open { flow, .. }, .. }) => {
                !flow.has_passed_all() || self.engine.is_readable(flow.stream)
            }
            _ => false,
        }
    }

    /// Its descriptor has something to say.
    pub fn has_passed(&mut self, id: Id) {
        if let Some(One { stage: Stage::Open { has_passed, .. }, .. }) = self.all.get_mut(&id) {
            *has_passed = true;
        }
    }

    /// Something came for it since the last read.
    pub fn has_something(&self, id: Id) -> bool {
        self.all.get(&id).is_none_or(|one| one.unread.is_some() || one.broke.is_some())
    }

    /// Reads for the program by its descriptor `fd`.
    pub fn read(&mut self, id: Id, fd: RawFd, to: &mut [u8]) -> Step {
        let Some(one) = self.all.get_mut(&id) else { return Step::Kernel };
        if one.is_orphan {
            return Step::Kernel;
        }
        if let Some(error) = one.broke {
            return Step::Broke(error as i32);
        }
        let Stage::Open { flow, has_passed } = &mut one.stage else { return Step::Kernel };
        if *has_passed {
            match recv(fd, to, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => *has_passed = false,
                Ok(0) if flow.is_shut() => return Step::Done(0),
                // The broker ended it: it says why.
                Ok(0) => return Step::Kernel,
                Ok(read) => return Step::Done(read),
                // The descriptor is another one by now.
                Err(_) => return Step::Kernel,
            }
        }
        if !flow.has_passed_all() {
            return Step::Done(flow.read_waiting(to));
        }
        match self.engine.read_into(flow.stream, to) {
            Ok(0) if self.engine.is_at_end(flow.stream) => {
                // The pair says so from now on.
                self.pass(id);
                Step::Done(0)
            }
            Ok(0) => {
                one.unread = None;
                Step::Waits
            }
            Ok(read) => {
                flow.received += read as u64;
                // What it left is looked at again.
                let was_known = one.unread.is_some();
                one.unread = (read == to.len()).then(Instant::now);
                if one.unread.is_some() && !was_known {
                    self.unread.push(id);
                }
                Step::Done(read)
            }
            Err(error) => {
                self.broke(id, &error);
                self.all.get(&id).and_then(|one| one.broke).map_or(Step::Kernel, |error| Step::Broke(error as i32))
            }
        }
    }

    /// Writes for the program as much as there is room for; it has left when this comes back.
    pub fn write(&mut self, id: Id, bytes: &[u8]) -> Step {
        let Some(one) = self.all.get_mut(&id) else { return Step::Kernel };
        let Stage::Open { flow, .. } = &mut one.stage else { return Step::Kernel };
        if one.broke.is_some() || one.is_orphan {
            return Step::Kernel;
        }
        // What was written by another way goes first.
        match recv(flow.end.as_raw_fd(), &mut [0], PEEK) {
            Err(Errno::EAGAIN) if flow.has_sent_all() => {}
            Ok(0) => return Step::Kernel,
            _ => {
                flow.is_readable = true;
                if let Err(error) = flow.collect(&mut self.engine, &mut self.piece) {
                    self.broke(id, &error);
                    return Step::Kernel;
                }
                if flow.is_readable || !flow.has_sent_all() {
                    return Step::Kernel;
                }
            }
        }
        match self.engine.write(flow.stream, bytes) {
            Ok(0) if !bytes.is_empty() => Step::Waits,
            Ok(written) => {
                flow.sent += written as u64;
                if let Err(error) = self.engine.flush() {
                    self.broke(id, &error);
                }
                Step::Done(written)
            }
            Err(error) => {
                self.broke(id, &error);
                Step::Kernel
            }
        }
    }

    /// Something happened to pairs: what was written into them by other ways is taken, and what found no room passed on.
    pub fn on_pairs(&mut self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.pairs.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            let (id, what) = (event.data() as Id, event.events());
            let Some(one) = self.all.get_mut(&id) else { continue };
            let (flow, is_open) = match &mut one.stage {
                Stage::Open { flow, .. } => (flow, true),
                Stage::Joins(joins) => match &mut joins.flow {
                    Some(flow) => (flow, false),
                    None => continue,
                },
                Stage::Over => continue,
            };
            flow.is_readable |= what.intersects(!EpollFlags::EPOLLOUT);
            let was_full = !flow.is_writable;
            flow.is_writable |= what.intersects(!EpollFlags::EPOLLIN);
            if what.contains(EpollFlags::EPOLLHUP) {
                flow.gone.get_or_insert_with(Instant::now);
                one.is_orphan = true;
            }
            if !is_open {
                self.join(id);
                continue;
            }
            if was_full || one.is_orphan {
                self.pass(id);
            } else {
                self.collect(id);
            }
        }
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
            _ => None,
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

    fn watch(&self, end: &OwnedFd, id: Id) -> Result<(), Errno> {
        self.pairs.add(end, EpollEvent::new(watched(false), id.into()))
    }
}

/// What wakes for a pair. That there is room only where it is waited for: each read of the program makes some.
fn watched(is_full: bool) -> EpollFlags {
    let always = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    if is_full { always | EpollFlags::EPOLLOUT } else { always }
}
