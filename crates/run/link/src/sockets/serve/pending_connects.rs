//! Connects of programs that are not answered yet.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::socket::{SockaddrStorage, bind, getsockopt, sockopt::Ipv6V6Only};
use transport::{Handle, Reason, State};

use super::{Counted, Entry, Label, PORT, Received, Sockets, lookups::Lookup, program};
use crate::{
    Address,
    broker::sanitized_message,
    claim::MessageSocket,
    ports::BROKER_PORTS,
    sockets::{
        broker_client::Reply,
        broker_lines::{Head, LINE_MAX, Taken, line, take_line},
        flow::Flow,
        ids::EntryId,
        socket_address::{as_of, local},
    },
};

/// Time between two readings of the kernel's neighbours during the lookup of an address.
pub(super) const LOOKUP_PERIOD: Duration = Duration::from_millis(1);

/// Ports from which the broker connects to one node for users other than root.
const PORTS_OF_OTHERS_MAX: usize = BROKER_PORTS.end().abs_diff(*BROKER_PORTS.start()) as usize + 1 - 1024;

/// A connect that is not answered yet.
#[derive(Debug)]
pub(super) struct PendingConnect {
    pub(super) socket: Received<MessageSocket>,
    pub(super) _asks: Counted,
    pub(super) tcp: Received<OwnedFd>,
    pub(super) to: SocketAddr,
    pub(super) begun: Instant,
    pub(super) until: Instant,
    pub(super) looked: Option<Instant>,
    pub(super) stream: Option<Stream>,
    /// Received bytes: the other broker's answer, and what follows it.
    pub(super) bytes: Vec<u8>,
}

/// The stream to the other node's broker.
#[derive(Debug)]
pub(super) struct Stream {
    handle: Handle,
    pub(super) node: Address,
    name: String,
    /// The head of the stream is written.
    has_sent_head: bool,
}

/// Progress of a connect.
enum Progress {
    Pending,
    ByTcp(String),
    Granted,
}

impl Sockets {
    pub(super) fn on_pending_connect(
        &mut self,
        id: EntryId,
        mut pending: Box<PendingConnect>,
        now: Instant,
    ) -> Option<Entry> {
        let granted = match self.advance(id, &mut pending, now) {
            Progress::Pending if now < pending.until => return Some(Entry::PendingConnect(pending)),
            Progress::Pending => {
                Progress::ByTcp(format!("no answer within {} ms", now.duration_since(pending.begun).as_millis()))
            }
            other => other,
        };
        if let Progress::ByTcp(why) = granted {
            if let Some(stream) = pending.stream {
                self.abort(stream.handle);
            }
            self.known.lock().by_tcp.add(pending.to, &why, pending.socket.user().uid, now);
            let PendingConnect { socket, tcp, .. } = *pending;
            drop(tcp);
            socket.answer(Reply::Tcp);
            return None;
        }
        self.table.entries.remove(id)
    }

    /// Advances a connect by one step; once it is granted the connection is entered in the table.
    fn advance(&mut self, id: EntryId, pending: &mut PendingConnect, now: Instant) -> Progress {
        let Some(Stream { handle, name: node, has_sent_head, .. }) = &mut pending.stream else {
            return self.find(id, pending, now);
        };
        let stream = *handle;
        match self.engine.state(stream) {
            Some(State::Opening) => return Progress::Pending,
            Some(State::Failed(Reason::Refused)) => {
                return Progress::ByTcp(format!("{node} serves no cluster: start its broker with --cluster"));
            }
            Some(State::Failed(reason)) => return Progress::ByTcp(format!("{node}: {reason}")),
            None => return Progress::ByTcp(format!("{node} ended the connection")),
            Some(_) => {}
        }
        let node = node.clone();
        if !*has_sent_head {
            *has_sent_head = true;
            let Some(from) = self.bound(pending) else {
                return Progress::ByTcp(
                    "its socket is bound to an address out of the cluster, or no port is free".to_owned(),
                );
            };
            // The kernel does not check this, as the socket is never connected, and notices name a connection by its addresses.
            if self.table.entries.of_names((from, pending.to)).next().is_some() {
                return Progress::ByTcp(format!("port {} has a connection to it already", from.port()));
            }
            // A new stream has room for one line.
            let _ = self.engine.write(stream, &line(&Head { from, to: pending.to, about: None }));
            return Progress::Pending;
        }
        if !self.read_line(stream, &mut pending.bytes) {
            return Progress::ByTcp(format!("{node} ended the connection"));
        }
        let Some(answer) = take_line(&mut pending.bytes) else {
            return match self.engine.is_at_end(stream) || pending.bytes.len() >= LINE_MAX {
                true => Progress::ByTcp(format!("unexpected answer from {node}: does it run another version?")),
                false => Progress::Pending,
            };
        };
        match serde_json::from_slice(&answer) {
            // Other connects of the user may have been granted since the lookup.
            Ok(Taken::Yes) => match self.users.may_open(pending.socket.user().uid) {
                Ok(()) => {
                    self.grant(id, pending, stream, node).unwrap_or_else(|| Progress::ByTcp("no memory".to_owned()))
                }
                Err(why) => Progress::ByTcp(why),
            },
            // The text is another node's.
            Ok(Taken::No(why)) => Progress::ByTcp(sanitized_message(&why)),
            Err(_) => Progress::ByTcp(format!("unexpected answer from {node}: does it run another version?")),
        }
    }

