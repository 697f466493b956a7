//! Counts of an interval: the input of the arithmetic, so that it can be tested without a kernel.

use std::collections::BTreeMap;

use bpf::drops::{DropFlow, DropKind};
use host::{
    counters::LinkStats,
    stack::{Conntrack, Protocols},
};

/// Everything counted in one interval, for one network namespace.
#[derive(Debug, Clone, Default)]
pub struct Interval {
    pub seconds: f64,
    pub interfaces: Vec<Interface>,
    /// IP, ICMP, UDP, TCP.
    pub protocols: Protocols,
    pub netfilter: Netfilter,
    /// TCP sockets that listen, and whose queue is full of connections that wait to be accepted.
    pub full_listeners: Vec<SocketLoss>,
    /// Packets lost at full backlogs by the flow limit, over all CPUs and namespaces (softnet_stat).
    pub flow_limited: u64,
    /// Frames of protocols other than IP that were received, by EtherType; none when they could not be counted.
    pub others: Option<BTreeMap<u16, u64>>,
    /// Packets that sockets lost (AF_PACKET, UDP, raw), by socket.
    pub sockets: Vec<SocketLoss>,
    /// True if `sockets` holds for rings of AF_PACKET too (their counters were read in the kernel).
    pub rings_known: bool,
    pub trace: Trace,
    /// Packets that may wait, at the end of the interval.
    pub room: Room,
    /// Largest shift between the times of the readings of different counters, in seconds.
    pub skew_s: f64,
}

/// Counts of netfilter.
#[derive(Debug, Clone, Default)]
pub struct Netfilter {
    /// Connection tracking; none without it.
    pub conntrack: Option<Conntrack>,
    /// Losses of rules, policies and chains that have counters.
    pub rules: Vec<RuleLoss>,
    /// Rules and policies that drop and have none.
    pub uncounted: Vec<RuleLoss>,
}

/// Records of the kernel's tracepoints.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The drops; none when they were not traced.
    pub drops: Option<Vec<Drop>>,
    /// Whose packets were dropped; empty unless asked for.
    pub details: Vec<Detail>,
    pub xdp_losses: Vec<XdpFailure>,
    /// The error that sampling leaves in `drops`, as a share; 0 when every drop was looked at.
    pub precision: f64,
    /// Drops that one look stood for, on average; 1 (or 0) when every drop was looked at.
    pub weight: f64,
}

/// Packets that may wait at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    /// For an answer to ARP: unanswered questions times the length of their queues.
    pub neighbours: u64,
    /// For the programs behind tun devices, which count them only when they are read.
    pub tun: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Interface {
    pub index: u32,
    pub name: String,
    /// The kind of a virtual one (`veth`, `bridge` …); `lo` for the loopback; empty for hardware.
    pub kind: String,
    /// True if it was asked for; all are when none was named.
    pub chosen: bool,
    /// True on top of other interfaces, which count its packets as well (bridge, VLAN, bond).
    pub stacked: bool,
    pub bridge_port: bool,
    /// True if it receives by NAPI. A veth without it counts only packets that found room in a backlog, as the loopback does.
    pub napi: bool,
    pub stats: LinkStats,
    /// Losses of its driver on receiving, by kind and queue.
    pub nic: Vec<NicLoss>,
    pub xdp: InterfaceXdp,
    /// Its root queueing discipline.
    pub qdisc: Option<QdiscDone>,
    /// Packets that its tc ingress hook lost.
    pub ingress_drops: u64,
}

/// XDP programs of an interface.
#[derive(Debug, Clone, Default)]
pub struct InterfaceXdp {
    /// A program runs in its driver.
    pub native: bool,
    /// A program runs behind its driver, on socket buffers.
    pub generic: bool,
    /// The name of the program; empty when it has none or may not be read.
    pub name: String,
    /// Verdicts of the program other than pass; none when the driver does not count.
    pub done: Option<XdpDone>,
    /// Counters of the fast path of `evenkeel route` for frames that came in here; none: it does not run here.
    pub routed: Option<Routed>,
}

/// Counters of the fast path of `evenkeel route` for the frames of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Routed {
    pub forwarded: u64,
    /// Handed to another CPU, forwarded there or not.
    pub handed: u64,
}

