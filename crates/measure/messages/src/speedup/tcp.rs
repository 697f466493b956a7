//! The nodes of TCP, each with a connection to each other one.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::atomic::AtomicU32,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};

use super::{
    MessagesError,
    mesh::{CHECK_PERIOD, Halt, MESSAGE_TIMEOUT, Mesh},
};
use crate::bridged::Bridged;

const WHO: &str = "TCP";
/// Time between two checks for connections.
const SERVE_PERIOD: Duration = Duration::from_millis(1);

pub(super) struct Tcp {
    /// Connections to each node; none to this one.
    streams: Vec<Option<TcpStream>>,
    place: Vec<u8>,
}

/// Progress of an exchange with a peer.
struct Progress {
    peer: usize,
    sent: usize,
    come: Vec<u8>,
}

/// All nodes of a bed, joined, for messages of so many bytes.
pub(super) fn nodes(bed: &Bridged, bytes: u32) -> Result<Vec<Tcp>, MessagesError> {
    let system = MessagesError::system;
    let count = bed.places.len();
    let empty = || Tcp { streams: (0..count).map(|_| None).collect(), place: vec![0; bytes as usize] };
    let mut nodes: Vec<Tcp> = bed.places.iter().map(|_| empty()).collect();
    for (to, place) in bed.places.iter().enumerate() {
        let listener = place.space.run(|| TcpListener::bind((place.address, 0)))?.map_err(system("listen"))?;
        let address = listener.local_addr().map_err(system("read an address"))?;
        for from in 0..to {
            let ours = bed.places[from].space.run(|| TcpStream::connect(address))?.map_err(system("connect"))?;
            let (theirs, _) = listener.accept().map_err(system("accept a connection"))?;
            [&ours, &theirs].into_iter().try_for_each(set_up)?;
            nodes[from].streams[to] = Some(ours);
            nodes[to].streams[from] = Some(theirs);
        }
    }
    Ok(nodes)
}

/// A node on a machine of its own, before it is joined to the others.
pub(super) struct Waiting {
    node: Tcp,
    listener: TcpListener,
}

/// Such a node, and the port that it listens on.
pub(super) fn listen(address: Ipv4Addr, nodes: usize, bytes: u32) -> Result<(Waiting, u16), MessagesError> {
    let system = MessagesError::system;
    let listener = TcpListener::bind((address, 0)).map_err(system("listen"))?;
    let port = listener.local_addr().map_err(system("read an address"))?.port();
    let node = Tcp { streams: (0..nodes).map(|_| None).collect(), place: vec![0; bytes as usize] };
    Ok((Waiting { node, listener }, port))
}

impl Waiting {
    /// Connects to the nodes before this one, and waits for those behind it; all have their addresses here, in their order.
    pub(super) fn join(self, me: usize, others: &[Ipv4Addr], ports: &[u16]) -> Result<Tcp, MessagesError> {
        let system = MessagesError::system;
        let Self { mut node, listener } = self;
        for to in 0..me {
            let stream = TcpStream::connect_timeout(&(others[to], ports[to]).into(), MESSAGE_TIMEOUT);
            node.streams[to] = Some(stream.map_err(system("connect"))?);
        }
        listener.set_nonblocking(true).map_err(system("set a socket"))?;
        let began = Instant::now();
        while node.streams.iter().filter(|stream| stream.is_some()).count() + 1 < others.len() {
            match listener.accept() {
                Ok((stream, from)) => {
                    if let Some(at) = others.iter().position(|other| IpAddr::V4(*other) == from.ip()) {
                        node.streams[at] = Some(stream);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock && began.elapsed() < MESSAGE_TIMEOUT => {
                    thread::sleep(SERVE_PERIOD);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(MessagesError::Silent(WHO)),
                Err(source) => return Err(MessagesError::System { operation: "accept a connection", source }),
            }
        }
        node.streams.iter().flatten().try_for_each(set_up)?;
        Ok(node)
    }
}

fn set_up(end: &TcpStream) -> Result<(), MessagesError> {
    end.set_nodelay(true).map_err(MessagesError::system("set TCP_NODELAY"))?;
    end.set_nonblocking(true).map_err(MessagesError::system("set a socket"))
}

/// Bytes of a call; none: it would block.
fn some(done: io::Result<usize>) -> Result<Option<usize>, MessagesError> {
    match done {
        Ok(0) => Err(MessagesError::Closed(WHO)),
        Ok(count) => Ok(Some(count)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(source) => Err(MessagesError::System { operation: "exchange bytes over TCP", source }),
    }
}

impl Tcp {
    fn stream(&self, peer: usize) -> Result<&TcpStream, MessagesError> {
        self.streams.get(peer).and_then(Option::as_ref).ok_or(MessagesError::Closed(WHO))
    }

    /// Sends and reads what can be; true if anything was.
    fn push(&mut self, progress: &mut Progress, ours: &[u8]) -> Result<bool, MessagesError> {
        let mut stream = self.streams.get(progress.peer).and_then(Option::as_ref).ok_or(MessagesError::Closed(WHO))?;
        let mut did = false;
        while progress.sent < ours.len()
            && let Some(count) = some(stream.write(&ours[progress.sent..]))?
        {
            progress.sent += count;
            did = true;
        }
        while progress.come.len() < ours.len() {
            // No byte of the next message: a neighbour may be a step ahead.
            let left = &mut self.place[..ours.len() - progress.come.len()];
            let Some(count) = some(stream.read(left))? else { break };
            progress.come.extend_from_slice(&left[..count]);
            did = true;
        }
        Ok(did)
    }
}

impl Mesh for Tcp {
    fn pause(&mut self, until: Instant) -> Result<(), MessagesError> {
        thread::sleep(until.saturating_duration_since(Instant::now()));
        Ok(())
    }

    fn exchange(
        &mut self,
        peers: &[usize],
        ours: &[u8],
        halt: Halt<'_>,
        on: &mut dyn FnMut(&[u8]),
    ) -> Result<(), MessagesError> {
        let began = Instant::now();
        let progress = |&peer: &usize| Progress { peer, sent: 0, come: Vec::with_capacity(ours.len()) };
        let mut transfers: Vec<Progress> = peers.iter().map(progress).collect();
        loop {
            let mut did = false;
            for progress in &mut transfers {
                let before = progress.come.len();
                did |= self.push(progress, ours)?;
                if before < ours.len() && progress.come.len() == ours.len() {
                    on(&progress.come);
                }
            }
            transfers.retain(|progress| progress.sent < ours.len() || progress.come.len() < ours.len());
            if transfers.is_empty() {
                return Ok(());
            }
            if !did {
                self.sleep(&transfers, ours.len())?;
                halt.look(began, WHO)?;
            }
        }
    }

    fn settle(&mut self, _: &AtomicU32, _: u32, _: Halt<'_>) -> Result<(), MessagesError> {
        // The kernel does.
        Ok(())
    }
}

impl Tcp {
    /// Sleeps until one of these can go on.
    fn sleep(&self, transfers: &[Progress], bytes: usize) -> Result<(), MessagesError> {
        let mut waits = Vec::with_capacity(transfers.len());
        for progress in transfers {
            let mut what = PollFlags::empty();
            what.set(PollFlags::POLLIN, progress.come.len() < bytes);
            what.set(PollFlags::POLLOUT, progress.sent < bytes);
            waits.push(PollFd::new(self.stream(progress.peer)?.as_fd(), what));
        }
        match ppoll(&mut waits, Some(TimeSpec::from_duration(CHECK_PERIOD)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(MessagesError::System { operation: "wait for TCP connections", source: e.into() }),
        }
    }
}
