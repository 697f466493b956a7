//! The kernel's drops by place and reason, from its own tracepoints (`src/trace/drops/drops.bpf.c`), at a bounded cost.
//!
//! Every drop is counted, exactly, by its reason. Which interface, function and socket it was is looked at for every drop as
//! long as looking costs less than its share of the CPU, and for one in N when drops come faster (`src/trace/drops/gate.h`).
//! The looks carry the weight of the drops between them, so that the sums stay right.

use std::{mem::offset_of, time::Duration};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sys::map_mmap::SharedMemory;

use crate::{
    bytes::{word16, word32, word64},
    program::ProgramError,
    skel::drops::types::{
        detail_key as RawDetailKey, detail_value as RawDetail, drop_cpu as RawCpu, drop_flow as RawFlow,
        drop_key as RawKey, drop_slot as RawSlot, drop_value as RawValue,
    },
};

mod details;
mod load;
mod packet;
mod slots;
mod xdp_loss;

pub use details::DropDetail;
pub use packet::{DropFlow, DropKind};
pub use xdp_loss::{XdpLoss, XdpLossKind};

const _: () = assert!(size_of::<RawKey>() == 40 && size_of::<RawValue>() == 72 && size_of::<RawSlot>() == 40);

/// Reasons below this have a slot of their own; beyond are those of subsystems (`SLOT_OTHER` in src/trace/drops/gate.h).
const CORE_REASONS: u32 = 256;

/// The tracing could not be started or read.
#[derive(Debug, thiserror::Error)]
pub enum DropError {
    #[error(
        "cannot read the kernel's type information (BTF, /sys/kernel/btf/vmlinux): {0}; tracing drops takes a kernel built \
         with CONFIG_DEBUG_INFO_BTF, as Debian's are since 11. The counters of /proc and /sys still tell how many were lost"
    )]
    NoBtf(libbpf_rs::Error),
    #[error("cannot trace dropped packets: {0}")]
    NoTracepoint(String),
    #[error("{0}{hint}", hint = if .0.is_denied() { ", on a kernel that is not locked down (/sys/kernel/security/lockdown)" } else { "" })]
    Load(ProgramError),
    #[error("cannot attach to the tracepoint {tracepoint}: {source}; drops cannot be traced without it")]
    Attach { tracepoint: &'static str, source: libbpf_rs::Error },
    #[error(
        "{0} interfaces were named to trace drops of; at most 1024 can be: name namespaces instead, or none for all"
    )]
    TooManyInterfaces(usize),
    #[error("cannot {operation} of the kernel programs `drops`: {source}")]
    Read { operation: &'static str, source: libbpf_rs::Error },
}

model::classified!(DropError: Lacking, Usage: TooManyInterfaces, Internal: Read);

/// An interface, or all of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropScope {
    /// The inode number of /proc/PID/ns/net.
    pub netns: u32,
    /// The index of the interface in it; 0: all.
    pub ifindex: u32,
}

/// The events to trace, and the cost that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropOptions {
    /// Only drops of these (the packet's device or the one it came in by); empty: all of the machine.
    pub only: Vec<DropScope>,
    /// Looking at drops may take this many millionths of each CPU; beyond it, one in N is looked at. 5000 (0.5 %) by default.
    pub budget_ppm: u32,
    /// Looks at one drop in so many whatever it costs; by default as many as the budget allows.
    pub every: Option<u32>,
    /// Also what XDP loses: exceptions, redirects that failed, refused transmits.
    pub xdp: bool,
    /// Keep apart whose packets were dropped, for so many flows at once, with a packet and the kernel's way to the drop for each
    /// ([`DropRead::details`]); 0: none. It is part of a look, and so of its budget.
    pub details: u32,
}

impl Default for DropOptions {
    fn default() -> Self {
        Self { only: Vec::new(), budget_ppm: 5_000, every: None, xdp: true, details: 0 }
    }
}

