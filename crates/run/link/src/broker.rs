//! The broker of a node: it answers for its name, gives programs their ports, and tells others when a program is gone.

mod paths;
mod service;

use std::{
    collections::HashMap,
    fs, io,
    net::SocketAddr,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{PermissionsExt, chown},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bpf::{LinkCounts, LinkPort, LinkSettings, XdpMode, runs_native_xdp};
use model::link::{LinkDelivery, LinkNode, LinkOtherVersion, LinkRefused, LinkStatus};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket},
    sys::stat::{Mode, fchmod},
};
use serde::{Deserialize, Serialize};
use serve::{ServeError, Wait};
use sys::{
    dispose::{Disposed, Disposer},
    privilege::drop_all_but,
    worker::Worker,
};
use transport::{Ends, NodeCounts, VERSION};

pub use paths::{Held, Paths, clear_dead, dead};
pub use service::{BrokerOptions, BrokerService};

use crate::{
    Address, BrokerCarrier, Engine, LinkError, Raw, UDP_PORT, Udp, UdpSettings, Wire, carrier::Carrier, engine::SLOTS,
    news::Told, pings::Pings, ports::Ports, rights, sockets::Known,
};

/// A command waits at most this long, and programs that ask for ports.
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// How often the list of nodes is made anew while it changes, and what is to be told of them looked for.
const LISTED: Duration = Duration::from_millis(200);
/// The same while it does not: nodes fall silent.
const LISTED_AGAIN: Duration = Duration::from_secs(1);
/// A broker that was asked to end may take so long to.
const END: Duration = Duration::from_secs(5);
/// Characters of a sentence of another node.
const SENTENCE_MAX: usize = 200;
/// How often all nodes are asked for their names.
const HELLO: Duration = Duration::from_secs(5);
/// A node that has not answered for so long is not shown any more.
const HEARD: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Status,
    /// How long a probe of so many bytes takes to a node and back.
    Ping {
        address: String,
        /// Bytes behind the header.
        bytes: u16,
        /// How long to wait for the answer.
        timeout: Duration,
    },
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    Status(Box<LinkStatus>),
    /// Nanoseconds there and back; none: no answer came in time.
    Ping(Option<u64>),
    Done,
    /// Not done, and why.
    Refused(String),
}

/// Asks the broker of this network namespace.
///
/// # Errors
/// [`LinkError::NoBroker`] if there is none; it does not answer.
pub fn ask(command: &Command) -> Result<Answer, LinkError> {
    serve::control::ask(&Paths::here().control(), command)?.ok_or(LinkError::NoBroker)
}

