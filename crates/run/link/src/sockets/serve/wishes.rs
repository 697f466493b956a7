//! Programs that want to be connected.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::socket::{SockaddrStorage, bind, getsockopt, sockopt::Ipv6V6Only};
use transport::{Handle, Reason, State};

use super::{Counted, PORT, Sent, Sockets, Stage, Who, program, sought::Seek};
use crate::{
    Address,
    broker::one_sentence,
    claim::Talk,
    ports::BROKER_PORTS,
    sockets::{
        ask::Reply,
        flow::Flow,
        ids::EntryId,
        places::{as_of, local},
        questions::{Head, LINE_MAX, Taken, line, take_line},
    },
};

/// How often the kernel's neighbours are looked at while an address is looked for.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// Of the ports that the broker connects from to one node, users other than root have so many.
const PORTS_OF_OTHERS: usize = BROKER_PORTS.end().abs_diff(*BROKER_PORTS.start()) as usize + 1 - 1024;

/// A program's wish to be connected.
#[derive(Debug)]
pub(super) struct Connects {
    pub(super) talk: Sent<Talk>,
    pub(super) _asks: Counted,
    pub(super) tcp: Sent<OwnedFd>,
    pub(super) to: SocketAddr,
    pub(super) asked: Instant,
    pub(super) until: Instant,
    pub(super) looked: Option<Instant>,
    pub(super) stream: Option<Stream>,
    /// The answer so far, and what follows it.
    pub(super) bytes: Vec<u8>,
}

/// The stream that it is to be connected by.
#[derive(Debug)]
pub(super) struct Stream {
    handle: Handle,
    pub(super) node: Address,
    /// Of the node.
    name: String,
    /// The first line has been said.
    has_said: bool,
}

/// What becomes of such a wish.
enum Wish {
    Waits,
    ByTcp(String),
    Granted,
}

impl Sockets {
    pub(super) fn on_wish(&mut self, id: EntryId, mut wish: Box<Connects>, now: Instant) -> Option<Stage> {
        let granted = match self.advance(id, &mut wish, now) {
            Wish::Waits if now < wish.until => return Some(Stage::Connects(wish)),
            Wish::Waits => Wish::ByTcp(format!("no answer within {} ms", now.duration_since(wish.asked).as_millis())),
            other => other,
        };
        if let Wish::ByTcp(why) = granted {
            if let Some(stream) = wish.stream {
                self.abort(stream.handle);
            }
            self.known.lock().by_tcp.add(wish.to, &why, wish.talk.user().uid, now);
            let Connects { talk, tcp, .. } = *wish;
            drop(tcp);
            talk.answer(Reply::Tcp);
            return None;
        }
        self.table.all.remove(id)
    }

    /// One step of a wish; where it is granted the connection stands among all.
    fn advance(&mut self, id: EntryId, wish: &mut Connects, now: Instant) -> Wish {
        let Some(Stream { handle, name: node, has_said, .. }) = &mut wish.stream else {
            return self.find(id, wish, now);
        };
        let stream = *handle;
        match self.engine.state(stream) {
            Some(State::Opening) => return Wish::Waits,
            Some(State::Failed(Reason::Refused)) => {
                return Wish::ByTcp(format!("{node} serves no cluster: start its broker with --cluster"));
            }
            Some(State::Failed(reason)) => return Wish::ByTcp(format!("{node}: {reason}")),
            None => return Wish::ByTcp(format!("{node} ended the connection")),
            Some(_) => {}
        }
        let node = node.clone();
        if !*has_said {
            *has_said = true;
            let Some(from) = self.bound(wish) else {
                return Wish::ByTcp(
                    "its socket is bound to an address out of the cluster, or no port is free".to_owned(),
                );
            };
            // The kernel does not look: the socket is never connected. What is told of a connection goes by its addresses.
            if self.table.all.of_names((from, wish.to)).next().is_some() {
                return Wish::ByTcp(format!("port {} has a connection to it already", from.port()));
            }
            // The first bytes of a stream always find room.
            let _ = self.engine.write(stream, &line(&Head { from, to: wish.to, about: None }));
            return Wish::Waits;
        }
        if !self.read_line(stream, &mut wish.bytes) {
            return Wish::ByTcp(format!("{node} ended the connection"));
        }
        let Some(answer) = take_line(&mut wish.bytes) else {
            return match self.engine.is_at_end(stream) || wish.bytes.len() >= LINE_MAX {
                true => Wish::ByTcp(format!("unexpected answer from {node}: does it run another version?")),
                false => Wish::Waits,
            };
        };
        match serde_json::from_slice(&answer) {
            // Others of the same user may have been granted since this one was looked at.
            Ok(Taken::Yes) => match self.guests.may_open(wish.talk.user().uid) {
                Ok(()) => self.grant(id, wish, stream, node).unwrap_or_else(|| Wish::ByTcp("no memory".to_owned())),
                Err(why) => Wish::ByTcp(why),
            },
            // Words of another node.
            Ok(Taken::No(why)) => Wish::ByTcp(one_sentence(&why)),
            Err(_) => Wish::ByTcp(format!("unexpected answer from {node}: does it run another version?")),
        }
    }

