//! What is passed between the pairs and the streams: what the program's calls, as far as they are known, have not read, and what others wrote.

use std::time::{Duration, Instant};

use nix::{
    errno::Errno,
    sys::epoll::{EpollEvent, EpollFlags, EpollTimeout},
};

use super::{Direct, EVENTS, Id, OwnedFd, Stage};
use crate::sockets::flow::Next;

impl Direct {
    pub(super) fn on_news(&mut self, id: Id, is_read: bool) {
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
    pub(super) fn pass(&mut self, id: Id) {
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

    pub(super) fn watch(&self, end: &OwnedFd, id: Id) -> Result<(), Errno> {
        self.pairs.add(end, EpollEvent::new(watched(false), id.into()))
    }
}

/// What wakes for a pair. That there is room only where it is waited for: each read of the program makes some.
fn watched(is_full: bool) -> EpollFlags {
    let always = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    if is_full { always | EpollFlags::EPOLLOUT } else { always }
}
