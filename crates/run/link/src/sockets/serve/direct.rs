//! Connections that the programs of both ends carry themselves: the brokers bring them together, deliver what they have still, and watch.
//!
//! The program that connected offers a port of its own; its broker tells the other one, whose program asks for it. Each then takes its connection:
//! its broker says how many bytes it has taken from the program by then, delivers those, and moves no more.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use model::link::LinkConnection;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        epoll::EpollFlags,
        socket::{Shutdown, shutdown},
    },
};
use sys::socket_kind::is_pipe;
use transport::Reason;

use super::{Counted, PORT, Sent, Sockets, Stage, Who};
use crate::{
    Address, LinkError,
    claim::Talk,
    sockets::{
        ask::{Did, Offer, Question, Reply},
        ids::Cookie,
        questions::{About, Head, line},
    },
};

/// A program offers a connection at most once within this time, and so many lines wait to be told to other brokers.
const OFFERED: Duration = Duration::from_secs(1);
const TELLS_MAX: usize = 128;

/// What is known of a connection that its program carries, or would.
#[derive(Debug)]
pub(super) struct Direct {
    /// Of both descriptors of the pair, the program's first.
    cookies: [Cookie; 2],
    /// It is one of its user's.
    _open: Counted,
    /// It has ended.
    pub(super) is_gone: bool,
    /// The node of the other end.
    node: Option<Address>,
    /// Where the other end's program takes it.
    offered: Option<Offer>,
    /// When this end's program offered last to take it.
    offers: Option<Instant>,
    /// A pipe whose other end those have who carry it.
    owner: Option<Sent<OwnedFd>>,
    did: Did,
}

impl Direct {
    pub(super) fn new(cookies: [Cookie; 2], node: Option<Address>, open: Counted) -> Self {
        Self {
            cookies,
            _open: open,
            is_gone: false,
            node,
            offered: None,
            offers: None,
            owner: None,
            did: Did::default(),
        }
    }

    /// Of the program's descriptor.
    pub(super) fn cookie(&self) -> Cookie {
        self.cookies[0]
    }

    /// The node of the other end.
    pub(super) fn node(&self) -> Option<Address> {
        self.node
    }

    /// Those who carried it have ended.
    pub(super) fn has_lost_owner(&self) -> bool {
        let has_ended = |owner: &Sent<OwnedFd>| {
            let mut waits = [PollFd::new(owner.as_fd(), PollFlags::POLLIN)];
            poll(&mut waits, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        };
        self.owner.as_ref().is_some_and(has_ended)
    }

    /// Frames that were sent again, and the round trip, as its program said last.
    pub(super) fn figures(&self) -> (u64, Option<Duration>) {
        (self.did.resent, self.did.round_trip)
    }

    /// What `link status` shows.
    pub(super) fn shown(&self, who: &Who) -> LinkConnection {
        LinkConnection {
            program: who.program.clone(),
            local: who.local.to_string(),
            peer: who.peer.to_string(),
            node: who.node.clone(),
            carried: "the program".to_owned(),
            sent_bytes: self.did.sent,
            received_bytes: self.did.received,
            resent: self.did.resent,
            round_trip_ns: self.did.round_trip.map(|time| time.as_nanos() as u64),
        }
    }
}

impl Sockets {
    /// A program asks of a connection that it carries itself, or would; what it is to be answered, if it has not been.
    pub(super) fn on_direct(
        &mut self,
        talk: &Sent<Talk>,
        fd: &Sent<OwnedFd>,
        life: Option<Sent<OwnedFd>>,
        question: &Question,
    ) -> Option<Reply> {
        match self.answer(fd, life, question) {
            None => Some(Reply::Tcp),
            Some((reply, None)) => Some(reply),
            Some((reply, Some(end))) => {
                // Nobody carries what a program takes that has gone, or that waits for the answer no longer.
                if talk.say(&reply, &[end.as_raw_fd()]).is_err() {
                    self.answer(fd, None, &Question::Returned);
                }
                None
            }
        }
    }

