//! The entries of the broker's loop, and what finds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use transport::Handle;

use super::{
    entry::Stage,
    stages::{Owners, Stages},
};
use crate::sockets::ids::{Cookie, EntryId};

/// Tokens in epoll of what is no entry: the socket of requests, and the engine.
pub(super) const QUESTIONS: EntryId = EntryId(0);
pub(super) const FRAMES: EntryId = EntryId(1);

#[derive(Debug)]
pub(super) struct Table {
    pub(super) all: Stages<Stage>,
    /// By the address that this broker connected from, who waits to be accepted.
    pub(super) queued: BTreeMap<SocketAddr, EntryId>,
    /// Whose stream it is.
    pub(super) streams: Owners<Handle>,
    /// By the cookies of both descriptors of a pair, whose they are.
    pub(super) ends: Owners<Cookie>,
    /// Those that something happened to, and those that time happens to.
    pub(super) busy: BTreeSet<EntryId>,
    pub(super) wishes: BTreeSet<EntryId>,
    drawn: EntryId,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            all: Stages::new(),
            queued: BTreeMap::new(),
            streams: Owners::new(),
            ends: Owners::new(),
            busy: BTreeSet::new(),
            wishes: BTreeSet::new(),
            drawn: FRAMES,
        }
    }

    pub(super) fn draw(&mut self) -> EntryId {
        self.drawn.0 += 1;
        self.drawn
    }

    /// An entry is gone.
    pub(super) fn forget(&mut self, id: EntryId) {
        self.streams.forget(id);
        self.ends.forget(id);
    }
}
