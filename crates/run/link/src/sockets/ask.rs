//! What the side of a program asks the broker: a question is a connection of its own, so that nothing has to be kept over fork and exec.

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
    places::{local, peer},
};
use crate::{Paths, claim::Talk, supervise};

/// A broker that has not answered within this time is asked no longer: longer than it takes itself for those that wait, and for others.
const PATIENT: Duration = Duration::from_secs(12);
const IMPATIENT: Duration = Duration::from_millis(500);
/// What is only told holds nobody up.
const BRIEF: Duration = Duration::from_millis(5);

/// A question, with the TCP socket that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Question {
    /// To connect it, within a time.
    Connect { to: SocketAddr, is_patient: bool },
    /// It listens, and what it accepts can be swapped.
    Listens,
    /// It was accepted.
    Accepted,
    /// Not a socket but an end: how it does.
    Figures,
    /// An end whose other one is closed: whether all had arrived.
    Ended,
    /// An end whose program would carry it itself: the other end's program may connect there.
    Offer(Offer),
    /// An end: whether the program of the other one has offered that.
    IsOffered,
    /// An end that its program carries from now on, for as long as somebody holds the other end of the pipe that comes with it.
    Take,
    /// The pair's other descriptor, after that: the bytes that its program's end has got.
    Delivered,
    /// The same: it has not come to that, and the broker carries it as before.
    Returned,
    /// The same: nothing more comes by the broker.
    Moved,
    /// The same: what has been done so far.
    Did(Did),
}

/// Where a program takes a connection that it carries itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// Its port of link.
    pub(super) port: u16,
    /// What the other one says first. Nobody else knows it.
    pub(super) token: u64,
}

/// What a program that carries a connection itself has done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Did {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) resent: u64,
    pub(super) round_trip: Option<Duration>,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The end of a pair that goes in the place of the socket comes with this.
    End,
    /// The socket stays as it is.
    Tcp,
    /// How an end does.
    Figures(Figures),
    /// The connection broke: an error number.
    Broke(i32),
    /// Done.
    Done,
    /// The other end's program takes it there.
    Offered { node: String, offer: Offer },
    /// The descriptor that the broker has comes with this: the program carries it from now on, and so many bytes of it are the broker's still.
    Taken { sent: u64 },
    /// Bytes that the program's end has got by the broker.
    Delivered(u64),
}

/// How a connection does, as TCP_INFO has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Frames that were sent again.
    pub resent: u64,
    /// The smoothed round trip; zero: nothing has been acknowledged yet.
    pub round_trip: Duration,
    /// Bytes of a whole frame.
    pub frame_bytes: u16,
}

/// What is to become of a TCP socket.
#[derive(Debug)]
pub enum Way {
    /// This end of a pair goes in its place; it is connected.
    Link(OwnedFd),
    /// It stays, and the kernel carries it.
    Tcp,
}

/// Who asks the broker of one network namespace.
#[derive(Debug)]
pub struct Asker {
    paths: Paths,
}

impl Asker {
    /// Of this network namespace.
    pub fn here() -> Self {
        Self { paths: Paths::here() }
    }

    /// Does a broker serve a cluster here?
    pub fn has_cluster(&self) -> bool {
        Talk::connect(&self.paths.sockets()).is_ok()
    }

    /// Is the address one of the cluster that this node's broker serves? Never, where no broker serves one.
    pub fn is_of_cluster(&self, to: SocketAddr) -> bool {
        let prefixes = std::fs::read_to_string(self.paths.cluster()).unwrap_or_default();
        let address = to.ip().to_canonical();
        prefixes.lines().filter_map(|line| line.parse::<IpNet>().ok()).any(|prefix| prefix.contains(&address))
    }

    /// Connects a TCP socket that is about to be connected. One that does not wait is answered within a fifth of a second.
    ///
    /// # Errors
    /// The broker is gone (ENETDOWN).
    pub fn connect(&self, tcp: BorrowedFd<'_>, to: SocketAddr, is_patient: bool) -> io::Result<Way> {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        self.ask(&Question::Connect { to, is_patient }, tcp)
    }

