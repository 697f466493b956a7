//! How two programs come to carry a connection that their brokers carry so far.
//!
//! The one that connected offers a port ([`Direct::offer`]); the other one, which asks for that now and then ([`Direct::seek`]), connects to it by a
//! stream of link and says the token of the offer. Each then takes its connection from its broker, and says how many bytes it had sent by the brokers:
//! what it sends from then on comes by the stream, and the other one reads it behind those.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::{Duration, Instant},
};

use transport::State;

use super::{Direct, Handle, Id, One, Stage};
use crate::Address;
use crate::sockets::{
    ask::{Did, Offer, Question, Reply},
    flow::Flow,
    questions::{LINE_MAX, line, take_line},
};

/// How often the broker is asked how far it is: twice as rarely each time that it has come no further, as the program may not read, and what the
/// other one says may be wrong.
const LOOK: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_millis(50);
/// Both programs come together within this time, or the brokers carry the connection on.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far they are.
#[derive(Debug)]
pub(super) struct Joining {
    /// The program's descriptor, until the connection is taken.
    fd: RawFd,
    since: Instant,
    looked: Instant,
    look: Duration,
    so_far: u64,
    /// This program accepted the connection, and says the token.
    asks: bool,
    /// It has.
    has_said: bool,
    token: u64,
    stream: Option<Handle>,
    /// What came of the other one's line.
    bytes: Vec<u8>,
    /// After the connection was taken from the broker.
    pub(super) flow: Option<Box<Flow>>,
    /// Bytes that come by the brokers.
    before: Option<u64>,
}

impl Direct {
    /// Offers to carry a connection that this program made, of which `fd` is the end; none: the broker knows of no such connection.
    pub fn offer(&mut self, fd: RawFd) -> Option<Id> {
        let mut drawn = [0; 8];
        getrandom::fill(&mut drawn).ok()?;
        let token = u64::from_ne_bytes(drawn);
        let offer = Offer { port: self.port, token };
        match self.asker.about(&[fd], &Question::Offer(offer)) {
            Ok((Reply::Done, _)) => Some(self.add(fd, token, None)),
            _ => None,
        }
    }

    /// Joins the program that made a connection which this one accepted, if it has offered that; none: not yet.
    pub fn seek(&mut self, fd: RawFd) -> Option<Id> {
        let Ok((Reply::Offered { node, offer }, _)) = self.asker.about(&[fd], &Question::IsOffered) else {
            return None;
        };
        let node: Address = node.parse().ok()?;
        let stream = self.engine.connect(node, offer.port, true).ok()?;
        let id = self.add(fd, offer.token, Some(stream));
        self.by_stream.insert(stream, id);
        self.join(id);
        Some(id)
    }

    fn add(&mut self, fd: RawFd, token: u64, stream: Option<Handle>) -> Id {
        self.next += 1;
        let now = Instant::now();
        let joining = Joining {
            fd,
            since: now,
            looked: now,
            look: LOOK,
            so_far: 0,
            asks: stream.is_some(),
            has_said: false,
            token,
            stream,
            bytes: Vec::new(),
            flow: None,
            before: None,
        };
        let one = One {
            stage: Stage::Joins(joining),
            waits: 0,
            is_orphan: false,
            unread: None,
            is_fresh: false,
            broke: None,
            did: Did::default(),
        };
        self.all.insert(self.next, one);
        self.next
    }

    /// Streams that came: the first line says which connection they are of.
    pub(super) fn meet(&mut self) {
        for (stream, mut bytes, since) in std::mem::take(&mut self.strangers) {
            if self.hear(stream, &mut bytes).is_none() || since.elapsed() > PATIENCE {
                let _ = self.engine.abort(stream);
                continue;
            }
            let Some(said) = take_line(&mut bytes) else {
                if bytes.len() < LINE_MAX && !self.engine.is_at_end(stream) {
                    self.strangers.push((stream, bytes, since));
                }
                continue;
            };
            let token = serde_json::from_slice::<u64>(&said).ok();
            let is_meant = |one: &One| match &one.stage {
                Stage::Joins(joins) => joins.stream.is_none() && Some(joins.token) == token,
                _ => false,
            };
            let found = self.all.iter_mut().find(|(_, one)| is_meant(one)).map(|(&id, one)| (id, one));
            let Some((id, One { stage: Stage::Joins(joins), .. })) = found else {
                let _ = self.engine.abort(stream);
                continue;
            };
            joins.stream = Some(stream);
            joins.bytes = bytes;
            self.by_stream.insert(stream, id);
            self.join(id);
        }
    }

    /// Appends what came of a line; none: the stream has failed.
    fn hear(&mut self, stream: Handle, bytes: &mut Vec<u8>) -> Option<()> {
        let mut piece = [0; LINE_MAX];
        let read = self.engine.read_into(stream, &mut piece).ok()?;
        bytes.extend_from_slice(&piece[..read]);
        self.engine.state(stream).map(drop)
    }

    /// Goes on with those that are about to be carried here. It comes often while there are any.
    pub fn join_all(&mut self) {
        let ids: Vec<Id> =
            self.all.iter().filter(|(_, one)| matches!(one.stage, Stage::Joins(_))).map(|(&id, _)| id).collect();
        ids.into_iter().for_each(|id| self.join(id));
    }