/// Drops of one kind since the tracing began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropCount {
    /// The network namespace, as the inode number of /proc/PID/ns/net; 0 when the kernel no longer knew it.
    pub netns: u32,
    /// The interface the packet was on, or came in by; 0 when the kernel no longer knew it.
    pub ifindex: u32,
    /// The kernel's number for the reason: see [`crate::trace::drop_reasons::DropReasons`].
    pub reason: u32,
    /// The address of the kernel's instruction that dropped.
    pub location: u64,
    /// The EtherType in host order; 0 when it was not known yet.
    pub protocol: u16,
    /// The cookie of the socket (`ss -e` shows it as `sk:`); 0: none, or not known.
    pub socket: u64,
    /// The inode number of the socket, as in /proc/PID/fd (`socket:[N]`); 0: none, or not known.
    pub socket_inode: u64,
    /// The socket is the one that would have received the packet (kernels from 6.11 on tell that), not the one it was sent by.
    pub receiver: bool,
    pub kind: DropKind,
    /// The addresses of the last one that was looked at; none if it was no IP.
    pub last: Option<DropFlow>,
    /// Socket buffers, scaled up by the sampling.
    pub packets: u64,
    /// Packets on the wire, scaled: a socket buffer holds several after GRO and before GSO.
    pub segments: u64,
    /// Bytes from the header at which the kernel stood when it dropped, scaled.
    pub bytes: u64,
}

/// The cost and the closeness of the tracing since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceCost {
    /// Drops of the whole machine, and failures of XDP redirects and verdicts: exact.
    pub events: u64,
    /// Of them: looked at.
    pub seen: u64,
    /// CPU time: `look_ns` plus `pass_ns` for every event. The tracepoint's own call is not in it.
    pub ns_total: u64,
    /// CPU time of the looks in nanoseconds: by the clock, plus what the clock cannot see of a look (measured at the start).
    pub look_ns: u64,
    /// The kernel program's least time for an event, measured on this machine at the start, in nanoseconds.
    pub pass_ns: u32,
    /// Sampling period: of the fastest kind on the busiest CPU, one event in so many is looked at; 1: all.
    pub sampling: u32,
    /// Not every event was looked at.
    pub backed_off: bool,
    /// From the start until the first time that the distance between looks was raised.
    pub first_backoff: Option<Duration>,
    /// From the start until the last time.
    pub last_backoff: Option<Duration>,
    /// Events in `events` that no [`DropCount`] holds: younger than the last look, or too old for the next.
    pub unattributed: u64,
    /// Events in none of these counts, because they interrupted this tracing itself.
    pub missed: u64,
    /// Events outside of what [`DropOptions::only`] names, scaled.
    pub filtered: u64,
    /// Drops whose socket is not told, because 4096 kinds of drops with their sockets had been seen already, scaled.
    pub without_socket: u64,
    /// Events in no count, because there are too many kinds even without the sockets (2048; 512 of XDP's), scaled.
    pub untracked: u64,
}

/// Everything counted since the tracing began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DropRead {
    /// An entry for each kind of drop.
    pub counts: Vec<DropCount>,
    /// Drops of the whole machine by reason, exact and without the filter; those of subsystems (OVS, mac80211) together as `u32::MAX`.
    pub by_reason: Vec<(u32, u64)>,
    /// For how many of them the looks stand, filtered and untracked ones included: what [`DropRead::counts`] is to be scaled from
    /// so that it stands for all.
    pub looked_at: Vec<(u32, u64)>,
    pub xdp: Vec<XdpLoss>,
    /// The flows whose packets were dropped; empty unless asked for.
    pub details: Vec<DropDetail>,
    pub cost: TraceCost,
}

