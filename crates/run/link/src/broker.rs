//! The broker of a node: answers for its name, gives ports to programs, and notifies the peers of ended programs.

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
use transport::{Endpoints, NodeCounts, VERSION};

pub use paths::{Held, Paths, clear_dead, dead, unknown};
pub use service::{BrokerOptions, BrokerService};

use crate::{
    Address, BrokerCarrier, Engine, LinkError, Raw, UDP_PORT, Udp, UdpSettings, Wire, carrier::Carrier,
    engine::SLOT_COUNT, log::Warnings, pings::Pings, ports::Ports, rights, sockets::Known,
};

/// Time between two polls for commands and for requests of programs.
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// Time between two updates of the list of nodes while it changes, and of the warnings.
const LIST_PERIOD: Duration = Duration::from_millis(200);
/// Time between two updates of an unchanged list, from which silent nodes time out.
const LIST_IDLE_PERIOD: Duration = Duration::from_secs(1);
/// Characters shown of a message of another node.
const MESSAGE_CHARS_MAX: usize = 200;
/// Time between two hellos to all nodes.
const HELLO_PERIOD: Duration = Duration::from_secs(5);
/// Silence after which a node is not listed.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);

/// A command to the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Status,
    /// Measures the round trip of a probe to a node.
    Ping {
        address: String,
        /// Payload bytes.
        bytes: u16,
        /// Time to wait for the answer.
        timeout: Duration,
    },
    Stop,
}

/// The broker's answer to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    Status(Box<LinkStatus>),
    /// Round trip in nanoseconds; none: it timed out.
    Ping(Option<u64>),
    Done,
    /// The command was refused, for this reason.
    Refused(String),
}

/// Sends a command to the broker of this network namespace.
///
/// # Errors
/// [`LinkError::NoBroker`] if there is none; the broker does not answer in time, or its folder was removed.
pub fn ask(command: &Command) -> Result<Answer, LinkError> {
    let socket = Paths::here().control();
    let none = || serve::lost(&socket).map_or(LinkError::NoBroker, LinkError::from);
    serve::control::ask(&socket, command)?.ok_or_else(none)
}

/// Stops the broker of this network namespace, and waits for its exit. A broker that does not answer is killed.
///
/// # Errors
/// [`LinkError::NoBroker`] if there is none; it does not exit.
pub fn stop() -> Result<(), LinkError> {
    let paths = Paths::here();
    let before = paths.holder();
    match ask(&Command::Stop) {
        Err(LinkError::Serve(silent @ ServeError::Silent { .. })) => {
            serve::control::end_silent(silent)?;
        }
        answer => drop(answer?),
    }
    paths.lock_after(before.as_deref()).map(drop)
}

/// Settings of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// Interface to the other nodes.
    pub interface: String,
    /// Name of this node.
    pub name: String,
    /// Group whose programs may have ports; none: root's programs only.
    pub group: Option<u32>,
    /// Receive path of programs over Ethernet.
    pub xdp: Receive,
    /// Settings of UDP as the carrier; none: Ethernet.
    pub udp: Option<UdpSettings>,
}

/// Receive path of the programs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Receive {
    /// Rings filled by XDP where the driver supports native mode, else sockets.
    #[default]
    Auto,
    /// Rings filled by XDP in this mode.
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
    warnings: Warnings,
    pings: Pings,
    known: Known,
    last: LastRun,
}

/// Time of the last run of each periodic task.
#[derive(Debug, Default)]
struct LastRun {
    hello: Option<Instant>,
    list: Option<Instant>,
    put_back: Option<Instant>,
    warnings: Option<Instant>,
    /// Count of peer changes at the last list.
    peer_changes: u64,
}

/// True if `period` has passed since `last`.
fn is_due(last: Option<Instant>, period: Duration) -> bool {
    last.is_none_or(|at| at.elapsed() >= period)
}

