//! The entries of the broker's loop, and what finds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use transport::Handle;

use super::{
    entries::{Entries, Owners},
    entry::Entry,
    pending_accepts::PendingBytes,
};
use crate::sockets::ids::{Cookie, EntryId};

/// Tokens in epoll of what is no entry: the socket of requests, and the engine.
pub(super) const REQUESTS_TOKEN: EntryId = EntryId(0);
pub(super) const ENGINE_TOKEN: EntryId = EntryId(1);

#[derive(Debug)]
pub(super) struct Table {
    pub(super) entries: Entries<Entry>,
    /// Pending accepts by the address that this broker connected from.
    pub(super) by_local: BTreeMap<SocketAddr, EntryId>,
    pub(super) by_stream: Owners<Handle>,
    /// Entries by the cookies of both ends of a pair.
    pub(super) by_cookie: Owners<Cookie>,
    /// Entries with pending events; connects with running timers.
    pub(super) ready: BTreeSet<EntryId>,
    pub(super) pending_connects: BTreeSet<EntryId>,
    pub(super) pending_bytes: PendingBytes,
    last_id: EntryId,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            entries: Entries::new(),
            by_local: BTreeMap::new(),
            by_stream: Owners::new(),
            by_cookie: Owners::new(),
            ready: BTreeSet::new(),
            pending_connects: BTreeSet::new(),
            pending_bytes: PendingBytes::default(),
            last_id: ENGINE_TOKEN,
        }
    }

    pub(super) fn next_id(&mut self) -> EntryId {
        self.last_id.0 += 1;
        self.last_id
    }

    pub(super) fn forget(&mut self, id: EntryId) {
        self.by_stream.forget(id);
        self.by_cookie.forget(id);
    }
}
