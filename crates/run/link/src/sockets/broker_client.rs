//! Requests of a program's side to the broker: each on a connection of its own, so that no state has to survive fork and exec.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use ipnet::IpNet;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::{Deserialize, Serialize};

use super::{
    names::names,
    socket_address::{local, peer, read_canonical},
};
use crate::{Paths, claim::MessageSocket, supervise};

/// Time to wait for the broker's reply, of a blocking connect and of other requests: longer than the broker's own timeouts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(12);
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Time to wait for room, of a report without a reply.
const REPORT_TIMEOUT: Duration = Duration::from_millis(5);

/// A request, with the socket or the end of a pair that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// A TCP socket: connect it.
    Connect {
        #[serde(deserialize_with = "read_canonical")]
        to: SocketAddr,
        is_patient: bool,
    },
    /// A TCP socket that listens: connections that it accepts can be replaced.
    Listens,
    /// A TCP socket that accept(2) returned.
    Accepted,
    /// An end: its figures for TCP_INFO.
    Figures,
    /// An end at the end of its stream: whether the connection broke.
    Ended,
    /// An end: its program offers to carry the connection.
    Offer(Offer),
    /// An end: the offer of the other end's program, if there is one.
    IsOffered,
    /// An end, with the read end of a pipe: the program carries it from now on, as long as the write end is open.
    Take,
    /// The broker's end, after [`Request::Take`]: the bytes that are delivered to the program's end.
    Delivered,
    /// The broker's end: the takeover failed, and the broker carries it as before.
    Returned,
    /// The broker's end: no more bytes come by the broker.
    Moved,
    /// The broker's end: traffic counts so far.
    Did(Traffic),
}

/// The address of a program that offers a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) port: u16,
    /// A secret that the other program sends first.
    pub(super) token: u64,
}

/// Traffic counts of a connection that its program carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) resent: u64,
    pub(super) round_trip: Option<Duration>,
}

/// The broker's reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The reply carries the end of a pair that replaces the socket.
    End,
    /// The socket stays as it is.
    Tcp,
    /// The figures of an end.
    Figures(Figures),
    /// The connection broke, with this error number.
    Broke(i32),
    /// The request is done.
    Done,
    /// The offer of the other end's program, on that node.
    Offered { node: String, offer: Offer },
    /// With the broker's end: the program carries it from now on, behind `sent` bytes that the broker has read from it.
    Taken { sent: u64 },
    /// Bytes that the broker has delivered to the program's end.
    Delivered(u64),
}

/// Figures of a connection for TCP_INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub resent: u64,
    /// Smoothed round trip; zero: nothing is acknowledged yet.
    pub round_trip: Duration,
    /// Payload bytes of a full frame.
    pub frame_bytes: u16,
}

/// Client of the broker of one network namespace.
#[derive(Debug)]
pub struct BrokerClient {
    paths: Paths,
}

impl BrokerClient {
    /// The client for this network namespace.
    pub fn here() -> Self {
        Self { paths: Paths::here() }
    }

    /// True if a broker serves a cluster here.
    pub fn has_cluster(&self) -> bool {
        MessageSocket::connect(&self.paths.sockets()).is_ok()
    }

    /// True if an address is in the cluster that this node's broker serves.
    pub fn is_of_cluster(&self, to: SocketAddr) -> bool {
        let prefixes = std::fs::read_to_string(self.paths.cluster()).unwrap_or_default();
        let address = to.ip().to_canonical();
        prefixes.lines().filter_map(|line| line.parse::<IpNet>().ok()).any(|prefix| prefix.contains(&address))
    }

    /// Connects a TCP socket: the end of a pair that replaces it; none: the kernel connects it. Without `is_patient` within a fifth of a second.
    pub fn connect(&self, tcp: BorrowedFd<'_>, to: SocketAddr, is_patient: bool) -> io::Result<Option<OwnedFd>> {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        self.request_end(&Request::Connect { to, is_patient }, tcp)
    }

    /// Reports that a TCP socket listens.
    pub fn listens(&self, tcp: BorrowedFd<'_>) -> io::Result<()> {
        self.request_end(&Request::Listens, tcp).map(drop)
    }

    /// The end of a pair that replaces an accepted TCP socket; none: it stays.
    pub fn accepted(&self, tcp: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
        self.request_end(&Request::Accepted, tcp)
    }

    pub fn figures(&self, end: BorrowedFd<'_>) -> io::Result<Figures> {
        match self.request(&Request::Figures, end)? {
            (Reply::Figures(figures), _) => Ok(figures),
            _ => Err(gone()),
        }
    }