/// Ends the broker of this network namespace; it is gone when this comes back. One that does not answer is killed.
///
/// # Errors
/// [`LinkError::NoBroker`] if there is none; it cannot be ended.
pub fn end() -> Result<(), LinkError> {
    match ask(&Command::Stop) {
        Err(LinkError::Serve(silent @ ServeError::Silent { .. })) => {
            serve::control::end_silent(silent)?;
        }
        answer => drop(answer?),
    }
    let asked = Instant::now();
    // Its lock is free once it is gone.
    loop {
        match Paths::here().lock() {
            Err(LinkError::Serves { .. }) if asked.elapsed() < END => thread::sleep(POLL_PERIOD),
            lock => return lock.map(drop),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// The interface to the other nodes.
    pub interface: String,
    pub name: String,
    /// The group whose programs may have ports; none: root's alone.
    pub group: Option<u32>,
    /// How frames of programs come over plain Ethernet.
    pub xdp: Receive,
    /// Behind UDP instead; none: over plain Ethernet.
    pub udp: Option<UdpSettings>,
}

/// How frames come to the programs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Receive {
    /// By rings out of the XDP hook where the driver runs programs, else by sockets.
    #[default]
    Auto,
    /// By rings, in that mode.
    Xdp(XdpMode),
    Sockets,
}

#[derive(Debug)]
pub struct Broker {
    settings: BrokerSettings,
    carried: String,
    wire: Wire,
    engine: Engine<BrokerCarrier>,
    ports: Arc<Ports>,
    claims: Option<Worker>,
    began: Instant,
    /// What was told of already.
    told: Told,
    pings: Pings,
    known: Known,
    done: Done,
}

/// When the broker last did what it does again and again.
#[derive(Debug, Default)]
struct Done {
    hello: Option<Instant>,
    list: Option<Instant>,
    put_back: Option<Instant>,
    news: Option<Instant>,
    /// The changes of nodes that are in the list.
    changes: u64,
}

/// Whether so much time has passed.
fn is_due(done: Option<Instant>, period: Duration) -> bool {
    done.is_none_or(|at| at.elapsed() >= period)
}

impl Broker {
    /// Begins to answer other nodes, and programs of this one.
    ///
    /// # Errors
    /// CAP_NET_RAW or CAP_BPF lacks; the interface carries no messages.
    pub fn start(settings: BrokerSettings, held: &Held) -> Result<Self, LinkError> {
        let (wire, carried, ports, carrier) = match &settings.udp {
            None => over_ethernet(&settings)?,
            Some(udp) => behind_udp(&settings, udp)?,
        };
        let engine = Engine::with_ports(carrier, &settings.name, SLOTS, 0..=0)?;
        let claims = listen_for_claims(&held.paths().claims(), settings.group, &ports)?;
        let began = Instant::now();
        Ok(Self {
            settings,
            carried,
            wire,
            engine,
            ports,
            claims: Some(claims),
            began,
            told: Told::default(),
            pings: Pings::default(),
            known: Known::default(),
            done: Done::default(),
        })
    }

    /// What it shares with the carrier of the sockets of programs ([`crate::sockets::Sockets`]).
    pub fn known(&self) -> Known {
        self.known.clone()
    }

    /// The thread that releases sockets with descriptors of programs in flight to them.
    pub fn disposer(&self) -> &Arc<Disposer> {
        self.ports.disposer()
    }

    /// Frames of programs of other users than root that were not let out, as they were in the name of others; none: those have no ports.
    pub fn forged(&self) -> Option<u64> {
        self.ports.forged()
    }

    /// The warning that members of the group can take the kernel's memory by rings of their sockets; none: they cannot, or there is no group.
    pub fn unbounded(&self) -> Option<String> {
        self.ports.unbounded()
    }

    /// How frames come to programs, in words.
    pub fn carried(&self) -> &str {
        &self.carried
    }

    /// Serves until `stop` is set, without answering commands ([`BrokerService`] does); tells of what happens.
    pub fn run(&mut self, stop: &AtomicBool, mut told: impl FnMut(String)) -> Result<(), LinkError> {
        while !stop.load(Ordering::Relaxed) {
            self.engine.wait(Duration::ZERO, POLL_PERIOD)?;
            self.poll(&mut told)?;
        }
        Ok(())
    }

    /// Does what is due; tells of what happens.
    fn poll(&mut self, mut told: impl FnMut(String)) -> Result<(), LinkError> {
        if is_due(self.done.hello, HELLO) {
            self.engine.hello()?;
            self.done.hello = Some(Instant::now());
        }
        self.engine.poll()?;
        self.pings.turn(&mut self.engine);
        for Ends { peer, port, peer_port, peer_number, epoch } in self.ports.left() {
            self.engine.ask_for(&Ends { peer: peer.into(), port, peer_port, peer_number, epoch })?;
        }
        // However many frames come.
        let is_new = self.engine.peer_changes() != self.done.changes;
        if is_due(self.done.list, if is_new { LISTED } else { LISTED_AGAIN }) {
            self.list_nodes();
        }
        if is_due(self.done.put_back, POLL_PERIOD) {
            self.ports.put_back().into_iter().for_each(&mut told);
            self.done.put_back = Some(Instant::now());
        }
        if is_due(self.done.news, LISTED) {
            let all = self.news();
            self.told.tell(Instant::now(), all, &mut told);
            self.done.news = Some(Instant::now());
        }
        Ok(())
    }

    /// Waits for frames, and for what is due every [`POLL_PERIOD`].
    fn wait(&mut self) -> Result<Wait<'_>, LinkError> {
        let period = if self.engine.arm()? { POLL_PERIOD } else { Duration::ZERO };
        Ok(Wait { until: Instant::now() + period, readable: vec![self.engine.descriptor()?] })
    }

    /// Gives programs the nodes that are heard now.
    fn list_nodes(&mut self) {
        self.known.lock().nodes = names(&self.engine);
        self.ports.set_nodes(nodes(&self.engine, Some(HEARD)));
        (self.done.changes, self.done.list) = (self.engine.peer_changes(), Some(Instant::now()));
    }

    /// What an operator has to know of other nodes.
    fn news(&self) -> Vec<String> {
        let name = &self.settings.name;
        let alike = self.same_name().into_iter();
        let alike = alike.map(|other| format!("{other} has the name {name} too: give one of them another with --name"));
        let others = self.engine.other_versions();
        let others = others.map(|(at, other)| {
            format!(
                "{at} speaks version {} of the protocol, and this node {VERSION}: run one version on all",
                other.version
            )
        });
        let gone = (!self.ports.is_alive()).then(|| {
            format!("the XDP program of {} is gone: programs receive through packet sockets", self.wire.interface)
        });
        let down = self
            .engine
            .carrier()
            .is_down()
            .then(|| format!("{} is down: connections wait for it", self.wire.interface));
        alike.chain(others).chain(gone).chain(down).collect()
    }

    fn same_name(&self) -> Vec<String> {
        let alike = self.engine.namesakes().into_iter().filter(|names| names.this_node);
        alike.flat_map(|names| names.addresses).map(|address| address.to_string()).collect()
    }

    fn status(&self) -> LinkStatus {
        let (connections, over_tcp) = self.known.connections();
        let (allowed, allowed_by_default) = self.known.allowed();
        LinkStatus {
            node: self.settings.name.clone(),
            interface: self.wire.interface.clone(),
            address: self.wire.node().to_string(),
            payload_max: self.wire.payload_max,
            uptime_s: self.began.elapsed().as_secs_f64(),
            carrier: self.carried.clone(),
            nodes: nodes(&self.engine, Some(HEARD)),
            programs: self.ports.programs(),
            forged: self.ports.forged(),
            memory_unbounded: self.ports.unbounded(),
            connections,
            tcp_fallbacks: over_tcp,
            allowed,
            allowed_by_default,
            duplicate_names: self.same_name(),
            other_versions: self
                .engine
                .other_versions()
                .map(|(at, other)| LinkOtherVersion { address: at.to_string(), version: other.version })
                .collect(),
            delivery: self.ports.counts().ok().flatten().map(delivery),
            refused: refused(self.engine.node_counts()),
        }
    }
}

