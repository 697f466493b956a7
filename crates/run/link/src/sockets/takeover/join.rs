//! Two programs join to carry a connection that their brokers carry so far.
//!
//! The one that connected offers a port ([`Takeovers::offer`]); the other one asks for the offer from time to time ([`Takeovers::accept_offer`]),
//! connects to it by a stream of link and sends the token of the offer. Each then takes its connection from its broker, and sends the number of
//! what it sends from then on comes by the stream, and the other one reads it behind those.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::{Duration, Instant},
};

use transport::State;

use super::{Connection, ConnectionId, Handle, Progress, Takeovers};
use crate::Address;
use crate::sockets::{
    broker_client::{Offer, Reply, Request, Traffic},
    broker_lines::{LINE_MAX, line, take_line},
    flow::Flow,
};

/// Time between two questions to the broker how many bytes are delivered. It doubles while there are no more, as the program may not read, and
/// the other program's number may be wrong.
const DELIVERED_PERIOD: Duration = Duration::from_micros(100);
const DELIVERED_PERIOD_MAX: Duration = Duration::from_millis(50);
/// Time within which both programs join, or the brokers carry the connection on.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Join {
    /// The program's descriptor, until the connection is taken.
    fd: RawFd,
    since: Instant,
    checked: Instant,
    period: Duration,
    delivered: u64,
    /// This program accepted the connection, and sends the token.
    is_acceptor: bool,
    has_sent_token: bool,
    token: u64,
    stream: Option<Handle>,
    /// Received bytes of the other program's line.
    bytes: Vec<u8>,
    /// The connection, once it is taken from the broker.
    pub(super) flow: Option<Box<Flow>>,
    /// Bytes that the other program has sent by the brokers.
    before: Option<u64>,
}

impl Takeovers {
    /// Offers to carry a connection that this program made, with the end `fd`; none: the broker has no such connection.
    pub fn offer(&mut self, fd: RawFd) -> Option<ConnectionId> {
        let mut drawn = [0; 8];
        getrandom::fill(&mut drawn).ok()?;
        let token = u64::from_ne_bytes(drawn);
        let offer = Offer { port: self.port, token };
        match self.broker.about(&[fd], &Request::Offer(offer)) {
            Ok((Reply::Done, _)) => Some(self.add(fd, token, None)),
            _ => None,
        }
    }

    /// Joins the program that made a connection accepted here, if it has offered that; none: not yet.
    pub fn accept_offer(&mut self, fd: RawFd) -> Option<ConnectionId> {
        let Ok((Reply::Offered { node, offer }, _)) = self.broker.about(&[fd], &Request::IsOffered) else {
            return None;
        };
        let node: Address = node.parse().ok()?;
        let stream = self.engine.connect(node, offer.port, true).ok()?;
        let id = self.add(fd, offer.token, Some(stream));
        self.connections.by_stream.insert(stream, id);
        self.advance(id);
        Some(id)
    }

    fn add(&mut self, fd: RawFd, token: u64, stream: Option<Handle>) -> ConnectionId {
        self.connections.last += 1;
        let now = Instant::now();
        let joining = Join {
            fd,
            since: now,
            checked: now,
            period: DELIVERED_PERIOD,
            delivered: 0,
            is_acceptor: stream.is_some(),
            has_sent_token: false,
            token,
            stream,
            bytes: Vec::new(),
            flow: None,
            before: None,
        };
        let one = Connection {
            progress: Progress::Joining(joining),
            waits: 0,
            is_orphan: false,
            unread: None,
            is_fresh: false,
            broke: None,
            traffic: Traffic::default(),
        };
        self.connections.all.insert(self.connections.last, one);
        self.connections.last
    }

    /// Matches accepted streams to connections by the token in their first line.
    pub(super) fn match_streams(&mut self) {
        for (stream, mut bytes, since) in std::mem::take(&mut self.unmatched) {
            if self.read_line(stream, &mut bytes).is_none() || since.elapsed() > JOIN_TIMEOUT {
                let _ = self.engine.abort(stream);
                continue;
            }
            let Some(text) = take_line(&mut bytes) else {
                if bytes.len() < LINE_MAX && !self.engine.is_at_end(stream) {
                    self.unmatched.push((stream, bytes, since));
                }
                continue;
            };
            let token = serde_json::from_slice::<u64>(&text).ok();
            let is_meant = |one: &Connection| match &one.progress {
                Progress::Joining(join) => join.stream.is_none() && Some(join.token) == token,
                _ => false,
            };
            let found = self.connections.all.iter_mut().find(|(_, one)| is_meant(one)).map(|(&id, one)| (id, one));
            let Some((id, Connection { progress: Progress::Joining(join), .. })) = found else {
                let _ = self.engine.abort(stream);
                continue;
            };
            join.stream = Some(stream);
            join.bytes = bytes;
            self.connections.by_stream.insert(stream, id);
            self.advance(id);
        }
    }

    /// Appends received bytes of a line; none: the stream has failed.
    fn read_line(&mut self, stream: Handle, bytes: &mut Vec<u8>) -> Option<()> {
        let mut piece = [0; LINE_MAX];
        let read = self.engine.read_into(stream, &mut piece).ok()?;
        bytes.extend_from_slice(&piece[..read]);
        self.engine.state(stream).map(drop)
    }

