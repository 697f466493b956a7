//! Connections from other nodes to programs of this one.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{Arc, Weak},
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
use transport::{Budget, Handle, State};

use super::{Counted, Entry, Label, Received, Sockets, program};
use crate::{
    Address,
    claim::MessageSocket,
    ports::BROKER_PORTS,
    sockets::{
        broker_client::Reply,
        broker_lines::{Head, LINE_MAX, Taken, line, take_line},
        flow::Flow,
        ids::{Cookie, EntryId},
        socket_address::{as_of, local, peer},
    },
};

/// Idle seconds before TCP keepalive probes a connection that waits for accept(2).
const KEEPALIVE_S: u32 = 1;

const PEEK: MsgFlags = MsgFlags::MSG_PEEK.union(MsgFlags::MSG_DONTWAIT);

/// Streams of one node without a head.
const UNNAMED_OF_NODE_MAX: usize = 1024;
/// Connections of one node that wait for accept(2): its broker has as many ports. A node that cheats may open several streams from one.
const PENDING_OF_NODE_MAX: usize = BROKER_PORTS.end().abs_diff(*BROKER_PORTS.start()) as usize + 1;

/// Buffered bytes of connections of one node that wait for accept(2) at root's listeners; those of other users count for the user. Beyond, each has 8
/// frames: 4,096 connections with frames of 1,500 bytes have 110 MB of what would be 1.3 GB.
const PENDING_OF_NODE_BYTES_MAX: usize = 64 << 20;

/// Budgets of bytes that wait for root's programs to accept their connections, by node.
#[derive(Debug, Default)]
pub(super) struct PendingBytes(HashMap<Address, Weak<Budget>>);

/// A TCP connection to a listener of this node, which waits for accept(2).
#[derive(Debug)]
pub(super) struct PendingAccept {
    stream: Handle,
    pub(super) node: Address,
    pub(super) label: Label,
    tcp: OwnedFd,
    is_answered: bool,
    /// Counts the connection for the listener's user.
    open: Counted,
}

impl PendingBytes {
    fn of(&mut self, node: Address) -> Arc<Budget> {
        if let Some(budget) = self.0.get(&node).and_then(Weak::upgrade) {
            return budget;
        }
        // Nodes without such connections are removed.
        self.0.retain(|_, budget| budget.strong_count() > 0);
        let budget = Budget::new(PENDING_OF_NODE_BYTES_MAX);
        self.0.insert(node, Arc::downgrade(&budget));
        budget
    }
}

impl Sockets {
    pub(super) fn on_stream(&mut self, stream: Handle) {
        // Only brokers have these ports. A program could claim any address.
        let is_of_broker = self.engine.peer_port_of(stream).is_some_and(|port| BROKER_PORTS.contains(&port));
        let Some(node) = self.engine.peer_of(stream).filter(|_| is_of_broker) else { return self.abort(stream) };
        // One node alone could use up all connections.
        if self.table.entries.unnamed_of(node) >= UNNAMED_OF_NODE_MAX {
            return self.abort(stream);
        }
        let id = self.table.next_id();
        self.table.by_stream.insert(stream, id);
        self.table.ready.insert(id);
        self.table.entries.insert(id, Entry::Unnamed { stream, node, bytes: Vec::new(), since: Instant::now() });
    }

    /// Appends received bytes of a first line; false: the stream has failed.
    pub(super) fn read_line(&mut self, stream: Handle, bytes: &mut Vec<u8>) -> bool {
        let mut piece = [0; LINE_MAX];
        match self.engine.read_into(stream, &mut piece) {
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(_) => return false,
        }
        self.engine.state(stream).is_some()
    }

