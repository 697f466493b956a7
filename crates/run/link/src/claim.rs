//! Requests of a program for ports of its own, and the broker's replies. Frames of those ports bypass the broker.
//!
//! A message is a packet of a Unix socket: a line of JSON, and with [`PortReply::Ports`] the two packet sockets.

use std::{
    io::{self, IoSlice, IoSliceMut},
    iter,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use bpf::LinkRing;
use model::link::LinkNode;
use nix::{
    cmsg_space,
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    sys::{
        socket::{
            AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect,
            recvmsg, sendmsg, setsockopt, socket,
            sockopt::{ReceiveTimeout, SendTimeout},
        },
        time::{TimeVal, TimeValLike},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Address, BrokerCarrier, Engine, LinkError, Raw, Udp, Wire, engine::SLOTS, table::Table};

/// Bytes of the longest message: a page of [`PortReply::Nodes`].
pub(crate) const MESSAGE_MAX: usize = 4096;
/// Descriptors of a message: the kernel's own limit (SCM_MAX_FD). With less room some would come without being told of, and stay open.
const DESCRIPTORS_MAX: usize = 253;

/// A request of a program to the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PortRequest {
    /// Ports to connect from, and sockets for them.
    Ports,
    /// Frames for this port, too: it listens there.
    Listen(u16),
    /// Stop listening on this port.
    Leave(u16),
    /// The other nodes whose addresses come behind this one; empty: all.
    Nodes(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PortReply {
    /// The ports, and what carries the frames.
    ///
    /// With `ring` the descriptors of a ring come behind those of the sockets; without, frames come by the socket. The last one is of the table of open
    /// connections.
    Ports {
        first: u16,
        last: u16,
        wire: Wire,
        node: String,
        ring: bool,
    },
    Done,
    /// Nodes by their addresses, as many as a message holds; none: there are no more.
    Nodes(Vec<LinkNode>),
    /// Not done: an error number, and why.
    Refused(i32, String),
}

/// One end of a Unix socket for messages.
#[derive(Debug)]
pub(crate) struct Talk(OwnedFd);

impl Talk {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(fd))
    }

    /// As [`Talk::connect`], with a timeout of each call.
    pub(crate) fn connect_within(path: &Path, time: Duration) -> io::Result<Self> {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        let time = TimeVal::microseconds(i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
        setsockopt(&fd, SendTimeout, &time)?;
        setsockopt(&fd, ReceiveTimeout, &time)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(fd))
    }

    /// The same socket under a number above all of `fds`.
    ///
    /// The kernel lets go of what a killed program had open from the last number on, and takes tens of milliseconds for a packet socket: so the broker
    /// is told before that.
    fn behind(self, fds: &[OwnedFd]) -> io::Result<Self> {
        let least = fds.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(0) + 1;
        let number = fcntl(&self.0, FcntlArg::F_DUPFD_CLOEXEC(least))?;
        Ok(Self(sys::fds::received(iter::once(vec![number])).remove(0)))
    }

    /// The next message has to come within this time; none: it may take as long as it likes.
    pub(crate) fn set_receive_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let micros = i64::try_from(time.unwrap_or_default().as_micros()).unwrap_or(i64::MAX);
        Ok(setsockopt(&self.0, ReceiveTimeout, &TimeVal::microseconds(micros))?)
    }

    /// Sends a message, and descriptors with it.
    pub(crate) fn send(&self, message: &impl Serialize, with: &[i32]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let rights = [ControlMessage::ScmRights(with)];
        let rights = if with.is_empty() { &[][..] } else { &rights };
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&text)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Waits for the next message, and the descriptors that came with it; none: the other end is gone.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut text = [0; MESSAGE_MAX];
        let (bytes, fds) = self.receive_text(&mut text)?;
        match bytes {
            0 => Ok(None),
            bytes => Ok(Some((serde_json::from_slice(&text[..bytes])?, fds))),
        }
    }

    /// Receives from an untrusted program; none: its message is invalid. Returns all its descriptors, as their close may block.
    pub(crate) fn receive_untrusted<T: DeserializeOwned>(&self) -> io::Result<(Option<T>, Vec<OwnedFd>)> {
        let mut text = [0; MESSAGE_MAX];
        let (bytes, fds) = self.receive_text(&mut text)?;
        Ok((serde_json::from_slice(&text[..bytes]).ok(), fds))
    }

    fn receive_text(&self, text: &mut [u8; MESSAGE_MAX]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = cmsg_space!([i32; DESCRIPTORS_MAX]);
        let mut places = [IoSliceMut::new(text)];
        let heard = loop {
            match recvmsg::<()>(self.0.as_raw_fd(), &mut places, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
                Ok(heard) => break heard,
            }
        };
        let fds = sys::fds::received(heard.cmsgs()?.filter_map(|message| match message {
            ControlMessageOwned::ScmRights(fds) => Some(fds),
            _ => None,
        }));
        Ok((heard.bytes, fds))
    }
}

impl From<Talk> for OwnedFd {
    fn from(talk: Talk) -> Self {
        talk.0
    }
}

impl AsFd for Talk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ports of this node that a program has for itself, by the leave of its broker. They go back when it is dropped, or the program ends.
#[derive(Debug)]
pub struct Claim {
    talk: Talk,
}