    /// Advances all joins. The caller repeats this while there are any.
    pub fn join_all(&mut self) {
        let ids: Vec<ConnectionId> = self
            .connections
            .all
            .iter()
            .filter(|(_, one)| matches!(one.progress, Progress::Joining(_)))
            .map(|(&id, _)| id)
            .collect();
        ids.into_iter().for_each(|id| self.advance(id));
    }

    pub(super) fn advance(&mut self, id: ConnectionId) {
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        let Progress::Joining(mut join) = std::mem::replace(&mut one.progress, Progress::Released) else { return };
        match self.step(id, &mut join) {
            Some(true) => {
                if let (Some(one), Some(flow)) = (self.connections.all.get_mut(&id), join.flow.take()) {
                    one.progress = Progress::TakenOver { flow, has_passed: true };
                }
                // The program may have written into the pair meanwhile.
                self.pass(id);
            }
            Some(false) => {
                if let Some(one) = self.connections.all.get_mut(&id) {
                    one.progress = Progress::Joining(join);
                }
            }
            None => self.fail(id, join),
        }
    }

    /// Advances a join by one step; true: done; none: failed.
    fn step(&mut self, id: ConnectionId, join: &mut Join) -> Option<bool> {
        let Some(stream) = join.stream else { return (join.since.elapsed() < JOIN_TIMEOUT).then_some(false) };
        match self.engine.state(stream)? {
            State::Opening => return (join.since.elapsed() < JOIN_TIMEOUT).then_some(false),
            State::Failed(_) => return None,
            _ => {}
        }
        // The acceptor sends the token first: by it the connecting program knows the stream.
        if join.is_acceptor && !join.has_sent_token {
            self.engine.write(stream, &line(&join.token)).ok()?;
            join.has_sent_token = true;
        }
        if join.before.is_none() {
            self.read_line(stream, &mut join.bytes)?;
            if let Some(text) = take_line(&mut join.bytes) {
                join.before = Some(serde_json::from_slice(&text).ok()?);
            } else if join.bytes.len() >= LINE_MAX || self.engine.is_at_end(stream) {
                return None;
            }
        }
        if join.flow.is_none() && (!join.is_acceptor || join.before.is_some()) {
            join.flow = Some(self.take(id, join.fd, stream)?);
        }
        let (Some(flow), Some(before)) = (&mut join.flow, join.before) else {
            return (join.since.elapsed() < JOIN_TIMEOUT).then_some(false);
        };
        // Both have taken it. Writes of the program go on, or it might never get to read what the broker delivers.
        flow.collect(&mut self.engine, &mut self.piece).ok()?;
        if join.checked.elapsed() < join.period {
            return Some(false);
        }
        join.checked = Instant::now();
        match self.broker.about(&[flow.end.as_raw_fd()], &Request::Delivered) {
            Ok((Reply::Delivered(delivered), _)) if delivered < before => {
                join.period = if delivered > join.delivered {
                    DELIVERED_PERIOD
                } else {
                    (join.period * 2).min(DELIVERED_PERIOD_MAX)
                };
                join.delivered = delivered;
                return Some(false);
            }
            Ok((Reply::Delivered(_), _)) => {}
            // A busy broker delivers later.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                join.period = DELIVERED_PERIOD_MAX;
                return Some(false);
            }
            _ => return None,
        }
        flow.prepend(&std::mem::take(&mut join.bytes));
        // The reply does not matter: everything is delivered.
        let _ = self.broker.about(&[flow.end.as_raw_fd()], &Request::Moved);
        Some(true)
    }

    /// Takes a connection from the broker, and sends the other program the number of bytes that come by the brokers.
    fn take(&mut self, id: ConnectionId, fd: RawFd, stream: Handle) -> Option<Box<Flow>> {
        let (Reply::Taken { sent }, mut fds) =
            self.broker.about(&[self.life.0.as_raw_fd(), fd], &Request::Take).ok()?
        else {
            return None;
        };
        let ours = fds.pop()?;
        self.watch(&ours, id).ok()?;
        self.engine.write(stream, &line(&sent)).ok()?;
        Some(Box::new(Flow::new(stream, ours, Vec::new())))
    }

    /// Ends a join that failed. The brokers carry the connection on, where they still can.
    fn fail(&mut self, id: ConnectionId, join: Join) {
        if let Some(stream) = join.stream {
            let _ = self.engine.abort(stream);
            self.connections.by_stream.remove(&stream);
        }
        let Some(one) = self.connections.all.get_mut(&id) else { return };
        if let (Some(flow), false, None) = (&join.flow, join.is_acceptor, join.before) {
            // The other one has not taken it, so all bytes went by the brokers.
            let returned = self.broker.about(&[flow.end.as_raw_fd()], &Request::Returned);
            if matches!(returned, Ok((Reply::Done, _))) {
                if one.is_orphan {
                    self.connections.all.remove(&id);
                }
                return;
            }
        }
        if let Some(flow) = join.flow {
            one.progress = Progress::TakenOver { flow, has_passed: true };
            self.broke(id, &crate::LinkError::Ended(transport::Reason::Aborted));
        } else if one.is_orphan {
            self.connections.all.remove(&id);
        }
    }

    /// Gives up a join.
    pub(super) fn give_up(&mut self, id: ConnectionId) {
        if let Some(one) = self.connections.all.get_mut(&id)
            && let Progress::Joining(join) = std::mem::replace(&mut one.progress, Progress::Released)
        {
            self.fail(id, join);
        }
    }
}
