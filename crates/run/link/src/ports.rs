//! The ports of the programs of this node.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use bpf::{GUARDED, LinkCounts, LinkPort, LinkRing, PortOwners, PortSockets};
use model::link::{LinkNode, LinkProgram};
use nix::{
    errno::Errno,
    sys::socket::{UnixCredentials, getsockopt, sockopt::PeerCredentials},
};
use transport::Endpoints;
use wire::Mac;

use sys::{
    datagram,
    dispose::{Disposed, Disposer},
};

use crate::{
    LinkError, Paths, Wire,
    claim::{MESSAGE_MAX, MessageSocket, PortReply, PortRequest},
    guard::Guard,
    orphans::Orphans,
    table::Table,
};

/// Ports of a block, from which a program connects.
const PORTS_OF_BLOCK: u16 = 64;
/// Blocks of the broker, for the sockets of programs. They are the first ones.
const BROKER_BLOCKS: u16 = 64;
/// First port of all blocks.
const FIRST_PORT: u16 = *transport::FREE_PORTS.start();
/// The ports that the broker of a node connects from for the sockets of programs. No other program of that node has them.
pub(crate) const BROKER_PORTS: std::ops::RangeInclusive<u16> =
    FIRST_PORT..=FIRST_PORT + BROKER_BLOCKS * PORTS_OF_BLOCK - 1;
/// Blocks of one user other than root: each costs the kernel some 11 MB for sockets and the ring.
const BLOCKS_OF_USER_MAX: usize = 32;
/// Blocks reserved for root.
const BLOCKS_OF_ROOT: usize = 32;
/// Connected programs of one user other than root, and of all such users: each has a thread.
const PROGRAMS_OF_USER_MAX: usize = 64;
const PROGRAMS_MAX: usize = 512;
/// Time for the first request of a program.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the ring that a program's frames wait in.
const RING_BYTES: usize = 4 << 20;
/// Ports on which a program of a user other than root listens, those of one such user, and of all of them.
const LISTENS_OF_PROGRAM_MAX: usize = 64;
const LISTENS_OF_USER_MAX: usize = 256;
const LISTENS_MAX: usize = 16_384;
/// First port on which users other than root may listen, as with TCP.
const PRIVILEGED_PORTS_END: u16 = 1024;

/// All programs of a node and their ports.
#[derive(Debug)]
pub(crate) struct Ports {
    owners: PortOwners,
    wire: Wire,
    /// The sockets of programs over UDP.
    udp: Option<PortSockets>,
    node: String,
    /// Closes connections of programs, with descriptors in flight.
    disposer: Arc<Disposer>,
    /// The XDP program that fills the programs' rings; none: they receive by sockets.
    xdp: Option<Mutex<LinkPort>>,
    /// The guard of unprivileged programs; none: they get no ports.
    guard: Option<Guard>,
    table: Mutex<PortTable>,
    /// Numbers of connected programs by user, but root.
    connected: Mutex<HashMap<u32, usize>>,
    /// Connections of ended programs, whose peers have to be notified.
    orphans: Mutex<Orphans>,
    /// The other nodes, by address.
    nodes: Mutex<Vec<LinkNode>>,
}

#[derive(Debug)]
struct PortTable {
    /// Free blocks, the last one that was released at the end: late frames for its old owner should not meet a new one.
    free: VecDeque<u16>,
    /// File with the number of the next block, for the next broker.
    next_block: PathBuf,
    /// The broker's own blocks are free.
    is_own_free: bool,
    /// Owners so far. Each program is a new owner, as an old one may have kept its sockets.
    owners: u32,
    /// Block of the listener by port.
    listening: BTreeMap<u16, u16>,
    programs: BTreeMap<u16, LinkProgram>,
}

impl PortTable {
    /// The limit that an unprivileged program has reached; none: it may listen on one more port.
    fn listen_limit(&self, at: u16) -> Option<String> {
        let program = self.programs.get(&at)?;
        let sum = |is_meant: &dyn Fn(&LinkProgram) -> bool| {
            self.programs.values().filter(|p| is_meant(p)).map(|p| p.listening_ports.len()).sum::<usize>()
        };
        let uid = program.uid;
        match () {
            () if program.listening_ports.len() >= LISTENS_OF_PROGRAM_MAX => {
                Some(format!("a program listens on at most {LISTENS_OF_PROGRAM_MAX} ports"))
            }
            () if sum(&|p| p.uid == uid) >= LISTENS_OF_USER_MAX => Some(format!(
                "programs of user {uid} listen on {LISTENS_OF_USER_MAX} ports, the most that one user has"
            )),
            () if sum(&|p| p.uid != 0) >= LISTENS_MAX => Some(format!(
                "programs of users other than root listen on {LISTENS_MAX} ports, the most that they have"
            )),
            () => None,
        }
    }
}