    /// Says that a TCP socket listens.
    ///
    /// # Errors
    /// No broker serves a cluster here.
    pub fn listens(&self, tcp: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(&Question::Listens, tcp).map(drop)
    }

    /// What a connection that was accepted is.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn accepted(&self, tcp: BorrowedFd<'_>) -> io::Result<Way> {
        self.ask(&Question::Accepted, tcp)
    }

    /// How the connection of an end does.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn figures(&self, end: BorrowedFd<'_>) -> io::Result<Figures> {
        match self.put(&Question::Figures, end)? {
            (Reply::Figures(figures), _) => Ok(figures),
            _ => Err(gone()),
        }
    }

    /// Did the other node end the connection of an end, of which nothing more comes, as both should? Otherwise the error that TCP would tell.
    pub fn ended(&self, end: BorrowedFd<'_>) -> Result<(), i32> {
        match self.put(&Question::Ended, end) {
            Ok((Reply::Broke(error), _)) => Err(error),
            Ok(_) => Ok(()),
            // The broker went, and the connection with it.
            Err(_) => Err(nix::libc::ECONNRESET),
        }
    }

    /// Asks something of an end, the last of `fds`, whose answer is another one than [`Way`].
    pub(super) fn about(&self, fds: &[RawFd], question: &Question) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let talk = Talk::connect_within(&self.paths.sockets(), IMPATIENT).map_err(silent_or_gone)?;
        talk.say(question, fds)?;
        talk.hear().map_err(silent_or_gone)?.ok_or_else(gone)
    }

    /// Says something of an end, and waits for no answer.
    pub(super) fn tell(&self, end: RawFd, what: &Question) -> io::Result<()> {
        Talk::connect_within(&self.paths.sockets(), BRIEF)?.say(what, &[end])
    }

    fn ask(&self, question: &Question, tcp: BorrowedFd<'_>) -> io::Result<Way> {
        match self.put(question, tcp) {
            Ok((Reply::End, mut fds)) => fds.pop().map(Way::Link).ok_or_else(gone),
            Ok(_) => Ok(Way::Tcp),
            // It serves, and has no time: the kernel has.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Way::Tcp),
            Err(error) => Err(error),
        }
    }

    fn put(&self, question: &Question, fd: BorrowedFd<'_>) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let time = match question {
            Question::Connect { is_patient: true, .. } => PATIENT,
            _ => IMPATIENT,
        };
        let talk = Talk::connect_within(&self.paths.sockets(), time).map_err(silent_or_gone)?;
        talk.say(question, &[fd.as_raw_fd()])?;
        talk.hear().map_err(silent_or_gone)?.ok_or_else(gone)
    }
}

/// What a supervised program asks.
impl supervise::Sockets for Asker {
    fn connect(&self, tcp: BorrowedFd<'_>, to: SocketAddr) -> io::Result<Option<OwnedFd>> {
        if !self.is_of_cluster(to) {
            return Ok(None);
        }
        let is_patient = !OFlag::from_bits_retain(fcntl(tcp, FcntlArg::F_GETFL)?).contains(OFlag::O_NONBLOCK);
        match Self::connect(self, tcp, to, is_patient)? {
            Way::Link(end) => Ok(Some(end)),
            Way::Tcp => Ok(None),
        }
    }

    fn listens(&self, tcp: BorrowedFd<'_>) {
        // Without a broker that serves a cluster nobody comes over link.
        let _ = Self::listens(self, tcp);
    }

    fn accepted(&self, tcp: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
        // The broker connects from the address that it connects to.
        let is_from_here = local(&tcp).zip(peer(&tcp)).is_some_and(|((own, _), (peer, _))| own.ip() == peer.ip());
        match is_from_here.then(|| Self::accepted(self, tcp)) {
            Some(Ok(Way::Link(end))) => Ok(names(&end).map(|(_, peer)| (end, peer))),
            // A connection that is no broker's, or whose broker has gone, is what it is.
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
    // What a socket of TCP would lack, too, is told as it is.
    let is_ours = matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM));
    if is_ours || error.kind() == io::ErrorKind::WouldBlock { error } else { gone() }
}

/// What a broker that is not there is told as.
fn gone() -> io::Error {
    io::Error::from_raw_os_error(nix::libc::ENETDOWN)
}
