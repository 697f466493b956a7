//! The broker's side of a takeover: it passes the offer on, hands the connection over, delivers the bytes it still has, and watches for the end.
//!
//! The program that connected offers a port of its own; its broker notifies the other broker, whose program asks for the offer. Each program then
//! takes its connection: its broker replies how many bytes it has read from the program so far, delivers those, and reads no more.

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

use super::{Counted, Entry, Label, PORT, Received, Sockets};
use crate::{
    Address, LinkError,
    claim::MessageSocket,
    sockets::{
        broker_client::{Offer, Reply, Request, Traffic},
        broker_lines::{Head, Notice, line},
        ids::Cookie,
    },
};

/// Time between two offers of one connection, and notices to other brokers that are not sent yet.
const OFFER_PERIOD: Duration = Duration::from_secs(1);
const NOTICES_MAX: usize = 128;

/// The broker's state of a takeover, which may never happen.
#[derive(Debug)]
pub(super) struct Handover {
    /// Cookies of the pair: the program's end, the broker's end.
    cookies: [Cookie; 2],
    /// Counts the connection for its user.
    _open: Counted,
    /// The connection has ended.
    pub(super) is_gone: bool,
    /// Node of the other end.
    node: Option<Address>,
    /// The offer of the other end's program.
    offered: Option<Offer>,
    /// Time of the last offer of this end's program.
    offers: Option<Instant>,
    /// Read end of a pipe. Its write end is open as long as a process carries the connection.
    owner: Option<Received<OwnedFd>>,
    traffic: Traffic,
}

impl Handover {
    pub(super) fn new(cookies: [Cookie; 2], node: Option<Address>, open: Counted) -> Self {
        Self {
            cookies,
            _open: open,
            is_gone: false,
            node,
            offered: None,
            offers: None,
            owner: None,
            traffic: Traffic::default(),
        }
    }

    /// Cookie of the program's end.
    pub(super) fn cookie(&self) -> Cookie {
        self.cookies[0]
    }

    /// Node of the other end.
    pub(super) fn node(&self) -> Option<Address> {
        self.node
    }

    /// True if all processes that carried the connection have ended.
    pub(super) fn has_lost_owner(&self) -> bool {
        let has_ended = |owner: &Received<OwnedFd>| {
            let mut waits = [PollFd::new(owner.as_fd(), PollFlags::POLLIN)];
            poll(&mut waits, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        };
        self.owner.as_ref().is_some_and(has_ended)
    }

    /// Retransmitted frames and round trip, as last reported by the program.
    pub(super) fn figures(&self) -> (u64, Option<Duration>) {
        (self.traffic.resent, self.traffic.round_trip)
    }

    /// Line of `link status`.
    pub(super) fn shown(&self, label: &Label) -> LinkConnection {
        LinkConnection {
            program: label.program.clone(),
            local: label.local.to_string(),
            peer: label.peer.to_string(),
            node: label.node.clone(),
            carrier: "the program".to_owned(),
            sent_bytes: self.traffic.sent,
            received_bytes: self.traffic.received,
            retransmitted: self.traffic.resent,
            round_trip_ns: self.traffic.round_trip.map(|time| time.as_nanos() as u64),
        }
    }
}

impl Sockets {
    /// Handles a request about a takeover; the reply, unless it is sent already.
    pub(super) fn on_handover(
        &mut self,
        socket: &Received<MessageSocket>,
        fd: &Received<OwnedFd>,
        life: Option<Received<OwnedFd>>,
        request: &Request,
    ) -> Option<Reply> {
        match self.answer(fd, life, request) {
            None => Some(Reply::Tcp),
            Some((reply, None)) => Some(reply),
            Some((reply, Some(end))) => {
                // The program has gone or waits no longer: the broker keeps the connection.
                if socket.send(&reply, &[end.as_raw_fd()]).is_err() {
                    self.answer(fd, None, &Request::Returned);
                }
                None
            }
        }
    }

    /// None: there is no such connection.
    fn answer(
        &mut self,
        fd: &Received<OwnedFd>,
        life: Option<Received<OwnedFd>>,
        request: &Request,
    ) -> Option<(Reply, Option<OwnedFd>)> {
        let id = self.table.by_cookie.get(Cookie::of(fd).ok()?)?;
        if let (Request::Take, Some(Entry::Brokered { flow, .. })) = (request, self.table.entries.get(id))
            && flow.is_taken()
        {
            // Another process that has the descriptor has taken it.
            return None;
        }
        if let Request::Take = request {
            let life = life.filter(is_pipe)?;
            // Edge-triggered: a pipe reports its end once.
            let mut event = id.event(EpollFlags::EPOLLIN | EpollFlags::EPOLLET);
            match self.epoll.add(&life, event) {
                // The same pipe was added for a connection that has ended.
                Err(Errno::EEXIST) => self.epoll.modify(&life, &mut event).ok()?,
                added => added.ok()?,
            }
            match self.table.entries.get_mut(id)? {
                Entry::Brokered { handover, .. } => {
                    let before = handover.owner.replace(life);
                    self.forget(before.as_ref());
                }
                _ => {
                    self.unwatch(&life);
                    return None;
                }
            }
        }
        self.table.ready.insert(id);
        let entry = self.table.entries.get_mut(id)?;
        if let (Entry::Brokered { handover, .. } | Entry::TakenOver { handover, .. }, Request::Did(traffic)) =
            (&mut *entry, request)
        {
            handover.traffic = *traffic;
            return Some((Reply::Done, None));
        }
        let (flow, label, handover) = match entry {
            Entry::Brokered { flow, label, handover, .. } => (flow, label, handover),
            // Both directions of the broker had ended, so everything is delivered.
            Entry::TakenOver { end, handover, .. } => {
                return match request {
                    Request::Delivered => Some((Reply::Delivered(u64::MAX), None)),
                    Request::Returned => {
                        let _ = shutdown(end.as_raw_fd(), Shutdown::Write);
                        handover.is_gone = true;
                        Some((Reply::Done, None))
                    }
                    _ => None,
                };
            }
            _ => return None,
        };
        let reply = match request {
            Request::Offer(offer) => {
                // Each offer uses one of this broker's ports to the other one.
                let now = Instant::now();
                if handover.offers.is_some_and(|last| now.duration_since(last) < OFFER_PERIOD) {
                    return None;
                }
                handover.offers = Some(now);
                let (node, names) = (handover.node?, (label.local, label.peer));
                self.notify(node, names, Notice::Offer(*offer))?;
                Reply::Done
            }
            Request::IsOffered => Reply::Offered { node: handover.node?.to_string(), offer: handover.offered? },
            Request::Take => {
                let end = flow.end.try_clone().ok()?;
                return Some((Reply::Taken { sent: flow.take() }, Some(end)));
            }
            Request::Delivered => Reply::Delivered(flow.delivered()),
            Request::Returned => {
                flow.give_back();
                let before = handover.owner.take();
                self.forget(before.as_ref());
                Reply::Done
            }
            Request::Moved => {
                flow.moved();
                Reply::Done
            }
            _ => Reply::Done,
        };
        Some((reply, None))
    }