impl Ports {
    /// With `others`, unprivileged programs get ports, too.
    pub(crate) fn new(wire: Wire, node: &str, xdp: Option<LinkPort>, others: bool) -> Result<Self, LinkError> {
        // Programs that outlived the last broker still use ports of it: those blocks come last.
        let mut free: VecDeque<u16> = (BROKER_BLOCKS..=(u16::MAX - FIRST_PORT) / PORTS_OF_BLOCK).collect();
        let next_block = Paths::here().next_block();
        let next =
            fs::read_to_string(&next_block).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(BROKER_BLOCKS);
        free.rotate_left(usize::from(next.saturating_sub(BROKER_BLOCKS)) % free.len());
        let table = PortTable {
            free,
            next_block,
            is_own_free: true,
            owners: 0,
            listening: BTreeMap::new(),
            programs: BTreeMap::new(),
        };
        let owners = PortOwners::new()?;
        let udp = wire.udp.is_some().then(|| owners.sockets()).transpose()?;
        let guard = others.then(|| Guard::start(&owners, &wire)).transpose()?;
        Ok(Self {
            owners,
            guard,
            udp,
            wire,
            node: node.to_owned(),
            disposer: Arc::new(
                Disposer::start().map_err(|source| LinkError::System { operation: "start a thread", source })?,
            ),
            xdp: xdp.map(Mutex::new),
            table: Mutex::new(table),
            connected: Mutex::default(),
            orphans: Mutex::default(),
            nodes: Mutex::default(),
        })
    }

    pub(crate) const fn disposer(&self) -> &Arc<Disposer> {
        &self.disposer
    }

    pub(crate) const fn is_over_udp(&self) -> bool {
        self.udp.is_some()
    }

    /// The socket filter that passes frames for no program.
    pub(crate) fn unowned_filter(&self) -> impl AsFd {
        self.owners.rest()
    }

    /// A socket of an owner over UDP, 0 for the broker; none: the carrier is Ethernet.
    pub(crate) fn udp_socket(&self, owner: u32) -> Result<Option<OwnedFd>, LinkError> {
        let (Some(at), Some(sockets)) = (self.wire.udp, &self.udp) else { return Ok(None) };
        let failed = |source| LinkError::System { operation: "share the port of UDP", source };
        let socket = self.wire.udp_socket(at)?;
        datagram::choose_by(&socket, sockets.program()).map_err(failed)?;
        datagram::lock(&socket).map_err(failed)?;
        sockets.set(owner, &socket)?;
        Ok(Some(socket))
    }

    /// The sockets of a program for receiving and sending, and the cookies of guarded ones.
    fn sockets(&self, owner: u32) -> Result<([OwnedFd; 2], Vec<u64>), LinkError> {
        let owned = |fd: io::Result<OwnedFd>| {
            fd.map_err(|source| LinkError::System { operation: "duplicate a socket", source })
        };
        if let Some(socket) = self.udp_socket(owner)? {
            return Ok(([owned(socket.try_clone())?, socket], Vec::new()));
        }
        let filter = self.owners.filter(owner)?;
        let (receives, sends, cookies) = match &self.guard {
            Some(guard) if owner & GUARDED != 0 => guard.sockets(filter.as_fd(), owner)?,
            _ => {
                let (receives, sends) = self.wire.sockets(Some(filter.as_fd()))?;
                (receives, sends, Vec::new())
            }
        };
        let fds = [receives.as_fd(), sends.as_fd()].map(|fd| owned(fd.try_clone_to_owned()));
        let [receives, sends] = fds;
        Ok(([receives?, sends?], cookies))
    }

