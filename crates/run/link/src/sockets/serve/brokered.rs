//! Connections whose bytes the broker moves.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use model::link::LinkConnection;
use nix::{
    errno::Errno,
    sys::socket::{Shutdown, shutdown},
};
use transport::Reason;

use super::{Counted, Entry, Label, Received, Sockets, handover::Handover};
use crate::{
    LinkError,
    sockets::{
        flow::{Flow, Next},
        ids::{Cookie, EntryId},
        names::name,
    },
};

/// Names tried for an end of a pair.
const NAME_TRIES_MAX: u32 = 64;
/// Time that a connection without a program waits for the other end to close, as in TCP (tcp_fin_timeout).
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);
/// Errors of broken connections that are kept for their programs.
const BROKEN_MAX: usize = 4096;

impl Sockets {
    /// Makes a pair: the broker's descriptor, and the program's, which has these addresses as its name.
    pub(super) fn pair(&mut self, (local, peer): (SocketAddr, SocketAddr)) -> Result<(OwnedFd, OwnedFd), Errno> {
        let (ours, theirs) = self.pairs.next()?;
        for _ in 0..NAME_TRIES_MAX {
            let number = self.table.next_id();
            match name(&theirs, local, peer, number.0) {
                // The name is taken.
                Err(Errno::EADDRINUSE) => {}
                done => return done.map(|()| (ours, theirs)),
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Enters an established connection, whose program gets `theirs`, the peer of `flow.end`.
    pub(super) fn open(
        &mut self,
        id: EntryId,
        open: Counted,
        label: Label,
        flow: Flow,
        theirs: &OwnedFd,
        port_holder: Option<Received<OwnedFd>>,
    ) {
        let cookies = Cookie::of(theirs).and_then(|end| Ok([end, Cookie::of(&flow.end)?]));
        let (Ok(cookies), Ok(())) = (cookies, self.watch(flow.end.as_fd(), id)) else { return self.abort(flow.stream) };
        self.table.ready.insert(id);
        let handover = Handover::new(cookies, self.engine.peer_of(flow.stream), open);
        cookies.into_iter().for_each(|cookie| self.table.by_cookie.insert(cookie, id));
        let flow = Box::new(flow);
        self.table.entries.insert(id, Entry::Brokered { flow, label, handover, port_holder });
    }

    /// Moves the bytes of a connection; none: it has ended.
    pub(super) fn carry(
        &mut self,
        mut flow: Box<Flow>,
        label: Label,
        handover: Handover,
        port_holder: Option<Received<OwnedFd>>,
        now: Instant,
    ) -> Option<Entry> {
        match flow.pump(&mut self.engine, &mut self.piece) {
            Ok(Next::More) if flow.hung_up.is_some_and(|at| now.duration_since(at) > ORPHAN_TIMEOUT) => {
                self.abort(flow.stream);
            }
            Ok(Next::More) if handover.has_lost_owner() => {
                self.abort(flow.stream);
                self.on_broken(handover.cookie(), &LinkError::Ended(Reason::Aborted));
                let _ = shutdown(flow.end.as_raw_fd(), Shutdown::Both);
            }
            Ok(Next::More) => return Some(Entry::Brokered { flow, label, handover, port_holder }),
            Ok(Next::Done) if flow.is_taken() => {
                return Some(Entry::TakenOver { end: flow.end, label, handover, port_holder });
            }
            Ok(Next::Done) => {}
            Err(error) => {
                self.abort(flow.stream);
                self.on_broken(handover.cookie(), &error);
            }
        }
        self.unwatch(&flow.end);
        self.forget_owner_of(&handover);
        None
    }

    /// Keeps the error of a connection until its program, at the end of its stream, asks for it.
    pub(super) fn on_broken(&mut self, end: Cookie, error: &LinkError) {
        if self.broken.len() >= BROKEN_MAX {
            self.broken.pop_front();
        }
        let error = match error {
            LinkError::Ended(Reason::TimedOut) => Errno::ETIMEDOUT,
            _ => Errno::ECONNRESET,
        };
        self.broken.push_back((end, error));
    }

    /// Line of `link status`.
    pub(super) fn show(&self) {
        let one = |(id, entry): (EntryId, &Entry)| match entry {
            Entry::Brokered { flow, label, .. } => Some((id, self.shown(flow, label))),
            Entry::TakenOver { label, handover, .. } => Some((id, handover.shown(label))),
            _ => None,
        };
        self.known.publish(self.table.entries.iter().filter_map(one).collect());
    }

    fn shown(&self, flow: &Flow, label: &Label) -> LinkConnection {
        let counts = self.engine.counts(flow.stream).unwrap_or_default();
        LinkConnection {
            program: label.program.clone(),
            local: label.local.to_string(),
            peer: label.peer.to_string(),
            node: label.node.clone(),
            carrier: "the broker".to_owned(),
            sent_bytes: flow.from_program.bytes,
            received_bytes: flow.to_program.bytes,
            retransmitted: counts.resent,
            round_trip_ns: self.engine.round_trip(flow.stream).map(|time| time.as_nanos() as u64),
        }
    }
}
