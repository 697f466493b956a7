//! Messages between nodes: what there is to say of a node and its connections.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkNode {
    pub name: String,
    /// Destination of its frames: a MAC address, or an address and a port of UDP.
    pub address: String,
    /// Drawn by it when it started.
    pub epoch: u32,
}

/// The nodes that answered on an interface (schema `evenkeel.link.nodes/1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkNodes {
    pub interface: String,
    pub nodes: Vec<LinkNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProgram {
    pub name: String,
    pub pid: u32,
    pub uid: u32,
    pub listening_ports: Vec<u16>,
    /// Each of its frames is looked at, and sent only if it is in the name of its own ports. Root's programs send past that.
    #[serde(default)]
    pub guarded: bool,
}

/// A TCP connection of a program that link carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkConnection {
    /// The program, with its process.
    pub program: String,
    pub local: String,
    /// The address at the other end.
    pub peer: String,
    pub node: String,
    /// Carrier of its bytes on this node: the broker, or the program.
    pub carrier: String,
    pub sent_bytes: u64,
    /// Bytes that came for it.
    pub received_bytes: u64,
    pub retransmitted: u64,
    /// The smoothed round trip in nanoseconds; none: nothing has been acknowledged yet.
    pub round_trip_ns: Option<u64>,
}

/// Connections to an address of the cluster that went by TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTcpFallback {
    pub peer: String,
    pub reason: String,
    pub count: u64,
}

/// A node that speaks another version of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkOtherVersion {
    pub address: String,
    pub version: u8,
}

/// Probes to a node (schema `evenkeel.link.ping/1`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkPing {
    pub node: String,
    pub address: String,
    /// Bytes behind the header of each probe.
    pub bytes: u16,
    pub sent: u32,
    /// Nanoseconds there and back of those that were answered, in their order.
    pub round_trips_ns: Vec<u64>,
}

/// Frames that the program in the XDP hook saw, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkDelivery {
    /// Copied into the ring of a program.
    pub delivered: u64,
    pub answered: u64,
    /// Frames for ports that no program has, given to the broker.
    pub to_broker: u64,
    /// Dropped: the ring of the program was full.
    pub ring_full: u64,
    /// Dropped: damaged, of another version or unknown.
    pub bad: u64,
}

/// Frames that belonged to no connection, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkRefused {
    /// Shorter than they say.
    pub short: u64,
    pub version: u64,
    pub kind: u64,
    /// Changed on their way.
    pub checksum: u64,
    /// Frames for a connection that does not exist.
    pub unknown: u64,
    /// Offers to a port where nobody listens.
    pub refused: u64,
    /// Offers that a listener had no room for.
    pub busy: u64,
    /// Offers whose answer nobody acknowledged.
    #[serde(default)]
    pub half_open: u64,
}

/// The broker of a node (schema `evenkeel.link.status/1`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    pub node: String,
    /// The interface to the others.
    pub interface: String,
    /// The node's Ethernet address, or its address and the port of UDP.
    pub address: String,
    /// Bytes of the longest payload of a frame.
    pub payload_max: u16,
    /// Carrier of frames to its programs.
    pub carrier: String,
    /// Seconds since it began to serve.
    pub uptime_s: f64,
    /// The nodes that answered in the last 15 s.
    pub nodes: Vec<LinkNode>,
    pub programs: Vec<LinkProgram>,
    /// Frames that programs of other users than root wanted to send in the name of others, and that were dropped; none: only root's have ports.
    pub forged: Option<u64>,
    /// The warning that members of the group can take the kernel's memory by rings of their sockets; none: they cannot, or there is no group.
    pub memory_unbounded: Option<String>,
    /// The connections of programs that use TCP.
    #[serde(default)]
    pub connections: Vec<LinkConnection>,
    /// Connections to the cluster that went by TCP.
    #[serde(default)]
    pub tcp_fallbacks: Vec<LinkTcpFallback>,
    /// Sources and ports that connections over link may come from and to, past every firewall; none: no cluster is served.
    #[serde(default)]
    pub allowed: Vec<String>,
    #[serde(default)]
    pub allowed_by_default: bool,
    /// Addresses of nodes of the same name.
    pub duplicate_names: Vec<String>,
    /// Nodes that speak another version of the protocol.
    pub other_versions: Vec<LinkOtherVersion>,
    /// Counters of the program in the XDP hook; none: there is no program.
    pub delivery: Option<LinkDelivery>,
    /// Frames that belonged to no connection.
    pub refused: LinkRefused,
}

impl LinkStatus {
    /// The address of the node of that name, or with that address.
    ///
    /// # Errors
    /// The addresses of several nodes of that name; none: there is no such node.
    pub fn find(&self, node: &str) -> Result<&str, Vec<String>> {
        let ip: Option<IpAddr> = node.parse().ok();
        let is_at = |address: &str| ip.is_some() && address.parse::<SocketAddr>().ok().map(|at| at.ip()) == ip;
        let is_meant = |n: &&LinkNode| n.name == node || n.address.eq_ignore_ascii_case(node) || is_at(&n.address);
        match self.nodes.iter().filter(is_meant).collect::<Vec<_>>().as_slice() {
            [one] => Ok(&one.address),
            several => Err(several.iter().map(|n| n.address.clone()).collect()),
        }
    }
}
