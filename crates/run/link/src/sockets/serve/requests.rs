//! Requests of programs, and the replies.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::socket::{
    getsockopt,
    sockopt::{AcceptConn, PeerCredentials},
};
use sys::socket_kind::{SocketKind, is_established_tcp, is_fresh_tcp, network_namespace};

use super::{Entry, Received, Sockets, pending_connects::PendingConnect};
use crate::{
    claim::MessageSocket,
    sockets::{
        broker_client::{Figures, Reply, Request},
        broker_lines::no_wait,
        ids::{Cookie, EntryId},
        socket_address::local,
    },
};

/// Time within which a connect is answered, on a non-blocking socket and on a blocking one.
const NONBLOCKING_TIMEOUT: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Programs accepted in one pass of the loop: a flood of them does not hold up connections.
const ACCEPTS_PER_POLL_MAX: usize = 16;

impl Sockets {
    /// Accepts programs that have connected. No user can hold up others: the programs of one pass, those of a user that wait, and the time until
    /// their request are bounded.
    pub(super) fn accept_requesters(&mut self) {
        self.requests.has_more = false;
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            let Ok(fd) = sys::fds::accept(&self.requests.socket) else { return };
            let uid = getsockopt(&fd, PeerCredentials).ok().map(|who| who.uid());
            let user = uid.and_then(|uid| self.users.user(uid));
            let Some((asks, user)) = user.and_then(|user| Some((self.users.asks(&user)?, user))) else {
                self.requests.disposer.dispose(fd);
                continue;
            };
            let socket = Received::new(MessageSocket::new(fd), &user);
            let id = self.table.next_id();
            if no_wait(&socket).is_ok() && self.watch(socket.as_fd(), id).is_ok() {
                self.table.entries.insert(id, Entry::Requester { socket, asks, since: Instant::now() });
            }
        }
        self.requests.has_more = true;
    }

    pub(super) fn on_request(&mut self, id: EntryId) {
        let Some(Entry::Requester { socket, asks, since }) = self.table.entries.remove(id) else { return };
        // Each of a user's programs may have sent as many descriptors as a message takes.
        if !self.users.may_send(socket.user()) {
            self.unwatch(&socket);
            // The program may have gone.
            let _ = socket.send(&Reply::Tcp, &[]);
            return self.requests.disposer.dispose(socket.into_inner().into());
        }
        let (request, fds) = match socket.receive_untrusted::<Request>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.table.entries.insert(id, Entry::Requester { socket, asks, since });
                return;
            }
            Ok(heard) => heard,
            // The program has gone.
            Err(_) => return,
        };
        // Its user's thread closes it later, and its hang-up must not be taken for one of the connection, which gets the same id.
        self.unwatch(&socket);
        let mut fds: Vec<_> = fds.into_iter().map(|fd| Received::new(fd, socket.user())).collect();
        let Some(request) = request else { return };
        let count = if request == Request::Take { 2 } else { 1 };
        let shown = fds.pop().filter(|fd| fds.len() + 1 == count && self.fits(&request, fd));
        let Some(shown) = shown else {
            drop(fds);
            return socket.answer(Reply::Tcp);
        };
        let reply = match request {
            Request::Listens => {
                if let Some((at, _)) = local(&shown) {
                    // Without the file a restarted broker does not know the listener.
                    let _ = self.cluster.listening.add(&shown, at.port(), socket.user().uid);
                }
                Reply::Tcp
            }
            Request::Accepted => match self.on_accepted(&socket, &shown) {
                Some(()) => return,
                None => Reply::Tcp,
            },
            Request::Figures => self.figures(&shown).map_or(Reply::Tcp, Reply::Figures),
            Request::Ended => {
                let cookie = Cookie::of(&shown).ok();
                let broke = self.broken.iter().find(|(of, _)| Some(*of) == cookie);
                broke.map_or(Reply::Tcp, |&(_, error)| Reply::Broke(error as i32))
            }
            Request::Offer(_)
            | Request::IsOffered
            | Request::Take
            | Request::Delivered
            | Request::Moved
            | Request::Returned
            | Request::Did(_) => match self.on_handover(&socket, &shown, fds.pop(), &request) {
                Some(reply) => reply,
                None => return,
            },
            Request::Connect { to, is_patient } => {
                let begun = Instant::now();
                let until = begun + if is_patient { CONNECT_TIMEOUT } else { NONBLOCKING_TIMEOUT };
                let (looked, stream, bytes) = (None, None, Vec::new());
                let pending =
                    PendingConnect { socket, _asks: asks, tcp: shown, to, begun, until, looked, stream, bytes };
                self.table.pending_connects.insert(id);
                self.table.entries.insert(id, Entry::PendingConnect(Box::new(pending)));
                return;
            }
        };
        drop((shown, fds));
        socket.answer(reply);
    }

    /// True if a descriptor is of this network namespace and of the kind that a request needs. No call here blocks, whatever it is.
    fn fits(&self, request: &Request, fd: &Received<OwnedFd>) -> bool {
        let Ok(kind) = SocketKind::of(fd) else { return false };
        // A socket of another network namespace could have any address.
        if !network_namespace(fd).is_ok_and(|of| of == self.requests.namespace) {
            return false;
        }
        match request {
            // Only an unused Multipath TCP socket does not report its state.
            Request::Connect { .. } => {
                kind.is_tcp() && is_fresh_tcp(fd).unwrap_or(kind.protocol == nix::libc::IPPROTO_MPTCP)
            }
            Request::Listens => kind.is_tcp() && getsockopt(fd, AcceptConn).unwrap_or(false),
            Request::Accepted => kind.is_tcp() && is_established_tcp(fd).unwrap_or(false),
            _ => kind.is_unix_stream(),
        }
    }

    fn figures(&self, end: &Received<OwnedFd>) -> Option<Figures> {
        let id = self.table.by_cookie.get(Cookie::of(end).ok()?)?;
        let (resent, round_trip) = match self.table.entries.get(id)? {
            Entry::Brokered { flow, .. } => {
                (self.engine.counts(flow.stream)?.resent, self.engine.round_trip(flow.stream))
            }
            Entry::TakenOver { handover, .. } => handover.figures(),
            _ => return None,
        };
        let round_trip = round_trip.unwrap_or_default();
        Some(Figures { resent, round_trip, frame_bytes: self.engine.carrier().wire().payload_max })
    }
}
