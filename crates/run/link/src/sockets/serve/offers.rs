//! Connections that other nodes have for programs of this one.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use host::stack::tcp_cookie;
use nix::{
    errno::Errno,
    libc::linger,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt, recv, setsockopt,
        socket,
        sockopt::{IpBindAddressNoPort, KeepAlive, Linger, SocketError, TcpKeepIdle},
    },
};
use transport::{Handle, State};

use super::{Sent, Sockets, Stage, User, Who, program};
use crate::{
    Address,
    claim::Talk,
    ports::BROKER_PORTS,
    sockets::{
        ask::Reply,
        flow::Flow,
        ids::{Cookie, EntryId},
        places::{as_of, local, peer},
        questions::{Head, LINE_MAX, Taken, line, take_line},
    },
};

/// Seconds until the kernel is asked whether a connection that nobody has accepted is still there.
const LOST_S: u32 = 1;

const PEEK: MsgFlags = MsgFlags::MSG_PEEK.union(MsgFlags::MSG_DONTWAIT);

/// Streams of one node that have not said which connection they are, at the most.
const NAMED_OF_NODE: usize = 1024;

impl Sockets {
    pub(super) fn on_stream(&mut self, stream: Handle) {
        // Programs of that node have other ports. What they say of addresses nobody has looked at.
        let is_of_broker = self.engine.peer_port_of(stream).is_some_and(|port| BROKER_PORTS.contains(&port));
        let Some(node) = self.engine.peer_of(stream).filter(|_| is_of_broker) else { return self.abort(stream) };
        // One node alone could have all connections that there are.
        if self.table.all.unnamed_of(node) >= NAMED_OF_NODE {
            return self.abort(stream);
        }
        let id = self.table.draw();
        self.table.streams.insert(stream, id);
        self.table.busy.insert(id);
        self.table.all.insert(id, Stage::Named { stream, node, bytes: Vec::new(), since: Instant::now() });
    }

    /// Appends what came of a first line; false: the connection has failed.
    pub(super) fn read_line(&mut self, stream: Handle, bytes: &mut Vec<u8>) -> bool {
        let mut piece = [0; LINE_MAX];
        match self.engine.read_into(stream, &mut piece) {
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(_) => return false,
        }
        self.engine.state(stream).is_some()
    }

    /// A connection that this broker made was accepted by a program, whose end it gets; none: it is not the other end of one.
    pub(super) fn on_accepted(&mut self, talk: &Sent<Talk>, tcp: &Sent<OwnedFd>) -> Option<()> {
        let (from, is_v6) = peer(tcp)?;
        let id = *self.table.queued.get(&from)?;
        let Some(Stage::Offered { who, .. }) = self.table.all.get(id) else { return None };
        // Others can have the same addresses; the kernel says which socket is connected to this broker's.
        let accepted = tcp_cookie(&mut self.cluster.diag, who.local, from).ok().flatten()?;
        if Cookie::of(tcp).ok()? != accepted.into() {
            return None;
        }
        let names = (as_of(is_v6, who.local), as_of(is_v6, who.peer));
        let (ours, theirs) = self.pair(names).ok()?;
        talk.say(&Reply::End, &[theirs.as_raw_fd()]).ok()?;
        self.table.queued.remove(&from);
        if let Some(Stage::Offered { stream, mut who, tcp, .. }) = self.table.all.remove(id) {
            // It has done its part, and leaves nothing that waits for a minute (TIME_WAIT): the next ones look through all of those for a port.
            let _ = setsockopt(&tcp, Linger, &linger { l_onoff: 1, l_linger: 0 });
            who.program = program(talk);
            self.open(id, talk.user(), who, Flow::new(stream, ours, Vec::new()), &theirs, None);
        }
        Some(())
    }

