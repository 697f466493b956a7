//! Bytes passed between pairs and streams, for calls that are not intercepted.

use std::time::{Duration, Instant};

use nix::{
    errno::Errno,
    sys::epoll::{EpollEvent, EpollFlags, EpollTimeout},
};

use super::{ConnectionId, EVENTS_MAX, OwnedFd, Progress, Takeovers};
use crate::sockets::flow::Next;

impl Takeovers {
    pub(super) fn on_change(&mut self, id: ConnectionId, is_read: bool) {
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        match &mut one.progress {
            Progress::Joining(_) => self.advance(id),
            Progress::Released => {}
            Progress::TakenOver { flow, .. } => {
                let is_wanted = !is_read && (one.waits > 0 || one.is_orphan || self.sleeping.for_any > 0);
                let is_full = !flow.is_sent();
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

    /// Moves all bytes that can be moved between the pair of a connection and its stream.
    pub(super) fn pass(&mut self, id: ConnectionId) {
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        let Progress::TakenOver { flow, has_passed } = &mut one.progress else { return };
        *has_passed = true;
        one.unread = None;
        let was_full = !flow.to_program.is_writable;
        let next = flow.pump(&mut self.engine, &mut self.piece);
        if was_full == flow.to_program.is_writable {
            let mut event = EpollEvent::new(watched(!flow.to_program.is_writable), id.into());
            // It is in epoll since it was taken.
            let _ = self.pairs.modify(&flow.end, &mut event);
        }
        match next {
            Ok(Next::More) => {}
            Ok(Next::Done) => self.end(id),
            Err(error) => self.broke(id, &error),
        }
    }

    fn collect(&mut self, id: ConnectionId) {
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        let Progress::TakenOver { flow, .. } = &mut one.progress else { return };
        if let Err(error) = flow.collect(&mut self.engine, &mut self.piece) {
            self.broke(id, &error);
        }
    }

    /// Passes all unread bytes into the pairs, before a kernel call that polls them.
    pub fn pass_unread(&mut self) {
        self.pass_those(|_| true);
    }

    /// Passes bytes into the pairs that were unread for `after`.
    pub fn pass_stale(&mut self, now: Instant, after: Duration) {
        self.pass_those(|since| now.duration_since(since) >= after);
    }

    fn pass_those(&mut self, is_one: impl Fn(Instant) -> bool) {
        let mut ids = std::mem::take(&mut self.unread);
        ids.retain(|&id| match self.connections.all.get(&id).and_then(|one| one.unread) {
            Some(since) if is_one(since) => {
                self.pass(id);
                false
            }
            unread => unread.is_some(),
        });
        // Connections added meanwhile.
        ids.append(&mut self.unread);
        self.unread = ids;
    }

    /// Calls `each` with each readable connection, and whether that is new since the last call. Connections for which it returns true
    /// are passed into their pairs.
    pub fn readable(&mut self, mut each: impl FnMut(ConnectionId, bool) -> bool) {
        let mut ids = std::mem::take(&mut self.unread);
        ids.retain(|&id| {
            if self.connections.all.get(&id).is_none_or(|one| one.unread.is_none()) {
                return false;
            }
            if !self.is_readable(id) {
                // Only an acknowledgement arrived.
                if let Some(one) = self.connections.all.get_mut(&id) {
                    (one.unread, one.is_fresh) = (None, false);
                }
                return false;
            }
            let is_fresh = self.connections.all.get_mut(&id).is_some_and(|one| std::mem::take(&mut one.is_fresh));
            let is_passed = each(id, is_fresh);
            if is_passed {
                self.pass(id);
            }
            !is_passed
        });
        ids.append(&mut self.unread);
        self.unread = ids;
    }

    /// True if any connection may have unread bytes.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Handles events of the pairs: bytes written into them are sent, and bytes that found no room are passed on.
    pub fn on_pairs(&mut self) {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let count = self.pairs.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            let (id, what) = (event.data() as ConnectionId, event.events());
            let Some(one) = self.connections.all.get_mut(&id) else { continue };
            let (flow, is_open) = match &mut one.progress {
                Progress::TakenOver { flow, .. } => (flow, true),
                Progress::Joining(join) => match &mut join.flow {
                    Some(flow) => (flow, false),
                    None => continue,
                },
                Progress::Released => continue,
            };
            flow.from_program.is_readable |= what.intersects(!EpollFlags::EPOLLOUT);
            let was_full = !flow.to_program.is_writable;
            flow.to_program.is_writable |= what.intersects(!EpollFlags::EPOLLIN);
            if what.contains(EpollFlags::EPOLLHUP) {
                flow.hung_up.get_or_insert_with(Instant::now);
                one.is_orphan = true;
            }
            if !is_open {
                self.advance(id);
                continue;
            }
            if was_full || one.is_orphan {
                self.pass(id);
            } else {
                self.collect(id);
            }
        }
        if let Err(error) = self.engine.flush() {
            let ids: Vec<ConnectionId> = self.connections.all.keys().copied().collect();
            ids.into_iter().for_each(|id| self.broke(id, &error));
        }
    }

    pub(super) fn watch(&self, end: &OwnedFd, id: ConnectionId) -> Result<(), Errno> {
        self.pairs.add(end, EpollEvent::new(watched(false), id.into()))
    }
}

/// Events that a pair is watched for; EPOLLOUT only while it is full, as each read of the program makes room.
fn watched(is_full: bool) -> EpollFlags {
    let always = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    if is_full { always | EpollFlags::EPOLLOUT } else { always }
}