/// A running trace; it ends when dropped.
pub struct DropTrace {
    /// Drops by kind, with their sockets and without.
    drops: [MapHandle; 2],
    xdp_losses: MapHandle,
    details: Option<MapHandle>,
    cpus: SharedMemory,
    cpu_count: usize,
    program: std::os::fd::OwnedFd,
    opened_ns: u64,
    pass_ns: u32,
    fixed: bool,
    unavailable: Vec<&'static str>,
    names_receiver: bool,
    _links: Vec<libbpf_rs::Link>,
}

impl std::fmt::Debug for DropTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DropTrace").field("unavailable", &self.unavailable).finish_non_exhaustive()
    }
}

impl DropTrace {
    /// Loads the programs and attaches them to their tracepoints.
    ///
    /// # Errors
    /// When a privilege, the kernel's BTF or the tracepoint skb:kfree_skb is missing. A missing tracepoint of XDP is no error: see
    /// [`DropTrace::unavailable`].
    pub fn open(options: &DropOptions) -> Result<Self, DropError> {
        load::open(options)
    }

    /// Tracepoints of XDP that this kernel lacks: their losses are not in [`DropRead::xdp`].
    pub fn unavailable(&self) -> &[&'static str] {
        &self.unavailable
    }

    /// True if the kernel says which socket would have received a packet (from 6.11 on).
    pub fn names_receiver(&self) -> bool {
        self.names_receiver
    }

    /// All counts since the start. Wakes up those kinds whose flood is over, so that they are looked at again.
    pub fn read(&self) -> Result<DropRead, DropError> {
        let failed = |source| DropError::Read { operation: "read the map drops", source };
        let mut read = DropRead::default();
        for map in &self.drops {
            for key in map.keys() {
                if let Some(values) = map.lookup_percpu(&key, MapFlags::ANY).map_err(failed)? {
                    read.counts.push(drop_count(&key, &values));
                }
            }
        }
        merge(&mut read.counts);
        read.xdp = xdp_loss::read(&self.xdp_losses)?;
        if let Some(map) = &self.details {
            read.details = details::read(map)?;
        }
        slots::read(self, &mut read)?;
        Ok(read)
    }
}

/// Drops of one kind that are in both maps: those without a socket.
fn merge(counts: &mut Vec<DropCount>) {
    let kind = |c: &DropCount| {
        (c.socket, c.socket_inode, c.receiver, c.netns, c.ifindex, c.reason, c.location, c.protocol, c.kind)
    };
    counts.sort_by_key(kind);
    counts.dedup_by(|later, first| {
        let same = kind(later) == kind(first);
        if same {
            first.packets += later.packets;
            first.segments += later.segments;
            first.bytes += later.bytes;
            first.last = first.last.or(later.last);
        }
        same
    });
}

fn drop_count(key: &[u8], values: &[Vec<u8>]) -> DropCount {
    let sum = |at: usize| values.iter().map(|v| word64(v, at)).sum();
    let latest = values.iter().max_by_key(|v| word64(v, offset_of!(RawValue, at_ns)));
    DropCount {
        netns: word32(key, offset_of!(RawKey, netns)),
        ifindex: word32(key, offset_of!(RawKey, ifindex)),
        reason: word32(key, offset_of!(RawKey, reason)),
        location: word64(key, offset_of!(RawKey, location)),
        protocol: word16(key, offset_of!(RawKey, protocol)),
        socket: word64(key, offset_of!(RawKey, socket)),
        socket_inode: word64(key, offset_of!(RawKey, inode)),
        receiver: key.get(offset_of!(RawKey, receiver)).is_some_and(|&b| b != 0),
        kind: DropKind::from_raw(key.get(offset_of!(RawKey, kind)).copied().unwrap_or(0)),
        last: latest.and_then(|v| DropFlow::from_raw(v.get(offset_of!(RawValue, last)..)?)),
        packets: sum(offset_of!(RawValue, packets)),
        segments: sum(offset_of!(RawValue, segments)),
        bytes: sum(offset_of!(RawValue, bytes)),
    }
}