    /// The first line of a stream: which listener it is for.
    pub(super) fn on_head(
        &mut self,
        id: EntryId,
        stream: Handle,
        node: Address,
        mut bytes: Vec<u8>,
        since: Instant,
    ) -> Option<Stage> {
        if !self.read_line(stream, &mut bytes) {
            return None;
        }
        let Some(head) = take_line(&mut bytes) else {
            if bytes.len() < LINE_MAX && !self.engine.is_at_end(stream) {
                return Some(Stage::Named { stream, node, bytes, since });
            }
            self.abort(stream);
            return None;
        };
        let offered = serde_json::from_slice::<Head>(&head).map_err(|_| "the first line is damaged".to_owned());
        if let Ok(Head { from, to, about: Some(about) }) = offered {
            self.on_told((to, from), node, about);
            let _ = self.engine.close(stream);
            return None;
        }
        let name = self.known.lock().nodes.get(&node).cloned().unwrap_or_else(|| node.to_string());
        let offered = offered.and_then(|Head { from, to, .. }| match self.cluster.places.is_at(from.ip(), node) {
            true if self.table.all.of_names((to, from)).next().is_some() => {
                Err(format!("{from} has a connection to {to} already"))
            }
            true => self.offer(from.ip(), to).map(|(tcp, user)| (from, to, tcp, user)),
            false => Err(format!("{} is not known there as an address of this node", from.ip())),
        });
        match offered {
            Ok((from, to, tcp, user)) => {
                self.table.busy.insert(id);
                // Bytes may come before it is accepted.
                user.waiting_bytes().into_iter().for_each(|budget| self.engine.share(stream, budget));
                // Without it the connection is looked at once in a while alone.
                let _ = self.watch(tcp.as_fd(), id);
                let who = Who { local: to, peer: from, node: name, program: String::new() };
                Some(Stage::Offered { stream, who, tcp, is_answered: false })
            }
            Err(why) => {
                let _ = self.engine.write(stream, &line(&Taken::No(why)));
                let _ = self.engine.close(stream);
                None
            }
        }
    }

    /// Connects to the listener, as a client of TCP; and whose it is.
    fn offer(&mut self, from: IpAddr, to: SocketAddr) -> Result<(OwnedFd, Arc<User>), String> {
        if self.cluster.places.own(to.ip()) != Some(to.ip()) {
            return Err(format!("{to} is not of that node"));
        }
        if !self.cluster.allowed.iter().any(|allow| allow.lets(from, to)) {
            return Err(format!("that node allows {from} to port {} only over TCP (--allow of its broker)", to.port()));
        }
        let Some(uid) = self.cluster.listening.user(&mut self.cluster.diag, to) else {
            return Err(format!("no program with link listens on port {} there", to.port()));
        };
        self.guests.may_open(uid).map_err(|why| format!("{why} on that node"))?;
        let user = self.guests.user(uid).ok_or("too many users have programs with link there")?;
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let refused = |error: Errno| format!("{to} refuses: {error}");
        let tcp = socket(family, SockType::Stream, flags, None).map_err(refused)?;
        // The kernel chooses the port when it knows both ends: by the address alone it looks through all that were in use for a minute, at each bind.
        setsockopt(&tcp, IpBindAddressNoPort, &true).map_err(refused)?;
        // The other end is lost without a word if its listener is closed at the moment of the handshake. A client would hear of that at its first byte.
        setsockopt(&tcp, KeepAlive, &true).and_then(|()| setsockopt(&tcp, TcpKeepIdle, &LOST_S)).map_err(refused)?;
        bind(tcp.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to.ip(), 0))).map_err(refused)?;
        match connect(tcp.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok((tcp, user)),
            Err(error) => Err(refused(error)),
        }
    }

    /// Says that it waits for accept(2) once it does, and looks whether both ends are there still.
    pub(super) fn on_offer(
        &mut self,
        id: EntryId,
        stream: Handle,
        who: Who,
        tcp: OwnedFd,
        is_answered: bool,
    ) -> Option<Stage> {
        let from = local(&tcp).map(|(from, _)| from)?;
        let failed = getsockopt(&tcp, SocketError).ok().filter(|&error| error != 0);
        let is_there = matches!(self.engine.state(stream), Some(State::Opening | State::Open));
        if let (Some(error), false) = (failed, is_answered) {
            let _ = self.engine.write(stream, &line(&Taken::No(format!("{}", Errno::from_raw(error)))));
            let _ = self.engine.close(stream);
            return None;
        }
        // Where a program without link took it, that may close it or say something.
        let is_taken = is_answered && !matches!(recv(tcp.as_raw_fd(), &mut [0], PEEK), Err(Errno::EAGAIN));
        if failed.is_some() || !is_there || is_taken {
            self.table.queued.remove(&from);
            self.abort(stream);
            return None;
        }
        let is_connected = peer(&tcp).is_some();
        if is_connected && !is_answered {
            self.table.queued.insert(from, id);
            let _ = self.engine.write(stream, &line(&Taken::Yes));
        }
        Some(Stage::Offered { stream, who, tcp, is_answered: is_answered || is_connected })
    }
}