    pub(super) fn join(&mut self, id: Id) {
        let Some(one) = self.all.get_mut(&id) else { return };
        let Stage::Joins(mut joins) = std::mem::replace(&mut one.stage, Stage::Over) else { return };
        match self.step(id, &mut joins) {
            Some(true) => {
                if let (Some(one), Some(flow)) = (self.all.get_mut(&id), joins.flow.take()) {
                    one.stage = Stage::Open { flow, has_passed: true };
                }
                // What the program wrote meanwhile waits in the pair.
                self.pass(id);
            }
            Some(false) => {
                if let Some(one) = self.all.get_mut(&id) {
                    one.stage = Stage::Joins(joins);
                }
            }
            None => self.fail(id, joins),
        }
    }

    /// True: the program carries it; none: it does not come to that.
    fn step(&mut self, id: Id, joins: &mut Joining) -> Option<bool> {
        let Some(stream) = joins.stream else { return (joins.since.elapsed() < PATIENCE).then_some(false) };
        match self.engine.state(stream)? {
            State::Opening => return (joins.since.elapsed() < PATIENCE).then_some(false),
            State::Failed(_) => return None,
            _ => {}
        }
        // The one that connected was told by the token that the other one is there; that one says it first.
        if joins.asks && !joins.has_said {
            self.engine.write(stream, &line(&joins.token)).ok()?;
            joins.has_said = true;
        }
        if joins.before.is_none() {
            self.hear(stream, &mut joins.bytes)?;
            if let Some(said) = take_line(&mut joins.bytes) {
                joins.before = Some(serde_json::from_slice(&said).ok()?);
            } else if joins.bytes.len() >= LINE_MAX || self.engine.is_at_end(stream) {
                return None;
            }
        }
        if joins.flow.is_none() && (!joins.asks || joins.before.is_some()) {
            joins.flow = Some(self.take(id, joins.fd, stream)?);
        }
        let (Some(flow), Some(before)) = (&mut joins.flow, joins.before) else {
            return (joins.since.elapsed() < PATIENCE).then_some(false);
        };
        // The other one has taken it, too. What the program writes goes on, or it might never come to read what the broker delivers.
        flow.collect(&mut self.engine, &mut self.piece).ok()?;
        if joins.looked.elapsed() < joins.look {
            return Some(false);
        }
        joins.looked = Instant::now();
        match self.asker.about(&[flow.end.as_raw_fd()], &Question::Delivered) {
            Ok((Reply::Delivered(so_far), _)) if so_far < before => {
                joins.look = if so_far > joins.so_far { LOOK } else { (joins.look * 2).min(LOOK_MAX) };
                joins.so_far = so_far;
                return Some(false);
            }
            Ok((Reply::Delivered(_), _)) => {}
            // A broker that has no time now delivers later.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                joins.look = LOOK_MAX;
                return Some(false);
            }
            _ => return None,
        }
        flow.put_first(&std::mem::take(&mut joins.bytes));
        // Its answer matters to nobody: what it had is delivered.
        let _ = self.asker.about(&[flow.end.as_raw_fd()], &Question::Moved);
        Some(true)
    }

    /// Takes a connection from the broker, and tells the other program how many bytes it is to expect from there.
    fn take(&mut self, id: Id, fd: RawFd, stream: Handle) -> Option<Box<Flow>> {
        let (Reply::Taken { sent }, mut fds) =
            self.asker.about(&[self.life.0.as_raw_fd(), fd], &Question::Take).ok()?
        else {
            return None;
        };
        let ours = fds.pop()?;
        self.watch(&ours, id).ok()?;
        self.engine.write(stream, &line(&sent)).ok()?;
        Some(Box::new(Flow::new(stream, ours, Vec::new())))
    }

    /// The brokers carry it on, where they still do.
    fn fail(&mut self, id: Id, joins: Joining) {
        if let Some(stream) = joins.stream {
            let _ = self.engine.abort(stream);
            self.by_stream.remove(&stream);
        }
        let Some(one) = self.all.get_mut(&id) else { return };
        if let (Some(flow), false, None) = (&joins.flow, joins.asks, joins.before) {
            // The other one has not taken it, so nothing came or went but by the brokers.
            let returned = self.asker.about(&[flow.end.as_raw_fd()], &Question::Returned);
            if matches!(returned, Ok((Reply::Done, _))) {
                if one.is_orphan {
                    self.all.remove(&id);
                }
                return;
            }
        }
        if let Some(flow) = joins.flow {
            one.stage = Stage::Open { flow, has_passed: true };
            self.broke(id, &crate::LinkError::Ended(transport::Reason::Aborted));
        } else if one.is_orphan {
            self.all.remove(&id);
        }
    }

    /// One that is not carried here yet is not going to be.
    pub(super) fn give_up(&mut self, id: Id) {
        if let Some(one) = self.all.get_mut(&id)
            && let Stage::Joins(joins) = std::mem::replace(&mut one.stage, Stage::Over)
        {
            self.fail(id, joins);
        }
    }
}
