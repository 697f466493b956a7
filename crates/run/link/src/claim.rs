//! Requests of a program for ports of its own, and the broker's replies. Frames of those ports bypass the broker.
//!
//! A message is a packet of a Unix socket: a line of JSON, and with [`PortReply::Ports`] the two packet sockets.

use std::{
    io::{self, IoSlice},
    iter,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use bpf::LinkRing;
use model::link::LinkNode;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    sys::{
        socket::{
            AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg, setsockopt,
            socket,
            sockopt::{ReceiveTimeout, SendTimeout},
        },
        time::{TimeVal, TimeValLike},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sys::fds::Message;

use crate::{Address, BrokerCarrier, Engine, LinkError, Raw, Udp, Wire, engine::SLOT_COUNT, table::Table};

/// Bytes of the longest message: a page of [`PortReply::Nodes`].
pub(crate) const MESSAGE_MAX: usize = 4096;

/// A request of a program to the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PortRequest {
    /// Ports to connect from, with sockets.
    Ports,
    /// Listen on this port: its frames go to the program.
    Listen(u16),
    /// Stop listening on this port.
    StopListening(u16),
    /// Nodes whose addresses sort after this one; empty: all.
    Nodes(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PortReply {
    /// The ports, with descriptors: the sockets, with `ring` those of a ring, and the table of open connections.
    Ports {
        first: u16,
        last: u16,
        wire: Wire,
        node: String,
        ring: bool,
    },
    Done,
    /// Nodes sorted by address, as many as a message holds; empty: no more.
    Nodes(Vec<LinkNode>),
    /// An error number, and the reason.
    Refused(i32, String),
}

/// A Unix socket for messages in JSON and descriptors (SOCK_SEQPACKET).
#[derive(Debug)]
pub(crate) struct MessageSocket(OwnedFd);

impl MessageSocket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(fd))
    }

    /// [`MessageSocket::connect`] with a timeout for each call.
    pub(crate) fn connect_within(path: &Path, time: Duration) -> io::Result<Self> {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        let time = TimeVal::microseconds(i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
        setsockopt(&fd, SendTimeout, &time)?;
        setsockopt(&fd, ReceiveTimeout, &time)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(fd))
    }

    /// Moves the socket to a number above all of `fds`.
    ///
    /// The kernel closes the descriptors of a killed program from the highest number down, and takes tens of milliseconds for a packet socket: so the
    /// broker is notified before that.
    fn move_above(self, fds: &[OwnedFd]) -> io::Result<Self> {
        let least = fds.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(0) + 1;
        let number = fcntl(&self.0, FcntlArg::F_DUPFD_CLOEXEC(least))?;
        Ok(Self(sys::fds::received(iter::once(vec![number])).remove(0)))
    }

    /// Sets the timeout of [`MessageSocket::receive`]; none: no timeout.
    pub(crate) fn set_receive_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let micros = i64::try_from(time.unwrap_or_default().as_micros()).unwrap_or(i64::MAX);
        Ok(setsockopt(&self.0, ReceiveTimeout, &TimeVal::microseconds(micros))?)
    }

    /// Sends a message with descriptors.
    pub(crate) fn send(&self, message: &impl Serialize, with: &[i32]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let rights = [ControlMessage::ScmRights(with)];
        let rights = if with.is_empty() { &[][..] } else { &rights };
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&text)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Receives a message and its descriptors; none: the other end has closed.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut text = [0; MESSAGE_MAX];
        let Message { bytes, fds, is_cut } = sys::fds::receive(&self.0, &mut text)?;
        match bytes {
            _ if is_cut => Err(Errno::EMFILE.into()),
            0 => Ok(None),
            bytes => Ok(Some((serde_json::from_slice(&text[..bytes])?, fds))),
        }
    }

    /// Receives from an untrusted program; none: its message is invalid. Returns all its descriptors, as their close may block.
    pub(crate) fn receive_untrusted<T: DeserializeOwned>(&self) -> io::Result<(Option<T>, Vec<OwnedFd>)> {
        let mut text = [0; MESSAGE_MAX];
        let Message { bytes, fds, is_cut } = sys::fds::receive(&self.0, &mut text)?;
        let message = if is_cut { None } else { serde_json::from_slice(&text[..bytes]).ok() };
        Ok((message, fds))
    }
}

impl From<MessageSocket> for OwnedFd {
    fn from(socket: MessageSocket) -> Self {
        socket.0
    }
}

impl AsFd for MessageSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ports that the broker has given to this program, until this is dropped or the program ends.
#[derive(Debug)]
pub struct Claim {
    socket: MessageSocket,
}

impl Claim {
    /// Requests ports from the broker of this network namespace, and opens an engine on them.
    ///
    /// # Errors
    /// No broker runs here, or it refuses.
    pub fn take() -> Result<(Self, Engine<BrokerCarrier>), LinkError> {
        Self::take_as(Raw::with_bursts)
    }

    /// [`Claim::take`] for a program that is not written for link: the engine opens no descriptors later.
    pub(crate) fn take_plain() -> Result<(Self, Engine<BrokerCarrier>), LinkError> {
        Self::take_as(|raw| raw)
    }