    /// None: there is no such connection.
    fn answer(
        &mut self,
        fd: &Sent<OwnedFd>,
        life: Option<Sent<OwnedFd>>,
        question: &Question,
    ) -> Option<(Reply, Option<OwnedFd>)> {
        let id = self.table.ends.get(Cookie::of(fd).ok()?)?;
        if let (Question::Take, Some(Stage::Open { flow, .. })) = (question, self.table.all.get(id))
            && flow.is_taken()
        {
            // By another process that has it, too.
            return None;
        }
        if let Question::Take = question {
            let life = life.filter(is_pipe)?;
            // Once is enough: the pipe stays as it is.
            let mut event = id.event(EpollFlags::EPOLLIN | EpollFlags::EPOLLET);
            match self.epoll.add(&life, event) {
                // The number was that of the same program's pipe for a connection that has ended.
                Err(Errno::EEXIST) => self.epoll.modify(&life, &mut event).ok()?,
                added => added.ok()?,
            }
            match self.table.all.get_mut(id)? {
                Stage::Open { direct, .. } => {
                    let before = direct.owner.replace(life);
                    self.forget(before.as_ref());
                }
                _ => {
                    self.unwatch(&life);
                    return None;
                }
            }
        }
        self.table.busy.insert(id);
        let stage = self.table.all.get_mut(id)?;
        if let (Stage::Open { direct, .. } | Stage::Direct { direct, .. }, Question::Did(did)) = (&mut *stage, question)
        {
            direct.did = *did;
            return Some((Reply::Done, None));
        }
        let (flow, who, direct) = match stage {
            Stage::Open { flow, who, direct, .. } => (flow, who, direct),
            // Both ways of the brokers had ended by then, so all that came is delivered.
            Stage::Direct { end, direct, .. } => {
                return match question {
                    Question::Delivered => Some((Reply::Delivered(u64::MAX), None)),
                    Question::Returned => {
                        let _ = shutdown(end.as_raw_fd(), Shutdown::Write);
                        direct.is_gone = true;
                        Some((Reply::Done, None))
                    }
                    _ => None,
                };
            }
            _ => return None,
        };
        let reply = match question {
            Question::Offer(offer) => {
                // Each takes one of the ports that this broker has to the other one.
                let now = Instant::now();
                if direct.offers.is_some_and(|last| now.duration_since(last) < OFFERED) {
                    return None;
                }
                direct.offers = Some(now);
                let (node, names) = (direct.node?, (who.local, who.peer));
                self.tell(node, names, About::Offer(*offer))?;
                Reply::Done
            }
            Question::IsOffered => Reply::Offered { node: direct.node?.to_string(), offer: direct.offered? },
            Question::Take => {
                let end = flow.end.try_clone().ok()?;
                return Some((Reply::Taken { sent: flow.take() }, Some(end)));
            }
            Question::Delivered => Reply::Delivered(flow.delivered()),
            Question::Returned => {
                flow.give_back();
                let before = direct.owner.take();
                self.forget(before.as_ref());
                Reply::Done
            }
            Question::Moved => {
                flow.moved();
                Reply::Done
            }
            _ => Reply::Done,
        };
        Some((reply, None))
    }

    /// Tells the other node's broker something of a connection, by a stream that has nothing but its first line.
    fn tell(&mut self, node: Address, (from, to): (SocketAddr, SocketAddr), about: About) -> Option<()> {
        let stream =
            (self.table.all.tells() < TELLS_MAX).then(|| self.engine.connect(node, PORT, true).ok()).flatten()?;
        let id = self.table.draw();
        self.table.streams.insert(stream, id);
        let head = Head { from, to, about: Some(about) };
        self.table.all.insert(id, Stage::Tells { stream, node, line: line(&head) });
        self.table.busy.insert(id);
        Some(())
    }

    /// Says the one line of such a stream once it is open; none: it is done.
    pub(super) fn on_tells(&mut self, stream: transport::Handle, node: Address, line: Vec<u8>) -> Option<Stage> {
        match self.engine.state(stream) {
            Some(transport::State::Opening) => return Some(Stage::Tells { stream, node, line }),
            Some(transport::State::Open) => {
                // The first bytes of a stream always find room.
                let _ = self.engine.write(stream, &line);
                let _ = self.engine.close(stream);
            }
            // The program's offer is not taken, and all goes on as it is.
            _ => {}
        }
        None
    }

    /// The broker of `node` tells something of the connection that has these addresses here.
    pub(super) fn on_told(&mut self, names: (SocketAddr, SocketAddr), node: Address, about: About) {
        let mut broke = None;
        let ids: Vec<_> = self.table.all.of_names(names).collect();
        for id in ids {
            let Some(stage) = self.table.all.get_mut(id) else { continue };
            let (Stage::Open { direct, .. } | Stage::Direct { direct, .. }) = stage else { continue };
            if direct.node != Some(node) {
                continue;
            }
            match (about, stage) {
                (About::Offer(offer), Stage::Open { direct, .. }) => direct.offered = Some(offer),
                (About::Broke, Stage::Direct { end, direct, .. }) => {
                    // Its program, which has the same descriptor, hears of it by that.
                    let _ = shutdown(end.as_raw_fd(), Shutdown::Both);
                    direct.is_gone = true;
                    broke = Some((id, direct.cookie()));
                }
                _ => {}
            }
        }
        if let Some((id, end)) = broke {
            self.table.busy.insert(id);
            self.on_broken(end, &LinkError::Ended(Reason::Aborted));
        }
    }

    /// Hears no more of a pipe of those who carried a connection, who have it, too.
    fn forget(&self, owner: Option<&Sent<OwnedFd>>) {
        owner.into_iter().for_each(|owner| self.unwatch(owner));
    }

    /// The same for a connection that has ended.
    pub(super) fn unowned(&self, direct: &Direct) {
        self.forget(direct.owner.as_ref());
    }

    /// A connection that its program carries; none: it has ended.
    pub(super) fn watched(
        &mut self,
        end: OwnedFd,
        who: Who,
        direct: Direct,
        holds: Option<Sent<OwnedFd>>,
    ) -> Option<Stage> {
        if self.is_over(&end, &who, &direct) {
            self.unwatch(&end);
            self.unowned(&direct);
            return None;
        }
        Some(Stage::Direct { end, who, direct, holds })
    }

    /// Whether a connection that its program carries has ended.
    fn is_over(&mut self, end: &OwnedFd, who: &Who, direct: &Direct) -> bool {
        if direct.is_gone {
            return true;
        }
        if direct.has_lost_owner() {
            self.on_broken(direct.cookie(), &LinkError::Ended(Reason::Aborted));
            if let Some(node) = direct.node {
                self.tell(node, (who.local, who.peer), About::Broke);
            }
            // Others may hold the program's end.
            let _ = shutdown(end.as_raw_fd(), Shutdown::Both);
            return true;
        }
        // Closed by all who had it. Who is killed closes it, too, so this comes last.
        let mut waits = [PollFd::new(end.as_fd(), PollFlags::empty())];
        poll(&mut waits, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}