    /// True if the connection of an end, at the end of its stream, was closed by both sides; else the error that TCP would return.
    pub fn ended(&self, end: BorrowedFd<'_>) -> Result<(), i32> {
        match self.request(&Request::Ended, end) {
            Ok((Reply::Broke(error), _)) => Err(error),
            Ok(_) => Ok(()),
            // The broker ended, and the connection with it.
            Err(_) => Err(nix::libc::ECONNRESET),
        }
    }

    /// Makes any other request about an end, the last of `fds`.
    pub(super) fn about(&self, fds: &[RawFd], request: &Request) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let socket = MessageSocket::connect_within(&self.paths.sockets(), REPLY_TIMEOUT).map_err(silent_or_gone)?;
        socket.send(request, fds)?;
        socket.receive().map_err(silent_or_gone)?.ok_or_else(gone)
    }

    /// Reports about an end, without a reply.
    pub(super) fn report(&self, end: RawFd, what: &Request) -> io::Result<()> {
        MessageSocket::connect_within(&self.paths.sockets(), REPORT_TIMEOUT)?.send(what, &[end])
    }

    fn request_end(&self, request: &Request, tcp: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
        match self.request(request, tcp) {
            Ok((Reply::End, mut fds)) => fds.pop().map(Some).ok_or_else(gone),
            Ok(_) => Ok(None),
            // The broker is busy: the kernel connects.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn request(&self, request: &Request, fd: BorrowedFd<'_>) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let time = match request {
            Request::Connect { is_patient: true, .. } => CONNECT_TIMEOUT,
            _ => REPLY_TIMEOUT,
        };
        let socket = MessageSocket::connect_within(&self.paths.sockets(), time).map_err(silent_or_gone)?;
        socket.send(request, &[fd.as_raw_fd()])?;
        socket.receive().map_err(silent_or_gone)?.ok_or_else(gone)
    }
}

/// Requests on behalf of a supervised program.
impl supervise::Sockets for BrokerClient {
    fn connect(&self, tcp: BorrowedFd<'_>, to: SocketAddr) -> io::Result<Option<OwnedFd>> {
        if !self.is_of_cluster(to) {
            return Ok(None);
        }
        let is_patient = !OFlag::from_bits_retain(fcntl(tcp, FcntlArg::F_GETFL)?).contains(OFlag::O_NONBLOCK);
        Self::connect(self, tcp, to, is_patient)
    }

    fn listens(&self, tcp: BorrowedFd<'_>) {
        // Without a broker no connection comes over link.
        let _ = Self::listens(self, tcp);
    }

    fn accepted(&self, tcp: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
        // The broker connects from the address that it connects to.
        let is_from_here = local(&tcp).zip(peer(&tcp)).is_some_and(|((own, _), (peer, _))| own.ip() == peer.ip());
        match is_from_here.then(|| Self::accepted(self, tcp)) {
            Some(Ok(Some(end))) => Ok(names(&end).map(|(_, peer)| (end, peer))),
            // A connection that no broker made, or whose broker has ended, stays TCP.
            _ => Ok(None),
        }
    }

    fn names(&self, end: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
        names(&end)
    }

    fn figures(&self, end: BorrowedFd<'_>) -> Option<Figures> {
        Self::figures(self, end).ok()
    }
}

fn silent_or_gone(error: io::Error) -> io::Error {
    use nix::libc::{EMFILE, ENFILE, ENOMEM};
    // Errors that a TCP socket could meet, too, are returned as they are.
    let is_ours = matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM));
    if is_ours || error.kind() == io::ErrorKind::WouldBlock { error } else { gone() }
}

/// The error for a broker that is not there.
fn gone() -> io::Error {
    io::Error::from_raw_os_error(nix::libc::ENETDOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_one_however_a_program_writes_it() {
        let read = |to: &str| {
            let text = format!(r#"{{"Connect":{{"to":"{to}","is_patient":true}}}}"#);
            serde_json::from_str(&text).map(|request| match request {
                Request::Connect { to, .. } => to,
                other => panic!("{other:?}"),
            })
        };
        let at = |text: &str| text.parse().unwrap();
        assert_eq!(read("[fd00::2%7]:7000").unwrap(), at("[fd00::2]:7000"));
        assert_eq!(read("[::ffff:10.0.0.2]:7000").unwrap(), at("10.0.0.2:7000"));
        assert!(read("10.0.0.2").is_err());
    }
}
