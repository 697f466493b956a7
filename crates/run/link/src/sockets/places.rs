//! The nodes of the addresses of a cluster.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{self, Write},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use host::{
    netlink::{Netlink, route},
    stack::{listener_for, listening},
};
use ipnet::IpNet;
use model::link::{LinkConnection, LinkOverTcp};
use wire::Mac;

use super::{
    by_tcp::ByTcp,
    ids::{EntryId, Inode},
};
use crate::{Address, LinkError, UDP_PORT, Wire};

/// Time to wait for a fresh list of connections; after it the last one is used.
const TOLD: Duration = Duration::from_millis(200);
/// Time for which the kernel's table of neighbours is cached.
const FRESH: Duration = Duration::from_millis(1);
/// Entries from which on closed listeners are searched for.
const LISTENING_FEW: usize = 64;
/// UDP port "discard", to which a datagram makes the kernel solicit a neighbour.
const DISCARD: u16 = 9;

/// State shared between the broker and [`super::Sockets`].
#[derive(Debug, Clone, Default)]
pub struct Known(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    shared: Mutex<Shared>,
    /// A request waits for the list of connections.
    is_asked: AtomicBool,
    told: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Names of the nodes that answer.
    pub(crate) nodes: HashMap<Address, String>,
    /// A cluster is served.
    pub(crate) is_carried: bool,
    /// Connections by entry.
    pub(crate) connections: BTreeMap<EntryId, LinkConnection>,
    /// Sources and ports that may connect.
    pub(crate) allowed: Vec<String>,
    /// The list is the default.
    pub(crate) allowed_by_default: bool,
    /// Counts of connections by TCP.
    pub(super) by_tcp: ByTcp,
}

impl Known {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the list of connections is wanted.
    pub(super) fn is_asked(&self) -> bool {
        self.0.is_asked.load(Ordering::Relaxed)
    }

    /// Publishes the list of connections.
    pub(super) fn tell(&self, connections: BTreeMap<EntryId, LinkConnection>) {
        self.lock().connections = connections;
        self.0.is_asked.store(false, Ordering::Relaxed);
        self.0.told.notify_all();
    }

    /// Sources and ports that may connect, and whether they are the default.
    pub(crate) fn allowed(&self) -> (Vec<String>, bool) {
        let shared = self.lock();
        (shared.allowed.clone(), shared.allowed_by_default)
    }

    /// Connections for `link status`, fresh if a cluster is served.
    pub(crate) fn told(&self) -> (Vec<LinkConnection>, Vec<LinkOverTcp>) {
        let mut shared = self.lock();
        if shared.is_carried {
            self.0.is_asked.store(true, Ordering::Relaxed);
            let waits = |_: &mut Shared| self.0.is_asked.load(Ordering::Relaxed);
            shared = self.0.told.wait_timeout_while(shared, TOLD, waits).unwrap_or_else(PoisonError::into_inner).0;
        }
        (shared.connections.values().cloned().collect(), shared.by_tcp.told())
    }
}

/// Maps addresses of a cluster, behind one interface, to nodes.
#[derive(Debug)]
pub(super) struct Places {
    prefixes: Vec<(IpNet, IpAddr)>,
    ifindex: u32,
    route: Netlink,
    /// The neighbours, and the time they were read.
    neighbours: Option<(Instant, HashMap<IpAddr, Mac>)>,
    /// Over UDP each node is at its own address.
    is_udp: bool,
}

impl Places {
    /// A map of `prefixes` behind an interface, which has an address in each.
    ///
    /// # Errors
    /// The interface has no address in one of them, or another interface has; netlink fails.
    pub(super) fn new(prefixes: &[IpNet], wire: &Wire) -> Result<Self, LinkError> {
        let failed = |source| LinkError::System { operation: "ask the kernel for addresses", source };
        let mut route = Netlink::route().map_err(failed)?;
        let addresses = route::addresses(&mut route).map_err(failed)?;
        let of = |prefix: &IpNet| {
            let cluster = |why: String| LinkError::Cluster { prefix: prefix.to_string(), why };
            let mut within = addresses.iter().filter(|a| prefix.contains(&a.prefix.address));
            if let Some(other) = within.clone().find(|a| a.ifindex != wire.index) {
                return Err(cluster(format!(
                    "{} is in it, the address of another interface (number {})",
                    other.prefix.address, other.ifindex
                )));
            }
            match wire.udp.map(|at| at.ip()) {
                Some(own) if prefix.contains(&own) => return Ok((*prefix, own)),
                Some(own) => return Err(cluster(format!("this node's address behind UDP is {own}"))),
                None => {}
            }
            match within.next() {
                Some(own) => Ok((*prefix, own.prefix.address)),
                None => Err(cluster(format!("{} has no address in it", wire.interface))),
            }
        };
        let prefixes = prefixes.iter().map(of).collect::<Result<_, _>>()?;
        Ok(Self { prefixes, ifindex: wire.index, route, neighbours: None, is_udp: wire.udp.is_some() })
    }

    /// Whether an address of another host is at `node`.
    pub(super) fn is_at(&mut self, address: IpAddr, node: Address) -> bool {
        if self.own(address).is_none_or(|own| own == address) {
            return false;
        }
        let found = self.find(address);
        if found.is_none() {
            // The next connection will find it; this one goes by TCP.
            self.provoke(address);
        }
        found == Some(node)
    }

    /// This node's address in the prefix of another one.
    pub(super) fn own(&self, to: IpAddr) -> Option<IpAddr> {
        self.prefixes.iter().find(|(prefix, _)| prefix.contains(&to)).map(|&(_, own)| own)
    }