impl Claim {
    /// Asks the broker of this network namespace for ports, and makes an engine of them.
    pub fn take() -> Result<(Self, Engine<BrokerCarrier>), LinkError> {
        Self::take_as(Raw::with_bursts)
    }

    /// As [`Claim::take`], for a program that is not written for link: no descriptor is opened later.
    pub(crate) fn take_plain() -> Result<(Self, Engine<BrokerCarrier>), LinkError> {
        Self::take_as(|raw| raw)
    }

    fn take_as(finish: impl FnOnce(Raw) -> Raw) -> Result<(Self, Engine<BrokerCarrier>), LinkError> {
        let paths = crate::Paths::here();
        let talk = match Talk::connect(&paths.claims()) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Err(LinkError::NoBroker);
            }
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                let why =
                    "its programs are root's, or of the group that `evenkeel link serve --group` names".to_owned();
                return Err(LinkError::Refused { why, source });
            }
            talk => talk.map_err(failed("ask the broker for ports"))?,
        };
        let mut claim = Self { talk };
        let (told, fds) = claim.ask(&PortRequest::Ports)?;
        claim.talk = claim.talk.behind(&fds).map_err(failed("talk to the broker"))?;
        let PortReply::Ports { first, last, wire, node, ring } = told else { return Err(strange()) };
        let mut fds = fds.into_iter();
        let (Some(receives), Some(sends)) = (fds.next(), fds.next()) else { return Err(strange()) };
        let ring = match ring {
            true => {
                let (Some(ring), Some(word)) = (fds.next(), fds.next()) else { return Err(strange()) };
                Some(LinkRing::of([ring, word]).map_err(failed("map the ring of this program"))?)
            }
            false => None,
        };
        let table = fds.next().map(Table::of);
        let carrier: BrokerCarrier = match wire.udp {
            Some(_) => Udp::of(wire, receives, None, Vec::new()).into(),
            None => finish(Raw::of(wire, receives, sends, ring, table)).into(),
        };
        let engine = Engine::with_ports(carrier, &node, SLOTS, first..=last)?;
        Ok((claim, engine))
    }

    /// The descriptor by which its broker knows that it is there.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.talk.as_fd()
    }

    /// Has frames for a port come here.
    ///
    /// # Errors
    /// Another program listens there, or it is below 1024 and this one is not root's.
    pub fn listen(&self, port: u16) -> Result<(), LinkError> {
        self.ask(&PortRequest::Listen(port)).map(drop)
    }

    /// Gives such a port back.
    pub fn leave(&self, port: u16) -> Result<(), LinkError> {
        self.ask(&PortRequest::Leave(port)).map(drop)
    }

    /// The nodes that the broker has heard in the last 15 s, by name.
    pub fn nodes(&self) -> Result<Vec<LinkNode>, LinkError> {
        let mut nodes: Vec<LinkNode> = Vec::new();
        loop {
            let last = nodes.last().map(|node| node.address.clone());
            match self.ask(&PortRequest::Nodes(last.unwrap_or_default()))?.0 {
                PortReply::Nodes(more) if more.is_empty() => break,
                PortReply::Nodes(more) => nodes.extend(more),
                _ => return Err(strange()),
            }
        }
        nodes.sort_by(|a, b| (&a.name, &a.address).cmp(&(&b.name, &b.address)));
        Ok(nodes)
    }

    /// The address of a node that is named, or whose address it is.
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
            [one] => one.address.parse().map_err(|_| strange()),
            [] => Err(LinkError::NoNode { name: node.to_owned() }),
            several => {
                let addresses: Vec<&str> = several.iter().map(|node| node.address.as_str()).collect();
                Err(LinkError::same_name(node, &addresses))
            }
        }
    }

    fn ask(&self, what: &PortRequest) -> Result<(PortReply, Vec<OwnedFd>), LinkError> {
        let failed = |error: io::Error| match error.kind() {
            // It has ended since.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::NoBroker,
            _ => failed("talk to the broker")(error),
        };
        // A broker that refused the connection has closed it. Its answer is read behind the error, which is told once.
        let said = self.talk.send(what, &[]);
        let heard = match self.talk.receive() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.talk.receive(),
            heard => heard,
        };
        match heard.map_err(failed)? {
            None => Err(said.map_err(failed).err().unwrap_or(LinkError::NoBroker)),
            Some((PortReply::Refused(number, why), _)) => {
                Err(LinkError::Refused { why, source: io::Error::from_raw_os_error(number) })
            }
            Some(told) => Ok(told),
        }
    }
}

fn strange() -> LinkError {
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
            let (claim, broker) = (Claim { talk: Talk::new(ours) }, Talk::new(theirs));
            if closed_later {
                // A question that the broker has not read when it closes.
                claim.talk.send(&PortRequest::Ports, &[]).unwrap();
            }
            broker.send(&PortReply::Refused(87, "too many".to_owned()), &[]).unwrap();
            drop(broker);
            let error = claim.ask(&PortRequest::Ports).unwrap_err();
            assert!(matches!(&error, LinkError::Refused { why, .. } if why == "too many"), "{error}");
        }
    }
}
