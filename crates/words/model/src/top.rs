//! Rates of one interval: per interface, per queue and per core. The body of `evenkeel.top/1`.

use serde::{Deserialize, Serialize};

use crate::{CoreLoad, CpuSet, route::RouteMode, units};

/// The events on the machine during one interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopSample {
    /// The end of the interval (RFC 3339, UTC).
    pub timestamp: String,
    /// The length of the interval in seconds.
    pub interval_s: f64,
    pub hostname: String,
    /// Interfaces by falling traffic (packets per second, both directions).
    pub interfaces: Vec<InterfaceRates>,
    /// The cores that were online during the whole interval, ascending.
    pub cores: Vec<CoreRates>,
    /// Remarks: interfaces that came or went, counters that could not be read.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct InterfaceRates {
    pub name: String,
    /// The interface's driver, when known.
    pub driver: Option<String>,
    /// True without hardware of its own (lo, veth, bridges, tunnels …).
    pub is_virtual: bool,
    /// The operational state of the link, such as `up`, when known.
    pub state: Option<String>,
    /// The link speed in Mbit/s, when known.
    pub speed_mbps: Option<u32>,
    /// Packets received per second.
    pub rx_pps: f64,
    /// Bits received per second, from the byte counter (without preamble, frame checksum and gap).
    pub rx_bps: f64,
    /// Packets sent per second.
    pub tx_pps: f64,
    /// Bits sent per second, from the byte counter.
    pub tx_bps: f64,
    /// Packets lost per second, by place; only places that lost any.
    pub drops: Vec<DropRate>,
    /// Packets per second that ended without a loss (`no loss` of `evenkeel ledger`): frames for another host, and copies by a backup link.
    #[serde(default)]
    pub no_loss: Vec<DropRate>,
    pub queues: Vec<QueueRates>,
    /// Interrupt coalescing, when the driver says.
    pub coalescing: Option<Coalescing>,
    /// The fast path of `evenkeel route`, where it runs.
    pub route: Option<FastPathRates>,
}

/// Rates of the fast path of `evenkeel route` for frames that come in by an interface.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FastPathRates {
    pub mode: RouteMode,
    /// Frames forwarded by the fast path, per second.
    pub forwarded_pps: f64,
    /// Frames that went up to the kernel, per second.
    pub slow_path_pps: f64,
}

impl FastPathRates {
    /// The share that it forwarded of what it saw; none: it saw nothing.
    pub fn share(&self) -> Option<f64> {
        let all = self.forwarded_pps + self.slow_path_pps;
        (all > 0.0).then(|| self.forwarded_pps / all)
    }

    /// Mode and share: `routed 99.9 %`.
    pub fn in_words(&self) -> String {
        let share = self.share().map_or_else(String::new, |share| format!(" {}", units::percent(share)));
        format!("{}{share}", self.mode.name())
    }
}

impl InterfaceRates {
    /// Packets per second in both directions.
    pub fn traffic_pps(&self) -> f64 {
        self.rx_pps + self.tx_pps
    }

    /// Packets lost per second, over all places.
    pub fn drops_pps(&self) -> f64 {
        // Not `sum`, which makes -0 of nothing.
        self.drops.iter().fold(0.0, |sum, d| sum + d.pps)
    }

    /// True if nothing moved and nothing was lost.
    pub fn is_idle(&self) -> bool {
        self.traffic_pps() == 0.0 && self.drops.is_empty()
    }
}

/// Packets that ended at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DropRate {
    /// The place, with the counter in brackets, such as `no descriptor free in the ring (rx_missed_errors)`.
    pub place: String,
    pub counter: String,
    pub pps: f64,
}

/// The rates of one queue (receive and transmit queue of the same number).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct QueueRates {
    pub n: u32,
    /// Packets received per second; none when the driver has no such counter.
    pub rx_pps: Option<f64>,
    /// Bits received per second.
    pub rx_bps: Option<f64>,
    /// Packets sent per second.
    pub tx_pps: Option<f64>,
    /// Bits sent per second.
    pub tx_bps: Option<f64>,
    /// Packets lost per second in this queue.
    pub drops_pps: Option<f64>,
    /// The interrupt that serves it (the receive side's where the two differ).
    pub irq: Option<u32>,
    /// Interrupts per second on it.
    pub irq_rate: Option<f64>,
    /// The CPU that handled most of these interrupts; without any, the one that the kernel says is in effect.
    pub cpu: Option<u32>,
    /// The CPUs that the interrupt may go to.
    pub affinity: Option<CpuSet>,
}

/// Interrupt coalescing as the driver reports it (`ethtool -c`). The kernel says 0 for a field that the driver does not have; none is one that was
/// not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Coalescing {
    pub adaptive_rx: Option<bool>,
    pub adaptive_tx: Option<bool>,
    /// Microseconds to wait after a received frame.
    pub rx_usecs: Option<u32>,
    /// Received frames to wait for.
    pub rx_frames: Option<u32>,
    /// Microseconds to wait after a transmitted frame.
    pub tx_usecs: Option<u32>,
    /// Transmitted frames to wait for.
    pub tx_frames: Option<u32>,
}

/// The load and the packet work of one core.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CoreRates {
    /// Time of the core, by class of work.
    #[serde(flatten)]
    pub load: CoreLoad,
    /// NET_RX soft interrupts per second.
    pub net_rx_per_s: f64,
    /// NET_TX soft interrupts per second.
    pub net_tx_per_s: f64,
    /// Interrupts of devices per second (numbered lines).
    pub device_irqs_per_s: f64,
    /// All interrupts per second: devices, timer, inter-processor.
    pub irqs_per_s: f64,
    /// Packets per second that entered the stack here (softnet_stat: processed).
    pub softnet_processed_pps: f64,
    /// Packets per second lost because the backlog was full (softnet_stat: dropped).
    pub softnet_dropped_pps: f64,
    /// Times per second that the packet work stopped with work left over (softnet_stat: time_squeeze).
    pub softnet_squeezed_per_s: f64,
    /// Packets per second dropped by the flow limit (softnet_stat: flow_limit_count).
    pub flow_limited_pps: f64,
    /// Packets in the backlog at the end of the interval, where the kernel says.
    pub backlog: u32,
}