    /// Sends a notice about a connection to the other node's broker, by a stream of one line.
    fn notify(&mut self, node: Address, (from, to): (SocketAddr, SocketAddr), about: Notice) -> Option<()> {
        let stream = (self.table.entries.notices() < NOTICES_MAX)
            .then(|| self.engine.connect(node, PORT, true).ok())
            .flatten()?;
        let id = self.table.next_id();
        self.table.by_stream.insert(stream, id);
        let head = Head { from, to, about: Some(about) };
        self.table.entries.insert(id, Entry::Notice { stream, node, line: line(&head) });
        self.table.ready.insert(id);
        Some(())
    }

    /// Writes the line of a notice once its stream is open; none: it is done.
    pub(super) fn on_notice_stream(
        &mut self,
        stream: transport::Handle,
        node: Address,
        line: Vec<u8>,
    ) -> Option<Entry> {
        match self.engine.state(stream) {
            Some(transport::State::Opening) => return Some(Entry::Notice { stream, node, line }),
            Some(transport::State::Open) => {
                // A new stream has room for one line.
                let _ = self.engine.write(stream, &line);
                let _ = self.engine.close(stream);
            }
            // The offer is lost, and the broker carries the connection on.
            _ => {}
        }
        None
    }

    /// Handles a notice of the broker of `node` about the connection with these addresses here.
    pub(super) fn on_notice(&mut self, names: (SocketAddr, SocketAddr), node: Address, about: Notice) {
        let mut broke = None;
        let ids: Vec<_> = self.table.entries.of_names(names).collect();
        for id in ids {
            let Some(entry) = self.table.entries.get_mut(id) else { continue };
            let (Entry::Brokered { handover, .. } | Entry::TakenOver { handover, .. }) = entry else { continue };
            if handover.node != Some(node) {
                continue;
            }
            match (about, entry) {
                (Notice::Offer(offer), Entry::Brokered { handover, .. }) => handover.offered = Some(offer),
                (Notice::Broke, Entry::TakenOver { end, handover, .. }) => {
                    // The program has the same file open, and reads the end.
                    let _ = shutdown(end.as_raw_fd(), Shutdown::Both);
                    handover.is_gone = true;
                    broke = Some((id, handover.cookie()));
                }
                _ => {}
            }
        }
        if let Some((id, end)) = broke {
            self.table.ready.insert(id);
            self.on_broken(end, &LinkError::Ended(Reason::Aborted));
        }
    }

    /// Removes the pipe of a connection's processes, which have it open, too, from epoll.
    fn forget(&self, owner: Option<&Received<OwnedFd>>) {
        owner.into_iter().for_each(|owner| self.unwatch(owner));
    }

    /// Removes the pipe of an ended connection from epoll.
    pub(super) fn forget_owner_of(&self, handover: &Handover) {
        self.forget(handover.owner.as_ref());
    }

    /// Checks a connection that its program carries; none: it has ended.
    pub(super) fn check_taken_over(
        &mut self,
        end: OwnedFd,
        label: Label,
        handover: Handover,
        port_holder: Option<Received<OwnedFd>>,
    ) -> Option<Entry> {
        if self.is_over(&end, &label, &handover) {
            self.unwatch(&end);
            self.forget_owner_of(&handover);
            return None;
        }
        Some(Entry::TakenOver { end, label, handover, port_holder })
    }

    /// True if a connection that its program carries has ended.
    fn is_over(&mut self, end: &OwnedFd, label: &Label, handover: &Handover) -> bool {
        if handover.is_gone {
            return true;
        }
        if handover.has_lost_owner() {
            self.on_broken(handover.cookie(), &LinkError::Ended(Reason::Aborted));
            if let Some(node) = handover.node {
                self.notify(node, (label.local, label.peer), Notice::Broke);
            }
            // Other processes may hold the program's end.
            let _ = shutdown(end.as_raw_fd(), Shutdown::Both);
            return true;
        }
        // All processes have closed the end. A kill closes it, too, so this is checked last.
        let mut waits = [PollFd::new(end.as_fd(), PollFlags::empty())];
        poll(&mut waits, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}