    /// Replies to a program that has accepted a connection of this broker with an end of a pair; none: it is another connection.
    pub(super) fn on_accepted(&mut self, socket: &Received<MessageSocket>, tcp: &Received<OwnedFd>) -> Option<()> {
        let (from, is_v6) = peer(tcp)?;
        let id = *self.table.by_local.get(&from)?;
        let Some(Entry::PendingAccept(PendingAccept { label, .. })) = self.table.entries.get(id) else { return None };
        // Several sockets can have these addresses; inet_diag finds the one that is connected to this broker's.
        let accepted = tcp_cookie(&mut self.cluster.diag, label.local, from).ok().flatten()?;
        if Cookie::of(tcp).ok()? != accepted.into() {
            return None;
        }
        let names = (as_of(is_v6, label.local), as_of(is_v6, label.peer));
        let (ours, theirs) = self.pair(names).ok()?;
        socket.send(&Reply::End, &[theirs.as_raw_fd()]).ok()?;
        self.table.by_local.remove(&from);
        if let Some(Entry::PendingAccept(pending)) = self.table.entries.remove(id) {
            let PendingAccept { stream, mut label, tcp, open, .. } = pending;
            // Closed by a reset it leaves no TIME_WAIT: a search for a free port would pass over thousands of those.
            let _ = setsockopt(&tcp, Linger, &linger { l_onoff: 1, l_linger: 0 });
            label.program = program(socket);
            let mut flow = Flow::new(stream, ours, Vec::new());
            // The program may have another user than the listener.
            flow.charge_to(&mut self.engine, socket.user().waiting_bytes());
            self.open(id, open, label, flow, &theirs, None);
        }
        Some(())
    }

    /// Reads the head of a stream, and connects to the listener that it names.
    pub(super) fn on_stream_head(
        &mut self,
        id: EntryId,
        stream: Handle,
        node: Address,
        mut bytes: Vec<u8>,
        since: Instant,
    ) -> Option<Entry> {
        if !self.read_line(stream, &mut bytes) {
            return None;
        }
        let Some(head) = take_line(&mut bytes) else {
            if bytes.len() < LINE_MAX && !self.engine.is_at_end(stream) {
                return Some(Entry::Unnamed { stream, node, bytes, since });
            }
            self.abort(stream);
            return None;
        };
        let offered = serde_json::from_slice::<Head>(&head).map_err(|_| "the first line is damaged".to_owned());
        if let Ok(Head { from, to, about: Some(about) }) = offered {
            self.on_notice((to, from), node, about);
            let _ = self.engine.close(stream);
            return None;
        }
        let name = self.known.lock().nodes.get(&node).cloned().unwrap_or_else(|| node.to_string());
        let offered = offered.and_then(|Head { from, to, .. }| match self.cluster.addresses.is_at(from.ip(), node) {
            true if self.table.entries.of_names((to, from)).next().is_some() => {
                Err(format!("{from} has a connection to {to} already"))
            }
            true if self.table.entries.pending_of(node) >= PENDING_OF_NODE_MAX => {
                Err(format!("{PENDING_OF_NODE_MAX} connections of this node wait there, the most that a node may have"))
            }
            true => self.offer(from.ip(), to).map(|(tcp, open)| (from, to, tcp, open)),
            false => Err(format!("{} is not known there as an address of this node", from.ip())),
        });
        match offered {
            Ok((from, to, tcp, open)) => {
                self.table.ready.insert(id);
                // Bytes may arrive before accept(2).
                let of_node = || self.table.pending_bytes.of(node);
                let budget = open.user().waiting_bytes().cloned().unwrap_or_else(of_node);
                self.engine.charge_to(stream, Some(&budget));
                // Without it the connection is checked once in a period.
                let _ = self.watch(tcp.as_fd(), id);
                let label = Label { local: to, peer: from, node: name, program: String::new() };
                Some(Entry::PendingAccept(PendingAccept { stream, node, label, tcp, is_answered: false, open }))
            }
            Err(why) => {
                let _ = self.engine.write(stream, &line(&Taken::No(why)));
                let _ = self.engine.close(stream);
                None
            }
        }
    }

