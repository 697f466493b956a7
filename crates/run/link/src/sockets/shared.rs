//! State shared between the broker and the loop over sockets.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use model::link::{LinkConnection, LinkTcpFallback};

use super::{by_tcp::ByTcp, ids::EntryId};
use crate::Address;

/// Time to wait for a fresh list of connections; after it the last one is used.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(200);

/// State shared between the broker and [`super::Sockets`].
#[derive(Debug, Clone, Default)]
pub struct Known(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    shared: Mutex<Shared>,
    /// A request waits for the list of connections.
    is_wanted: AtomicBool,
    published: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Names of the nodes that answer.
    pub(crate) nodes: HashMap<Address, String>,
    /// A cluster is served.
    pub(crate) is_carried: bool,
    pub(crate) connections: BTreeMap<EntryId, LinkConnection>,
    /// Sources and ports that may connect.
    pub(crate) allowed: Vec<String>,
    pub(crate) allowed_by_default: bool,
    /// Counts of connections by TCP.
    pub(super) by_tcp: ByTcp,
}

impl Known {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the list of connections is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn publish(&self, connections: BTreeMap<EntryId, LinkConnection>) {
        self.lock().connections = connections;
        self.0.is_wanted.store(false, Ordering::Relaxed);
        self.0.published.notify_all();
    }

    /// Sources and ports that may connect, and whether they are the default.
    pub(crate) fn allowed(&self) -> (Vec<String>, bool) {
        let shared = self.lock();
        (shared.allowed.clone(), shared.allowed_by_default)
    }

    /// Connections for `link status`, fresh if a cluster is served.
    pub(crate) fn connections(&self) -> (Vec<LinkConnection>, Vec<LinkTcpFallback>) {
        let mut shared = self.lock();
        if shared.is_carried {
            self.0.is_wanted.store(true, Ordering::Relaxed);
            let waits = |_: &mut Shared| self.0.is_wanted.load(Ordering::Relaxed);
            shared = self
                .0
                .published
                .wait_timeout_while(shared, PUBLISH_TIMEOUT, waits)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        (shared.connections.values().cloned().collect(), shared.by_tcp.sums())
    }
}