type Begun = (Wire, String, Arc<Ports>, BrokerCarrier);

fn over_ethernet(settings: &BrokerSettings) -> Result<Begun, LinkError> {
    let wire = Wire::of(&settings.interface)?;
    let (port, carried) = attach(settings)?;
    let ports = Arc::new(Ports::new(wire.clone(), &settings.name, port, settings.group.is_some())?);
    let (socket, out) = wire.sockets(Some(ports.rest().as_fd()))?;
    let raw = Raw::with(wire.clone(), socket, out);
    Ok((wire, carried, ports, raw.into()))
}

fn behind_udp(settings: &BrokerSettings, udp: &UdpSettings) -> Result<Begun, LinkError> {
    let (wire, all) = Wire::of_udp(&settings.interface, udp)?;
    let ports = Arc::new(Ports::new(wire.clone(), &settings.name, None, false)?);
    let own = ports.udp_socket(0)?.ok_or_else(|| LinkError::NoIp { interface: settings.interface.clone() })?;
    let group = all.map(|at| wire.udp_socket(at)).transpose()?;
    let peers = udp.peers.iter().map(|&ip| SocketAddr::new(ip, UDP_PORT));
    let everyone = all.into_iter().chain(peers).collect();
    let carrier = Udp::of(wire.clone(), own, group, everyone).into();
    Ok((wire, format!("UDP sockets (port {UDP_PORT})"), ports, carrier))
}

/// The program that fills rings, and in words how frames come.
fn attach(settings: &BrokerSettings) -> Result<(Option<LinkPort>, String), LinkError> {
    let interface = &settings.interface;
    let sockets = |why: &str| Ok((None, format!("packet sockets ({why})")));
    let mode = match settings.xdp {
        Receive::Sockets => return sockets("as asked for"),
        Receive::Auto if matches!(runs_native_xdp(interface), Ok(Some(false))) => {
            return sockets("the driver runs no XDP program in native mode");
        }
        Receive::Auto => XdpMode::Native,
        Receive::Xdp(mode) => mode,
    };
    // Whoever reads a ring looks at the checksums.
    match LinkPort::attach(interface, mode, LinkSettings { checked: false, answers_on_veth: false }) {
        Ok(port) => {
            let mode = port.mode();
            Ok((Some(port), format!("shared rings filled by XDP ({mode})")))
        }
        Err(error) if settings.xdp == Receive::Auto => sockets(&error.to_string()),
        Err(error) => Err(error.into()),
    }
}