    /// Finds the node, and opens a stream to it.
    fn find(&mut self, id: EntryId, pending: &mut PendingConnect, now: Instant) -> Progress {
        match pending.looked {
            Some(last) if now.duration_since(last) < LOOKUP_PERIOD => return Progress::Pending,
            _ => pending.looked = Some(now),
        }
        let to = pending.to.ip();
        match self.cluster.addresses.own(to) {
            None => return Progress::ByTcp("it is not in the cluster".to_owned()),
            Some(own) if own == to => return Progress::ByTcp("it is this node".to_owned()),
            Some(_) => {}
        }
        if let Err(why) = self.users.may_open(pending.socket.user().uid) {
            return Progress::ByTcp(why);
        }
        let Some(node) = self.cluster.addresses.find(to) else {
            match self.cluster.lookups.seek(to, pending.socket.user().uid, now) {
                Lookup::Probe => self.cluster.addresses.provoke(to),
                Lookup::Wait => {}
                Lookup::Absent => return Progress::ByTcp(format!("{to} does not answer on this Ethernet")),
                Lookup::TooMany => return Progress::ByTcp("too many addresses are looked for at once".to_owned()),
            }
            return Progress::Pending;
        };
        self.cluster.lookups.found(to);
        let Some(name) = self.known.lock().nodes.get(&node).cloned() else {
            return Progress::ByTcp(format!("{to} is at {node}, which is no node of link"));
        };
        if pending.socket.user().uid != 0 && self.table.entries.ports_to(node) >= PORTS_OF_OTHERS_MAX {
            return Progress::ByTcp(format!(
                "{PORTS_OF_OTHERS_MAX} connections to {name} are open or wait, the most that users other than root may share"
            ));
        }
        match self.engine.connect(node, PORT, true) {
            Ok(stream) => {
                self.table.by_stream.insert(stream, id);
                pending.stream = Some(Stream { handle: stream, node, name, has_sent_head: false });
                Progress::Pending
            }
            Err(error) => Progress::ByTcp(error.to_string()),
        }
    }

    /// Local address of the socket, which is bound to a free port if it has none.
    fn bound(&self, pending: &PendingConnect) -> Option<SocketAddr> {
        let own = self.cluster.addresses.own(pending.to.ip())?;
        let (mut at, is_v6) = local(&pending.tcp)?;
        // TCP would not connect it, and its port may also be another socket's.
        let reaches = match pending.to.is_ipv4() {
            true => !is_v6 || !getsockopt(&pending.tcp, Ipv6V6Only).ok()?,
            false => is_v6,
        };
        if !reaches {
            return None;
        }
        if at.port() == 0 {
            let any = as_of(is_v6, SocketAddr::new(own, 0));
            bind(pending.tcp.as_raw_fd(), &SockaddrStorage::from(any)).ok()?;
            at = local(&pending.tcp)?.0;
        }
        // The local address has to be this node's in the cluster.
        (at.ip().is_unspecified() || at.ip() == own).then(|| SocketAddr::new(own, at.port()))
    }

    fn grant(&mut self, id: EntryId, pending: &mut PendingConnect, stream: Handle, node: String) -> Option<Progress> {
        let from = self.bound(pending)?;
        let is_v6 = local(&pending.tcp)?.1;
        let names = (as_of(is_v6, from), as_of(is_v6, pending.to));
        let (ours, theirs) = self.pair(names).ok()?;
        let label = Label { local: from, peer: pending.to, node, program: program(&pending.socket) };
        let user = pending.socket.user();
        let port_holder = pending.tcp.try_clone().ok().map(|tcp| Received::new(tcp, user));
        let mut flow = Flow::new(stream, ours, std::mem::take(&mut pending.bytes));
        flow.charge_to(&mut self.engine, user.waiting_bytes());
        self.open(id, user.opens(), label, flow, &theirs, port_holder);
        if pending.socket.send(&Reply::End, &[theirs.as_raw_fd()]).is_err() {
            // The program has gone: closing its end here ends the connection.
            drop(theirs);
        }
        Some(Progress::Granted)
    }
}