    fn xdp(&self) -> Option<MutexGuard<'_, LinkPort>> {
        self.xdp.as_ref().map(|port| port.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counters of the XDP program, if there is one.
    pub(crate) fn counts(&self) -> Result<Option<LinkCounts>, LinkError> {
        Ok(self.xdp().map(|port| port.counts()).transpose()?)
    }

    /// Dropped frames of unprivileged programs with another program's source; none: such programs have no ports.
    pub(crate) fn forged(&self) -> Option<u64> {
        self.guard.as_ref().and_then(|guard| guard.refused().ok())
    }

    /// Warning that unprivileged programs can exhaust kernel memory by their sockets; none: they cannot.
    pub(crate) fn unbounded(&self) -> Option<String> {
        self.guard.as_ref()?.unbounded()
    }

    /// The orphans whose peers are notified in this poll of the broker.
    pub(crate) fn next_orphans(&self) -> Vec<Endpoints<Mac>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    /// Cuts unprivileged programs off.
    pub(crate) fn close(&self) {
        self.guard.iter().for_each(Guard::close);
        let table = self.table();
        // No program lives on with ports that the next broker could give.
        if table.programs.keys().all(|&at| at == 0) {
            let _ = fs::remove_file(&table.next_block);
        }
    }

    /// False if another tool has detached the XDP program. Does not wait while it is locked (tens of milliseconds).
    pub(crate) fn is_alive(&self) -> bool {
        let Some(port) = &self.xdp else { return true };
        port.try_lock().map_or(true, |port| port.slot().is_alive())
    }

    /// Attaches the XDP program again if others have detached it; returns a message then. Does not wait while it is locked.
    pub(crate) fn put_back(&self) -> Option<String> {
        self.xdp.as_ref()?.try_lock().ok()?.slot().put_back()
    }

    /// Sets the nodes that programs can look up.
    pub(crate) fn set_nodes(&self, mut nodes: Vec<LinkNode>) {
        nodes.sort_by(|a, b| a.address.cmp(&b.address));
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// Nodes whose addresses sort after `address`, as many as a message holds.
    fn nodes_behind(&self, address: &str) -> Vec<LinkNode> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = nodes.iter().skip_while(|node| node.address.as_str() <= address);
        page(behind)
    }

    fn table(&self) -> MutexGuard<'_, PortTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn programs(&self) -> Vec<LinkProgram> {
        self.table().programs.values().cloned().collect()
    }

    /// Serves a program on a thread, until it disconnects.
    pub(crate) fn serve(self: &Arc<Self>, stream: OwnedFd) -> io::Result<()> {
        let stream = Disposed::new(stream, &self.disposer);
        let who = getsockopt(&stream, PeerCredentials)?;
        let Some(slot) = ProgramSlot::take(self, who.uid()) else {
            let why = "this user has too many connections to the broker, or all users together have".to_owned();
            let refused = PortReply::Refused(Errno::EUSERS as i32, why);
            let socket = MessageSocket::new(stream.into_inner());
            let sent = socket.send(&refused, &[]);
            self.disposer.dispose(socket.into());
            return sent;
        };
        let ports = Arc::clone(self);
        thread::Builder::new().name("ek-claim".into()).spawn(move || {
            // Invalid requests get no reply.
            let _ = ports.serve_requests(stream.into_inner(), who);
            drop(slot);
        })?;
        Ok(())
    }

    fn serve_requests(self: Arc<Self>, stream: OwnedFd, who: UnixCredentials) -> Result<(), LinkError> {
        let failed = |source| LinkError::System { operation: "talk to a program", source };
        let socket = MessageSocket::new(stream);
        socket.set_receive_timeout(Some(FIRST_REQUEST_TIMEOUT)).map_err(failed)?;
        let mut block = None;
        while let Some((request, _)) = socket.receive::<PortRequest>().map_err(failed)? {
            socket.set_receive_timeout(None).map_err(failed)?;
            let reply = match (&block, request) {
                (None, PortRequest::Ports) if who.uid() != 0 && self.guard.is_none() => PortReply::Refused(
                    Errno::EACCES as i32,
                    "only root's programs may have ports of this broker".to_owned(),
                ),
                (None, PortRequest::Ports) => match self.allocate(who.pid(), who.uid()) {
                    Err(why) => PortReply::Refused(Errno::EADDRNOTAVAIL as i32, why),
                    Ok(allocated) => {
                        let block = block.insert(allocated);
                        let owner = block.owner;
                        let ([receives, sends], cookies) = self.sockets(owner)?;
                        block.cookies = cookies;
                        let (first, last) = block.range();
                        for port in first..=last {
                            self.owners.set(port, owner)?;
                        }
                        block.ring = self.xdp().map(|mut port| port.endpoint(first..=last, RING_BYTES)).transpose()?;
                        let ports = PortReply::Ports {
                            first,
                            last,
                            wire: self.wire.clone(),
                            node: self.node.clone(),
                            ring: block.ring.is_some(),
                        };
                        let table = Table::new().map_err(failed)?;
                        let sockets = [receives.as_fd(), sends.as_fd()];
                        let rings = block.ring.as_ref().map(LinkRing::descriptors);
                        let fds = sockets.into_iter().chain(rings.into_iter().flatten()).chain([table.as_fd()]);
                        let fds = fds.map(|fd| fd.as_raw_fd());
                        socket.send(&ports, &fds.collect::<Vec<_>>()).map_err(failed)?;
                        block.table = Some(table);
                        continue;
                    }
                },
                (Some(block), PortRequest::Listen(port)) => self.listen(block, port, who.uid() == 0)?,
                (Some(block), PortRequest::StopListening(port)) => {
                    self.stop_listening(block.at, port)?;
                    PortReply::Done
                }
                (Some(_), PortRequest::Nodes(behind)) => PortReply::Nodes(self.nodes_behind(&behind)),
                _ => PortReply::Refused(Errno::EPROTO as i32, "ports come first, and once".to_owned()),
            };
            socket.send(&reply, &[]).map_err(failed)?;
        }
        Ok(())
    }