fn delivery(counts: LinkCounts) -> LinkDelivery {
    let bad = counts.too_short + counts.too_long + counts.checksum + counts.kind;
    let LinkCounts { delivered, answered, no_endpoint, full, .. } = counts;
    LinkDelivery { delivered, answered, to_broker: no_endpoint, ring_full: full, bad }
}

fn refused(counts: NodeCounts) -> LinkRefused {
    let NodeCounts { short, version, kind, checksum, unknown, refused, busy, half_open, .. } = counts;
    LinkRefused { short, version, kind, checksum, unknown, refused, busy, half_open }
}

/// A sentence of another node as it is shown: of one line, and not long.
pub(crate) fn one_sentence(text: &str) -> String {
    text.chars().take(SENTENCE_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A name as it is shown: any node can send one with line ends and blanks, which would look like other rows.
fn one_line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || c.is_whitespace() { '?' } else { c }).collect()
}

fn names(engine: &Engine<BrokerCarrier>) -> HashMap<Address, String> {
    let heard = engine.peers().filter(|(_, peer)| !peer.name.is_empty() && engine.since(peer.heard) <= HEARD);
    heard.map(|(&at, peer)| (at, one_line(&peer.name))).collect()
}

/// The nodes that said hello, by name; those alone that did within `within`.
pub fn nodes(engine: &Engine<BrokerCarrier>, within: Option<Duration>) -> Vec<LinkNode> {
    let is_shown = |heard: Duration| within.is_none_or(|within| heard <= within);
    let heard = engine.peers().filter(|(_, peer)| !peer.name.is_empty() && is_shown(engine.since(peer.heard)));
    let node = |(address, peer): (&Address, &transport::Peer)| LinkNode {
        name: one_line(&peer.name),
        address: address.to_string(),
        epoch: peer.epoch,
    };
    let mut nodes: Vec<LinkNode> = heard.map(node).collect();
    nodes.sort_by(|a, b| (&a.name, &a.address).cmp(&(&b.name, &b.address)));
    nodes
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.claims.take());
        self.ports.close();
    }
}

fn listen_for_claims(path: &Path, group: Option<u32>, ports: &Arc<Ports>) -> Result<Worker, LinkError> {
    let failed = |source| LinkError::System { operation: "listen for programs in /run/evenkeel-link", source };
    // The lock is ours: what is there is of one that was killed.
    let _ = fs::remove_file(path);
    // Connections that nobody has accepted go with it.
    let listener = Disposed::new(claims_socket(path, group).map_err(failed)?, ports.disposer());
    let ports = Arc::clone(ports);
    let keeps = rights::kept(group.is_some(), ports.is_behind_udp());
    let (to, dropped) = mpsc::sync_channel(1);
    let listens = move |stop: &AtomicBool| {
        let done = drop_all_but(&keeps);
        let may_listen = done.is_ok();
        if to.send(done).is_err() || !may_listen {
            return;
        }
        while !stop.load(Ordering::Relaxed) {
            let mut waits = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let time = PollTimeout::try_from(POLL_PERIOD).unwrap_or(PollTimeout::ZERO);
            if poll(&mut waits, time).unwrap_or(0) > 0
                && let Ok(fd) = sys::fds::accept(&listener)
            {
                // A program that finds no thread asks again.
                let _ = ports.serve(fd);
            }
        }
    };
    let claims = Worker::start("ek-claims", listens).map_err(failed)?;
    dropped
        .recv()
        .map_err(|_| failed(io::Error::other("its thread ended")))?
        .map_err(|e| failed(io::Error::other(e)))?;
    Ok(claims)
}

fn claims_socket(path: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    // The file has its mode from the beginning, whatever the umask.
    fchmod(&fd, Mode::from_bits_truncate(0o600))?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    chown(path, None, group)?;
    fs::set_permissions(path, fs::Permissions::from_mode(if group.is_some() { 0o660 } else { 0o600 }))?;
    listen(&fd, Backlog::new(64)?)?;
    Ok(fd)
}
