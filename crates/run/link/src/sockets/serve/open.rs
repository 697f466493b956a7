//! Connections whose bytes the broker moves.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use model::link::LinkConnection;
use nix::{
    errno::Errno,
    sys::socket::{Shutdown, shutdown},
};
use transport::Reason;

use super::{Sent, Sockets, Stage, User, Who, direct::Direct};
use crate::{
    LinkError,
    sockets::{
        flow::{Flow, Next},
        ids::{Cookie, EntryId},
        names::name,
    },
};

/// Names that are tried for an end.
const NAMES: u32 = 64;
/// A connection whose program is gone waits so long for the other end to close, as TCP's do (tcp_fin_timeout).
const ORPHAN: Duration = Duration::from_secs(60);
/// Broken connections that are remembered until their programs ask.
const BROKE_MAX: usize = 4096;

impl Sockets {
    /// The two descriptors of a pair, of which the second, the program's, has these addresses as its name.
    pub(super) fn pair(&mut self, (local, peer): (SocketAddr, SocketAddr)) -> Result<(OwnedFd, OwnedFd), Errno> {
        let (ours, theirs) = self.pairs.next()?;
        for _ in 0..NAMES {
            let number = self.table.draw();
            match name(&theirs, local, peer, number.0) {
                // Somebody else has that name.
                Err(Errno::EADDRINUSE) => {}
                done => return done.map(|()| (ours, theirs)),
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// A connection of a user is there, whose program has the other end of `flow.end`.
    pub(super) fn open(
        &mut self,
        id: EntryId,
        user: &Arc<User>,
        who: Who,
        mut flow: Flow,
        theirs: &OwnedFd,
        holds: Option<Sent<OwnedFd>>,
    ) {
        let cookies = Cookie::of(theirs).and_then(|end| Ok([end, Cookie::of(&flow.end)?]));
        let (Ok(cookies), Ok(())) = (cookies, self.watch(flow.end.as_fd(), id)) else { return self.abort(flow.stream) };
        self.table.busy.insert(id);
        let direct = Direct::new(cookies, self.engine.peer_of(flow.stream), user.opens());
        cookies.into_iter().for_each(|cookie| self.table.ends.insert(cookie, id));
        user.waiting_bytes().into_iter().for_each(|budget| flow.share(&mut self.engine, budget));
        let flow = Box::new(flow);
        self.table.all.insert(id, Stage::Open { flow, who, direct, holds });
    }

    /// Moves the bytes of a connection; what becomes of it.
    pub(super) fn carry(
        &mut self,
        mut flow: Box<Flow>,
        who: Who,
        direct: Direct,
        holds: Option<Sent<OwnedFd>>,
        now: Instant,
    ) -> Option<Stage> {
        match flow.turn(&mut self.engine, &mut self.piece) {
            Ok(Next::More) if flow.gone.is_some_and(|at| now.duration_since(at) > ORPHAN) => {
                self.abort(flow.stream);
            }
            Ok(Next::More) if direct.has_lost_owner() => {
                self.abort(flow.stream);
                self.on_broken(direct.cookie(), &LinkError::Ended(Reason::Aborted));
                let _ = shutdown(flow.end.as_raw_fd(), Shutdown::Both);
            }
            Ok(Next::More) => return Some(Stage::Open { flow, who, direct, holds }),
            Ok(Next::Done) if flow.is_taken() => return Some(Stage::Direct { end: flow.end, who, direct, holds }),
            Ok(Next::Done) => {}
            Err(error) => {
                self.abort(flow.stream);
                self.on_broken(direct.cookie(), &error);
            }
        }
        self.unwatch(&flow.end);
        self.unowned(&direct);
        None
    }

    /// The program hears of it when it asks, once its end says that nothing follows.
    pub(super) fn on_broken(&mut self, end: Cookie, error: &LinkError) {
        if self.broke.len() >= BROKE_MAX {
            self.broke.pop_front();
        }
        let error = match error {
            LinkError::Ended(Reason::TimedOut) => Errno::ETIMEDOUT,
            _ => Errno::ECONNRESET,
        };
        self.broke.push_back((end, error));
    }

    /// What `link status` shows.
    pub(super) fn show(&self) {
        let one = |(id, stage): (EntryId, &Stage)| match stage {
            Stage::Open { flow, who, .. } => Some((id, self.shown(flow, who))),
            Stage::Direct { who, direct, .. } => Some((id, direct.shown(who))),
            _ => None,
        };
        self.known.tell(self.table.all.iter().filter_map(one).collect());
    }

    fn shown(&self, flow: &Flow, who: &Who) -> LinkConnection {
        let counts = self.engine.counts(flow.stream).unwrap_or_default();
        LinkConnection {
            program: who.program.clone(),
            local: who.local.to_string(),
            peer: who.peer.to_string(),
            node: who.node.clone(),
            carried: "the broker".to_owned(),
            sent_bytes: flow.sent,
            received_bytes: flow.received,
            resent: counts.resent,
            round_trip_ns: self.engine.round_trip(flow.stream).map(|time| time.as_nanos() as u64),
        }
    }
}