    fn allocate(self: &Arc<Self>, pid: i32, uid: u32) -> Result<Block, String> {
        let mut table = self.table();
        let of_user = table.programs.values().filter(|program| program.uid == uid).count();
        if uid != 0 && of_user >= BLOCKS_OF_USER_MAX {
            return Err(format!("{of_user} programs of user {uid} have ports: one user has no more"));
        }
        let reserved = if uid == 0 { 0 } else { BLOCKS_OF_ROOT };
        let all = || "all ports of this node are taken".to_owned();
        let is_own = pid.cast_unsigned() == std::process::id() && std::mem::take(&mut table.is_own_free);
        let at = if is_own {
            0
        } else {
            let free = (table.free.len() > reserved).then(|| table.free.pop_front()).flatten();
            free.ok_or_else(all)?
        };
        if !is_own {
            // Without it the next broker may give ports of a program that lives on.
            let _ = fs::write(&table.next_block, format!("{}\n", at + 1));
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let guarded = uid != 0 && self.udp.is_none();
        let program = LinkProgram {
            name: name.trim().to_owned(),
            pid: pid.cast_unsigned(),
            uid,
            listening_ports: Vec::new(),
            guarded,
        };
        table.programs.insert(at, program);
        table.owners = (table.owners + 1) % GUARDED;
        // Over UDP the owner is an index of a map.
        let owner = match &self.udp {
            Some(_) => u32::from(at) + 1,
            None => table.owners.max(1) | if guarded { GUARDED } else { 0 },
        };
        Ok(Block { at, owner, ports: Arc::clone(self), ring: None, cookies: Vec::new(), table: None })
    }

    fn listen(&self, block: &Block, port: u16, is_root: bool) -> Result<PortReply, LinkError> {
        let mut table = self.table();
        if let (false, Some(why)) = (is_root, table.listen_limit(block.at)) {
            return Ok(PortReply::Refused(Errno::EADDRNOTAVAIL as i32, why));
        }
        Ok(match table.listening.get(&port) {
            _ if port == 0 || port >= FIRST_PORT => PortReply::Refused(
                Errno::EADDRNOTAVAIL as i32,
                format!("programs listen on ports from 1 to {}", FIRST_PORT - 1),
            ),
            _ if port < PRIVILEGED_PORTS_END && !is_root => {
                PortReply::Refused(Errno::EACCES as i32, format!("only root listens below {PRIVILEGED_PORTS_END}"))
            }
            Some(_) => PortReply::Refused(Errno::EADDRINUSE as i32, format!("somebody listens on port {port} already")),
            None => {
                self.owners.set(port, block.owner)?;
                if let (Some(mut xdp), Some(ring)) = (self.xdp(), &block.ring) {
                    xdp.join(port, ring)?;
                }
                table.listening.insert(port, block.at);
                if let Some(program) = table.programs.get_mut(&block.at) {
                    program.listening_ports.push(port);
                }
                PortReply::Done
            }
        })
    }

    fn stop_listening(&self, at: u16, port: u16) -> Result<(), LinkError> {
        let mut table = self.table();
        if table.listening.get(&port) == Some(&at) {
            table.listening.remove(&port);
            if let Some(program) = table.programs.get_mut(&at) {
                program.listening_ports.retain(|&other| other != port);
            }
            if let Some(mut xdp) = self.xdp() {
                xdp.remove([port]);
            }
            self.owners.set(port, 0)?;
        }
        Ok(())
    }
}

/// A connected program, counted for its user.
struct ProgramSlot(Arc<Ports>, u32);

impl ProgramSlot {
    /// None: too many. Root's programs have no limit.
    fn take(ports: &Arc<Ports>, uid: u32) -> Option<Self> {
        let mut connected = ports.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let (of_user, all) = (connected.get(&uid).copied().unwrap_or(0), connected.values().sum::<usize>());
        if uid != 0 && (of_user >= PROGRAMS_OF_USER_MAX || all >= PROGRAMS_MAX) {
            return None;
        }
        if uid != 0 {
            connected.insert(uid, of_user + 1);
        }
        Some(Self(Arc::clone(ports), uid))
    }
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        let mut connected = self.0.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = connected.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                connected.remove(&self.1);
            }
        }
    }
}