    /// The node of an address, over Ethernet from the kernel's table of neighbours; none: it is not there.
    pub(super) fn find(&mut self, address: IpAddr) -> Option<Address> {
        if self.is_udp {
            return Some(Address::Udp(SocketAddr::new(address, UDP_PORT)));
        }
        let is_new = |(at, _): &(Instant, HashMap<IpAddr, Mac>)| at.elapsed() < FRESH;
        if !self.neighbours.as_ref().is_some_and(is_new) {
            let all = route::neighbours(&mut self.route).ok()?;
            let here = all.into_iter().filter(|n| n.ifindex == self.ifindex && n.is_usable());
            let known = here.filter_map(|n| Some((n.address, Mac(*n.lladdr.first_chunk()?)))).collect();
            self.neighbours = Some((Instant::now(), known));
        }
        self.neighbours.as_ref()?.1.get(&address).map(|&mac| Address::Ethernet(mac))
    }

    /// Makes the kernel solicit the neighbour, by an empty datagram.
    pub(super) fn provoke(&self, address: IpAddr) {
        let any = SocketAddr::new(self.own(address).unwrap_or(address), 0);
        // If this fails, the lookup times out.
        let _ = UdpSocket::bind(any).and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(&[], (address, DISCARD))
        });
    }
}

/// Listeners whose accepted connections can be replaced. A file keeps them, so that a restarted broker
/// knows them.
#[derive(Debug)]
pub(crate) struct Listening {
    file: PathBuf,
    sockets: BTreeMap<Inode, Listener>,
    /// Number of entries at which closed listeners are removed.
    pruned_at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    port: u16,
    /// The program's user.
    uid: u32,
}

impl Listening {
    /// Reads the file.
    pub(crate) fn read(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let one = |line: &str| {
            let mut words = line.split(' ');
            let (inode, port) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            // Older brokers wrote no user.
            let uid = words.next().map_or(Ok(0), str::parse).ok()?;
            Some((Inode(inode), Listener { port, uid }))
        };
        Self { file, sockets: text.lines().filter_map(one).collect(), pruned_at: LISTENING_FEW }
    }

    /// Adds a listener. Each time their number has doubled, closed ones are removed and the file is rewritten.
    pub(super) fn add(&mut self, socket: &impl AsFd, port: u16, uid: u32) -> io::Result<()> {
        let inode = Inode::of(socket)?;
        let listener = Listener { port, uid };
        if self.sockets.insert(inode, listener) == Some(listener) {
            return Ok(());
        }
        if self.sockets.len() < self.pruned_at {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.file)?;
            return file.write_all(line(inode, listener).as_bytes());
        }
        if let Ok(there) = listening() {
            self.sockets.retain(|inode, _| there.contains_key(&inode.0));
        }
        self.pruned_at = (2 * self.sockets.len()).max(LISTENING_FEW);
        let lines: String = self.sockets.iter().map(|(&inode, &listener)| line(inode, listener)).collect();
        fs::write(&self.file, lines)
    }

    /// The user of the listener that a connection from this node reaches, as the kernel chooses it; none: it is no listener of link.
    pub(super) fn user(&self, diag: &mut Netlink, to: SocketAddr) -> Option<u32> {
        let inode = listener_for(diag, to, SocketAddr::new(to.ip(), 0)).ok().flatten()?;
        self.sockets.get(&Inode(inode)).filter(|listener| listener.port == to.port()).map(|listener| listener.uid)
    }

    /// Whether any listener is still open. `is_here`: in this network namespace, of which the kernel lists listeners. Otherwise the
    /// descriptors of all processes are searched; a process that cannot be read counts as holding one.
    pub(crate) fn is_held(&self, is_here: bool) -> bool {
        if is_here && let Ok(there) = listening() {
            return self.sockets.keys().any(|inode| there.contains_key(&inode.0));
        }
        let is_hidden = |process: &PathBuf| {
            fs::read_dir(process.join("fd")).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_one = |fd: PathBuf| {
            let to = fs::read_link(fd).ok()?;
            let inode = Inode(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?);
            self.sockets.contains_key(&inode).then_some(())
        };
        !self.sockets.is_empty()
            && entries(PathBuf::from("/proc"))
                .any(|process| is_hidden(&process) || entries(process.join("fd")).any(|fd| is_one(fd).is_some()))
    }
}

fn line(Inode(inode): Inode, Listener { port, uid }: Listener) -> String {
    format!("{inode} {port} {uid}\n")
}

/// Local address of a socket, canonical, and whether the socket is of IPv6.
pub(super) fn local(tcp: &impl AsFd) -> Option<(SocketAddr, bool)> {
    use nix::sys::socket::{SockaddrStorage, getsockname};
    shown(&getsockname::<SockaddrStorage>(tcp.as_fd().as_raw_fd()).ok()?)
}

/// Peer address of a socket, as [`local`].
pub(super) fn peer(tcp: &impl AsFd) -> Option<(SocketAddr, bool)> {
    use nix::sys::socket::{SockaddrStorage, getpeername};
    shown(&getpeername::<SockaddrStorage>(tcp.as_fd().as_raw_fd()).ok()?)
}

fn shown(address: &nix::sys::socket::SockaddrStorage) -> Option<(SocketAddr, bool)> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    let v6 = || address.as_sockaddr_in6().map(|v6| canonical(SocketAddr::new(v6.ip().into(), v6.port())));
    v4.map(|v4| (v4, false)).or_else(|| v6().map(|v6| (v6, true)))
}

/// An address as an IPv6 socket has it, if `is_v6`.
pub(super) fn as_of(is_v6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) if is_v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// An IPv4-mapped address as one of IPv4.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