    /// Looks for the node, and offers it a stream.
    fn find(&mut self, id: EntryId, wish: &mut Connects, now: Instant) -> Wish {
        match wish.looked {
            Some(last) if now.duration_since(last) < LOOK => return Wish::Waits,
            _ => wish.looked = Some(now),
        }
        let to = wish.to.ip();
        match self.cluster.places.own(to) {
            None => return Wish::ByTcp("it is not in the cluster".to_owned()),
            Some(own) if own == to => return Wish::ByTcp("it is this node".to_owned()),
            Some(_) => {}
        }
        if let Err(why) = self.guests.may_open(wish.talk.user().uid) {
            return Wish::ByTcp(why);
        }
        let Some(node) = self.cluster.places.find(to) else {
            match self.cluster.sought.seek(to, wish.talk.user().uid, now) {
                Seek::Ask => self.cluster.places.provoke(to),
                Seek::Wait => {}
                Seek::Absent => return Wish::ByTcp(format!("{to} does not answer on this Ethernet")),
                Seek::TooMany => return Wish::ByTcp("too many addresses are looked for at once".to_owned()),
            }
            return Wish::Waits;
        };
        self.cluster.sought.found(to);
        let Some(name) = self.known.lock().nodes.get(&node).cloned() else {
            return Wish::ByTcp(format!("{to} is at {node}, which is no node of link"));
        };
        if wish.talk.user().uid != 0 && self.table.all.ports_to(node) >= PORTS_OF_OTHERS {
            return Wish::ByTcp(format!(
                "{PORTS_OF_OTHERS} connections to {name} are open or wait, the most that users other than root may share"
            ));
        }
        match self.engine.connect(node, PORT, true) {
            Ok(stream) => {
                self.table.streams.insert(stream, id);
                wish.stream = Some(Stream { handle: stream, node, name, has_said: false });
                Wish::Waits
            }
            Err(error) => Wish::ByTcp(error.to_string()),
        }
    }

    /// The address that a wish's socket has, bound to a free port if it was not yet.
    fn bound(&self, wish: &Connects) -> Option<SocketAddr> {
        let own = self.cluster.places.own(wish.to.ip())?;
        let (mut at, is_v6) = local(&wish.tcp)?;
        // TCP would not connect it: its port may be another socket's, too.
        let reaches = match wish.to.is_ipv4() {
            true => !is_v6 || !getsockopt(&wish.tcp, Ipv6V6Only).ok()?,
            false => is_v6,
        };
        if !reaches {
            return None;
        }
        if at.port() == 0 {
            let any = as_of(is_v6, SocketAddr::new(own, 0));
            bind(wish.tcp.as_raw_fd(), &SockaddrStorage::from(any)).ok()?;
            at = local(&wish.tcp)?.0;
        }
        // No program speaks for an address that is not this node's in the cluster.
        (at.ip().is_unspecified() || at.ip() == own).then(|| SocketAddr::new(own, at.port()))
    }

    fn grant(&mut self, id: EntryId, wish: &mut Connects, stream: Handle, node: String) -> Option<Wish> {
        let from = self.bound(wish)?;
        let is_v6 = local(&wish.tcp)?.1;
        let names = (as_of(is_v6, from), as_of(is_v6, wish.to));
        let (ours, theirs) = self.pair(names).ok()?;
        let who = Who { local: from, peer: wish.to, node, program: program(&wish.talk) };
        let user = wish.talk.user();
        let holds = wish.tcp.try_clone().ok().map(|tcp| Sent::new(tcp, user));
        let flow = Flow::new(stream, ours, std::mem::take(&mut wish.bytes));
        self.open(id, user, who, flow, &theirs, holds);
        if wish.talk.say(&Reply::End, &[theirs.as_raw_fd()]).is_err() {
            // It has gone: its end is closed here, which ends the connection.
            drop(theirs);
        }
        Some(Wish::Granted)
    }
}