impl Broker {
    /// Starts to answer other nodes and programs of this one.
    ///
    /// # Errors
    /// CAP_NET_RAW or CAP_BPF lacks; the interface carries no messages.
    pub fn start(settings: BrokerSettings, held: &Held) -> Result<Self, LinkError> {
        let (wire, carried, ports, carrier) = match &settings.udp {
            None => over_ethernet(&settings)?,
            Some(udp) => over_udp(&settings, udp)?,
        };
        let engine = Engine::with_ports(carrier, &settings.name, SLOT_COUNT, 0..=0)?;
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
            warnings: Warnings::default(),
            pings: Pings::default(),
            known: Known::default(),
            last: LastRun::default(),
        })
    }

    /// State shared with [`crate::sockets::Sockets`].
    pub fn known(&self) -> Known {
        self.known.clone()
    }

    /// Thread that closes sockets which may hold descriptors of programs in flight.
    pub fn disposer(&self) -> &Arc<Disposer> {
        self.ports.disposer()
    }

    /// Dropped frames of unprivileged programs with another program's source; none: such programs have no ports.
    pub fn forged(&self) -> Option<u64> {
        self.ports.forged()
    }

    /// Warning that the group's programs can exhaust kernel memory by rings of their sockets; none: they cannot.
    pub fn unbounded(&self) -> Option<String> {
        self.ports.unbounded()
    }

    /// Receive path of programs, in words.
    pub fn carried(&self) -> &str {
        &self.carried
    }

    /// Runs until `stop` is set, without answering commands ([`BrokerService`] does). `log` gets a line for each event.
    pub fn run(&mut self, stop: &AtomicBool, mut log: impl FnMut(String)) -> Result<(), LinkError> {
        while !stop.load(Ordering::Relaxed) {
            self.engine.wait(Duration::ZERO, POLL_PERIOD)?;
            self.poll(&mut log)?;
        }
        Ok(())
    }

    /// Receives frames, and runs due tasks.
    fn poll(&mut self, mut log: impl FnMut(String)) -> Result<(), LinkError> {
        if is_due(self.last.hello, HELLO_PERIOD) {
            self.engine.hello()?;
            self.last.hello = Some(Instant::now());
        }
        self.engine.poll()?;
        self.pings.poll(&mut self.engine);
        for Endpoints { peer, port, peer_port, peer_number, epoch } in self.ports.next_orphans() {
            self.engine.probe_orphan(&Endpoints { peer: peer.into(), port, peer_port, peer_number, epoch })?;
        }
        // Bounded, however many frames arrive.
        let is_new = self.engine.peer_changes() != self.last.peer_changes;
        if is_due(self.last.list, if is_new { LIST_PERIOD } else { LIST_IDLE_PERIOD }) {
            self.list_nodes();
        }
        if is_due(self.last.put_back, POLL_PERIOD) {
            self.ports.put_back().into_iter().for_each(&mut log);
            self.last.put_back = Some(Instant::now());
        }
        if is_due(self.last.warnings, LIST_PERIOD) {
            let active = self.active_warnings();
            self.warnings.update(Instant::now(), active, &mut log);
            self.last.warnings = Some(Instant::now());
        }
        Ok(())
    }

    /// Descriptors and the time for a sleep until frames arrive or tasks are due.
    fn wait(&mut self) -> Result<Wait<'_>, LinkError> {
        let period = if self.engine.arm()? { POLL_PERIOD } else { Duration::ZERO };
        Ok(Wait { until: Instant::now() + period, readable: vec![self.engine.descriptor()?] })
    }

    /// Publishes the list of nodes to programs.
    fn list_nodes(&mut self) {
        self.known.lock().nodes = names(&self.engine);
        self.ports.set_nodes(nodes(&self.engine, Some(SILENCE_TIMEOUT)));
        (self.last.peer_changes, self.last.list) = (self.engine.peer_changes(), Some(Instant::now()));
    }

    /// Warnings whose conditions hold now.
    fn active_warnings(&self) -> Vec<String> {
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
        let alike = self.engine.duplicate_names().into_iter().filter(|names| names.this_node);
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
            nodes: nodes(&self.engine, Some(SILENCE_TIMEOUT)),
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

type Opened = (Wire, String, Arc<Ports>, BrokerCarrier);

fn over_ethernet(settings: &BrokerSettings) -> Result<Opened, LinkError> {
    let wire = Wire::of(&settings.interface)?;
    let (port, carried) = attach(settings)?;
    let ports = Arc::new(Ports::new(wire.clone(), &settings.name, port, settings.group.is_some())?);
    let (socket, out) = wire.sockets(Some(ports.unowned_filter().as_fd()))?;
    let raw = Raw::with(wire.clone(), socket, out);
    Ok((wire, carried, ports, raw.into()))
}

fn over_udp(settings: &BrokerSettings, udp: &UdpSettings) -> Result<Opened, LinkError> {
    let (wire, all) = Wire::of_udp(&settings.interface, udp)?;
    let ports = Arc::new(Ports::new(wire.clone(), &settings.name, None, false)?);
    let own = ports.udp_socket(0)?.ok_or_else(|| LinkError::NoIp { interface: settings.interface.clone() })?;
    let group = all.map(|at| wire.udp_socket(at)).transpose()?;
    let peers = udp.peers.iter().map(|&ip| SocketAddr::new(ip, UDP_PORT));
    let everyone = all.into_iter().chain(peers).collect();
    let carrier = Udp::of(wire.clone(), own, group, everyone).into();
    Ok((wire, format!("UDP sockets (port {UDP_PORT})"), ports, carrier))
}

/// The XDP program that fills rings, if any, and the receive path in words.
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

/// A message of another node, made safe to show: one line, truncated.
pub(crate) fn sanitized_message(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A node's name, made safe to show: a name with blanks or line ends could pass for other rows.
fn sanitized_name(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || c.is_whitespace() { '?' } else { c }).collect()
}

fn names(engine: &Engine<BrokerCarrier>) -> HashMap<Address, String> {
    let heard = engine.peers().filter(|(_, peer)| !peer.name.is_empty() && engine.since(peer.heard) <= SILENCE_TIMEOUT);
    heard.map(|(&at, peer)| (at, sanitized_name(&peer.name))).collect()
}

/// Nodes that sent a hello, sorted by name; with `within` only those heard in that time.
pub fn nodes(engine: &Engine<BrokerCarrier>, within: Option<Duration>) -> Vec<LinkNode> {
    let is_shown = |heard: Duration| within.is_none_or(|within| heard <= within);
    let heard = engine.peers().filter(|(_, peer)| !peer.name.is_empty() && is_shown(engine.since(peer.heard)));
    let node = |(address, peer): (&Address, &transport::Peer)| LinkNode {
        name: sanitized_name(&peer.name),
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
    // Closes connections that were not accepted, too.
    let listener = Disposed::new(claims_socket(path, group).map_err(failed)?, ports.disposer());
    let ports = Arc::clone(ports);
    let keeps = rights::kept(group.is_some(), ports.is_over_udp());
    let (to, dropped) = mpsc::sync_channel(1);
    let accept_programs = move |stop: &AtomicBool| {
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
                // Without a thread for it, the program connects again.
                let _ = ports.serve(fd);
            }
        }
    };
    let claims = Worker::start("ek-claims", accept_programs).map_err(failed)?;
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
