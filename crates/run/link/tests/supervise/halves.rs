//! Sockets of one machine: a connection to a port that listens is a pair of AF_UNIX sockets, announced by a connection over TCP.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixStream,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use link::supervise::Sockets;
use nix::{
    sys::socket::{UnixAddr, bind, getsockname},
    unistd::geteuid,
};

#[derive(Default)]
pub(crate) struct Halves {
    listening: Mutex<HashSet<u16>>,
    /// By the local address of the connection that announces them.
    coming: Mutex<HashMap<SocketAddr, (OwnedFd, TcpStream)>>,
    pub(crate) connected: AtomicUsize,
    pub(crate) accepted: AtomicUsize,
    /// Users as which calls were made.
    pub(crate) users: Mutex<BTreeSet<u32>>,
}

impl Halves {
    fn note_user(&self) {
        self.users.lock().unwrap().insert(geteuid().as_raw());
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

fn as_stream(tcp: BorrowedFd<'_>) -> io::Result<TcpStream> {
    Ok(tcp.try_clone_to_owned()?.into())
}

/// Keeps the addresses of an end in its name.
fn named(end: OwnedFd, local: SocketAddr, peer: SocketAddr) -> io::Result<OwnedFd> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("ek {local} {peer} {} {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    bind(end.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(end)
}

impl Sockets for Halves {
    fn connect(&self, _tcp: BorrowedFd<'_>, to: SocketAddr) -> io::Result<Option<OwnedFd>> {
        self.note_user();
        if !self.listening.lock().unwrap().contains(&to.port()) {
            return Ok(None);
        }
        let (ours, theirs) = UnixStream::pair()?;
        // Under the lock, so that it is there when the other side accepts.
        let mut coming = self.coming.lock().unwrap();
        let announces = TcpStream::connect(to)?;
        let local = announces.local_addr()?;
        coming.insert(canonical(local), (theirs.into(), announces));
        self.connected.fetch_add(1, Ordering::Relaxed);
        named(ours.into(), local, to).map(Some)
    }

    fn listens(&self, tcp: BorrowedFd<'_>) {
        let port = as_stream(tcp).unwrap().local_addr().unwrap().port();
        self.listening.lock().unwrap().insert(port);
    }

    fn accepted(&self, tcp: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
        self.note_user();
        let tcp = as_stream(tcp)?;
        let (local, peer) = (tcp.local_addr()?, tcp.peer_addr()?);
        let Some((end, _announced)) = self.coming.lock().unwrap().remove(&canonical(peer)) else { return Ok(None) };
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(Some((named(end, local, peer)?, peer)))
    }

    fn names(&self, end: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
        let name: UnixAddr = getsockname(end.as_fd().as_raw_fd()).ok()?;
        let name = std::str::from_utf8(name.as_abstract()?).ok()?;
        let mut words = name.strip_prefix("ek ")?.split(' ');
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    }
}