    fn take_as(finish: impl FnOnce(Raw) -> Raw) -> Result<(Self, Engine<BrokerCarrier>), LinkError> {
        let paths = crate::Paths::here();
        let socket = match MessageSocket::connect(&paths.claims()) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Err(LinkError::NoBroker);
            }
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                let why =
                    "its programs are root's, or of the group that `evenkeel link serve --group` names".to_owned();
                return Err(LinkError::Refused { why, source });
            }
            socket => socket.map_err(failed("ask the broker for ports"))?,
        };
        let mut claim = Self { socket };
        let (reply, fds) = claim.request(&PortRequest::Ports)?;
        claim.socket = claim.socket.move_above(&fds).map_err(failed("talk to the broker"))?;
        let PortReply::Ports { first, last, wire, node, ring } = reply else { return Err(unexpected_reply()) };
        let mut fds = fds.into_iter();
        let (Some(receives), Some(sends)) = (fds.next(), fds.next()) else { return Err(unexpected_reply()) };
        let ring = match ring {
            true => {
                let (Some(ring), Some(word)) = (fds.next(), fds.next()) else { return Err(unexpected_reply()) };
                Some(LinkRing::of([ring, word]).map_err(failed("map the ring of this program"))?)
            }
            false => None,
        };
        let table = fds.next().map(Table::of);
        let carrier: BrokerCarrier = match wire.udp {
            Some(_) => Udp::of(wire, receives, None, Vec::new()).into(),
            None => finish(Raw::of(wire, receives, sends, ring, table)).into(),
        };
        let engine = Engine::with_ports(carrier, &node, SLOT_COUNT, first..=last)?;
        Ok((claim, engine))
    }

    /// The socket to the broker, whose close gives the ports back.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Listens on a port: the broker directs its frames here.
    ///
    /// # Errors
    /// Another program listens there, or it is below 1024 and this one is not root's.
    pub fn listen(&self, port: u16) -> Result<(), LinkError> {
        self.request(&PortRequest::Listen(port)).map(drop)
    }

    /// Stops listening on a port.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn stop_listening(&self, port: u16) -> Result<(), LinkError> {
        self.request(&PortRequest::StopListening(port)).map(drop)
    }

    /// The nodes that the broker heard in the last 15 s, sorted by name.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn nodes(&self) -> Result<Vec<LinkNode>, LinkError> {
        let mut nodes: Vec<LinkNode> = Vec::new();
        loop {
            let last = nodes.last().map(|node| node.address.clone());
            match self.request(&PortRequest::Nodes(last.unwrap_or_default()))?.0 {
                PortReply::Nodes(more) if more.is_empty() => break,
                PortReply::Nodes(more) => nodes.extend(more),
                _ => return Err(unexpected_reply()),
            }
        }
        nodes.sort_by(|a, b| (&a.name, &a.address).cmp(&(&b.name, &b.address)));
        Ok(nodes)
    }

    /// The address of a node given by name or address.
    ///
    /// # Errors
    /// [`LinkError::NoNode`], [`LinkError::SameName`]; the broker is gone.
    pub fn find(&self, node: &str) -> Result<Address, LinkError> {
        if let Ok(address) = node.parse() {
            return Ok(address);
        }
        let mut found = self.nodes()?;
        found.retain(|other| other.name == node);
        match found.as_slice() {
            [one] => one.address.parse().map_err(|_| unexpected_reply()),
            [] => Err(LinkError::NoNode { name: node.to_owned() }),
            several => {
                let addresses: Vec<&str> = several.iter().map(|node| node.address.as_str()).collect();
                Err(LinkError::same_name(node, &addresses))
            }
        }
    }

    fn request(&self, request: &PortRequest) -> Result<(PortReply, Vec<OwnedFd>), LinkError> {
        let failed = |error: io::Error| match error.kind() {
            // The broker has ended since.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::NoBroker,
            _ => failed("talk to the broker")(error),
        };
        // A broker that refused the connection has closed it. Its reply is read after the error, which the kernel returns once.
        let sent = self.socket.send(request, &[]);
        let reply = match self.socket.receive() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.socket.receive(),
            reply => reply,
        };
        match reply.map_err(failed)? {
            None => Err(sent.map_err(failed).err().unwrap_or(LinkError::NoBroker)),
            Some((PortReply::Refused(number, why), _)) => {
                Err(LinkError::Refused { why, source: io::Error::from_raw_os_error(number) })
            }
            Some(reply) => Ok(reply),
        }
    }
}

fn unexpected_reply() -> LinkError {
    failed("talk to the broker")(io::Error::other("unexpected answer: does it run another version?"))
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> LinkError {
    move |source| LinkError::System { operation, source }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::socketpair;

    use super::*;

    #[test]
    fn a_refused_connection_says_why_whenever_it_was_closed() {
        for closed_later in [false, true] {
            let (ours, theirs) =
                socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
            let (claim, broker) = (Claim { socket: MessageSocket::new(ours) }, MessageSocket::new(theirs));
            if closed_later {
                // A request that the broker has not read when it closes.
                claim.socket.send(&PortRequest::Ports, &[]).unwrap();
            }
            broker.send(&PortReply::Refused(87, "too many".to_owned()), &[]).unwrap();
            drop(broker);
            let error = claim.request(&PortRequest::Ports).unwrap_err();
            assert!(matches!(&error, LinkError::Refused { why, .. } if why == "too many"), "{error}");
        }
    }
}