/// Packets that a driver lost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NicLoss {
    /// The queue, where the driver says.
    pub queue: Option<u32>,
    /// Description of the loss: `no free descriptor in the ring` …
    pub words: String,
    pub counter: String,
    pub packets: u64,
    /// The interface's own counters hold them too.
    pub in_stats: bool,
    /// On the transmit side.
    pub tx: bool,
}

/// Verdicts of an XDP program in a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpDone {
    /// Dropped, exceptions among them.
    pub dropped: u64,
    pub tx: u64,
    /// To be sent back, and lost.
    pub tx_errors: u64,
    pub redirected: u64,
    /// Redirects that failed at once, as far as the driver counts them.
    pub redirect_errors: u64,
    pub program: Option<u32>,
    /// The driver counts `dropped` among the drops of the interface, and failed redirects and sendings both in `dropped` and in
    /// `redirected` and `tx`; it counts everything as received (virtio_net).
    pub nested: bool,
}

impl XdpDone {
    /// Frames that did not go on to the stack.
    pub fn taken(&self) -> u64 {
        self.dropped + self.tx + self.tx_errors + self.redirected + self.redirect_errors
    }
}

/// Counters of a queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QdiscDone {
    pub kind: String,
    pub drops: u64,
    /// Packets that waited at the beginning of the interval.
    pub waited: u64,
    /// Packets that wait at its end.
    pub waits: u64,
}

/// Packets that a rule or a policy dropped, by its own counter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleLoss {
    /// The hook: `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`; empty when not known.
    pub hook: String,
    /// The family: `ip`, `ip6`, `inet`, `bridge`, `netdev`, `arp`.
    pub family: String,
    /// Table and chain, such as `filter/input`; the table alone where rules of several chains share a counter.
    pub chain: String,
    pub rule: String,
    pub packets: u64,
    /// Not lost: the rule answered in the receiver's place (synproxy) and took the packet.
    pub taken: bool,
}

/// Packets that a socket lost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketLoss {
    /// The cookie, as in [`Drop::socket`].
    pub cookie: u64,
    /// The inode number, as in [`Drop::inode`].
    pub inode: u32,
    pub packet: bool,
    /// An AF_XDP socket: what it loses is a redirect that failed.
    pub xdp: bool,
    /// Description: `AF_PACKET on eth0`, `UDP 0.0.0.0:53`.
    pub what: String,
    /// The process that holds it, as `name[pid]`.
    pub process: Option<String>,
    /// Packets lost, by its own counter.
    pub packets: u64,
}

/// Drops of one kind that the tracepoint told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drop {
    /// The reason without its prefix.
    pub reason: String,
    /// The function, when the symbols could be read.
    pub function: Option<String>,
    /// The interface's index; 0 when the kernel no longer knew.
    pub ifindex: u32,
    pub protocol: u16,
    /// The socket's cookie; 0: none.
    pub socket: u64,
    /// The socket's inode number; 0: none.
    pub inode: u32,
    pub kind: DropKind,
    /// Whose the last one was that was looked at.
    pub last: Option<DropFlow>,
    pub packets: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detail {
    /// The drop, as in [`Trace::drops`]; its flow is without a source port.
    pub drop: Drop,
    /// First bytes of a packet.
    pub bytes: Vec<u8>,
    /// Number of them that are the link's header.
    pub link_header: usize,
    pub length: u32,
    /// The functions that led to the drop, innermost first.
    pub stack: Vec<String>,
}

/// Frames that XDP lost after its program's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct XdpFailure {
    /// The interface it came in by; 0 when not known.
    pub ifindex: u32,
    /// The interface it was to leave by; 0: none, or not known.
    pub target: u32,
    pub words: String,
    pub tracepoint: String,
    /// The driver has counted the frame as redirected, so that this loss comes after (transmit bulk, CPU map).
    pub after_redirect: bool,
    /// True if it was lost before another CPU had it.
    pub before_cpu: bool,
    /// The driver has counted the frame among its dropped ones (exceptions).
    pub among_dropped: bool,
    pub packets: u64,
}