/// The ports of one program.
struct Block {
    at: u16,
    /// Owner of the ports.
    owner: u32,
    ports: Arc<Ports>,
    /// The program's ring, of ports that it listens on, too.
    ring: Option<LinkRing>,
    cookies: Vec<u64>,
    /// The program's open connections, as it has entered them.
    table: Option<Table>,
}

impl Block {
    fn range(&self) -> (u16, u16) {
        let blocks = if self.at == 0 { BROKER_BLOCKS } else { 1 };
        let first = FIRST_PORT + self.at * PORTS_OF_BLOCK;
        // The last block ends with port 65535.
        (first, first + (blocks * PORTS_OF_BLOCK - 1))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(guard) = &self.ports.guard {
            guard.expel(&self.cookies);
        }
        let (first, last) = self.range();
        let (is_root, listened) = self
            .ports
            .table()
            .programs
            .get(&self.at)
            .map_or((false, Vec::new()), |program| (program.uid == 0, program.listening_ports.clone()));
        self.ring.iter().for_each(LinkRing::close);
        // The kernel waits here, without the table's lock: the ports stay this program's until it is done.
        if let Some(mut xdp) = self.ports.xdp() {
            xdp.remove((first..=last).chain(listened.iter().copied()));
        }
        let mut table = self.ports.table();
        table.programs.remove(&self.at);
        for port in (first..=last).chain(listened.iter().copied()) {
            table.listening.remove(&port);
            // Owner 0: the port is refused from now on.
            let _ = self.ports.owners.set(port, 0);
        }
        // The peers' replies go to the broker from here on. The program could have written anything.
        let mut orphans = self.table.as_ref().and_then(|table| table.read().ok()).unwrap_or_default();
        orphans.retain(|ends| (first..=last).contains(&ends.port) || listened.contains(&ends.port));
        self.ports.orphans.lock().unwrap_or_else(PoisonError::into_inner).add(is_root, orphans);
        if let Some(udp) = &self.ports.udp {
            udp.remove(self.owner);
        }
        match self.at {
            0 => table.is_own_free = true,
            at => table.free.push_back(at),
        }
    }
}

/// As many nodes as a message holds, at least one if there is any: a name of 255 bytes takes at most six times that as JSON.
fn page<'a>(nodes: impl Iterator<Item = &'a LinkNode>) -> Vec<LinkNode> {
    const OVERHEAD_BYTES: usize = 32;
    let mut bytes = OVERHEAD_BYTES;
    nodes
        .take_while(|node| {
            bytes += serde_json::to_vec(node).map_or(MESSAGE_MAX, |text| text.len() + 1);
            bytes <= MESSAGE_MAX
        })
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_nodes_have_all_and_fit() {
        let name = |at: usize| if at.is_multiple_of(3) { "\u{1}".repeat(255) } else { format!("node{at}") };
        let nodes: Vec<LinkNode> =
            (0..300).map(|at| LinkNode { name: name(at), address: format!("{at:04}"), epoch: u32::MAX }).collect();
        let mut rest = &nodes[..];
        while !rest.is_empty() {
            let page = page(rest.iter());
            assert!(!page.is_empty() && page[..] == rest[..page.len()]);
            rest = &rest[page.len()..];
            assert!(serde_json::to_vec(&PortReply::Nodes(page)).unwrap().len() <= MESSAGE_MAX);
        }
    }
}