    /// Connects to a listener of this node by TCP; the socket, and the connection counted for the listener's user.
    fn offer(&mut self, from: IpAddr, to: SocketAddr) -> Result<(OwnedFd, Counted), String> {
        if self.cluster.addresses.own(to.ip()) != Some(to.ip()) {
            return Err(format!("{to} is not of that node"));
        }
        if !self.cluster.allowed.iter().any(|allow| allow.lets(from, to)) {
            return Err(format!("that node allows {from} to port {} only over TCP (--allow of its broker)", to.port()));
        }
        let Some(uid) = self.cluster.listening.user(&mut self.cluster.diag, to) else {
            return Err(format!("no program with link listens on port {} there", to.port()));
        };
        self.users.may_open(uid).map_err(|why| format!("{why} on that node"))?;
        let user = self.users.user(uid).ok_or("too many users have programs with link there")?;
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let refused = |error: Errno| format!("{to} refuses: {error}");
        let tcp = socket(family, SockType::Stream, flags, None).map_err(refused)?;
        // The kernel chooses the port at connect: at bind it would search all ports that are in TIME_WAIT.
        setsockopt(&tcp, IpBindAddressNoPort, &true).map_err(refused)?;
        // A listener that is closed during the handshake drops the connection silently. A TCP client would learn that at its first byte.
        setsockopt(&tcp, KeepAlive, &true)
            .and_then(|()| setsockopt(&tcp, TcpKeepIdle, &KEEPALIVE_S))
            .map_err(refused)?;
        bind(tcp.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to.ip(), 0))).map_err(refused)?;
        match connect(tcp.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok((tcp, user.opens())),
            Err(error) => Err(refused(error)),
        }
    }

    /// Notifies the other broker once the connection waits for accept(2), and checks that both ends still exist.
    pub(super) fn on_pending_accept(&mut self, id: EntryId, mut pending: PendingAccept) -> Option<Entry> {
        let PendingAccept { stream, ref tcp, is_answered, .. } = pending;
        let from = local(tcp).map(|(from, _)| from)?;
        let failed = getsockopt(tcp, SocketError).ok().filter(|&error| error != 0);
        let is_there = matches!(self.engine.state(stream), Some(State::Opening | State::Open));
        if let (Some(error), false) = (failed, is_answered) {
            let _ = self.engine.write(stream, &line(&Taken::No(format!("{}", Errno::from_raw(error)))));
            let _ = self.engine.close(stream);
            return None;
        }
        // A program without link that accepted it may close it or send bytes.
        let is_taken = is_answered && !matches!(recv(tcp.as_raw_fd(), &mut [0], PEEK), Err(Errno::EAGAIN));
        if failed.is_some() || !is_there || is_taken {
            self.table.by_local.remove(&from);
            self.abort(stream);
            return None;
        }
        let is_connected = peer(tcp).is_some();
        if is_connected && !is_answered {
            self.table.by_local.insert(from, id);
            let _ = self.engine.write(stream, &line(&Taken::Yes));
        }
        pending.is_answered |= is_connected;
        Some(Entry::PendingAccept(pending))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use wire::Mac;

    use super::*;
    use crate::sockets::serve::{entries::Entries, users::Users};

    #[test]
    fn a_connection_that_waits_for_accept_counts_for_its_user_and_its_node() {
        let (mut users, mut entries) = (Users::new(), Entries::new());
        let user = users.user(1000).unwrap();
        let [node, other] = [1, 2].map(|last| Address::Ethernet(Mac([2, 0, 0, 0, 0, last])));
        let at = SocketAddr::from(([10, 0, 0, 1], 7000));
        let label = Label { local: at, peer: at, node: String::new(), program: String::new() };
        let _open: Vec<Counted> = (0..1020).map(|_| user.opens()).collect();
        let mut last = EntryId(1);
        while users.may_open(1000).is_ok() {
            last.0 += 1;
            let (tcp, open) = (TcpListener::bind("127.0.0.1:0").unwrap().into(), user.opens());
            let stream = Handle::of(last.0 as u32);
            let pending = PendingAccept { stream, node, label: label.clone(), tcp, is_answered: false, open };
            entries.insert(last, Entry::PendingAccept(pending));
        }
        assert_eq!((entries.pending_of(node), entries.pending_of(other)), (4, 0));
        drop(entries.remove(last));
        assert_eq!((entries.pending_of(node), users.may_open(1000)), (3, Ok(())));
    }

    #[test]
    fn bytes_that_wait_for_root_count_for_the_node_that_sent_them() {
        let mut pending = PendingBytes::default();
        let [node, other] = [1, 2].map(|last| Address::Ethernet(Mac([2, 0, 0, 0, 0, last])));
        let mut connections = [transport::Charge::default(), transport::Charge::default()];
        connections.iter_mut().for_each(|one| one.charge_to(Some(&pending.of(node))));
        connections[0].set(PENDING_OF_NODE_BYTES_MAX);
        assert!(connections[1].is_exhausted(), "one budget for all of a node");
        let mut of_other = transport::Charge::default();
        of_other.charge_to(Some(&pending.of(other)));
        assert!(!of_other.is_exhausted());
        // Accepted by root, nothing bounds it any more.
        connections[0].charge_to(None);
        assert!(!connections.iter().any(transport::Charge::is_exhausted));
        drop(connections);
        let _budget = pending.of(Address::Ethernet(Mac([2, 0, 0, 0, 0, 3])));
        assert!(!pending.0.contains_key(&node) && pending.0.contains_key(&other));
    }
}
