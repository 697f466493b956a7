//! An immutable picture of the machine, as read from a [`Root`](crate::root::Root).

use std::collections::BTreeMap;

use model::CpuSet;
pub use model::top::Coalescing;
use serde::{Deserialize, Serialize};
pub use sys::ethtool::{Channels, Rings, Rss};

use crate::interface::NoInterface;

/// The whole machine at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub hostname: String,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// Every CPU that is present, ascending, offline ones included.
    pub cpus: Vec<Cpu>,
    /// Every network interface, by index.
    pub nics: Vec<Nic>,
    /// Every numbered interrupt, ascending.
    pub irqs: Vec<Irq>,
    /// The process id of a running irqbalance.
    pub irqbalance_pid: Option<u32>,
    /// The distance from each NUMA node to each other one, as the firmware tells it; empty where it does not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distances: BTreeMap<u32, BTreeMap<u32, u32>>,
    /// Lines of /proc/interrupts that begin with a number and could not be read.
    #[serde(default)]
    pub garbled_irqs: u32,
    /// The CPUs to which a router's fast path deals its ports' flows, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_path: Option<FastPath>,
}

/// A router's fast path (`evenkeel route run --cpus`) that deals what its ports receive to CPUs of its own choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastPath {
    pub pid: u32,
    pub interfaces: Vec<String>,
    pub cpus: CpuSet,
}

impl FastPath {
    /// The name of the file in which the router of a network namespace says so, beside its lock (`/run/evenkeel/route@NUMBER`).
    pub const FILE: &str = "cpus";

    /// Content of the file.
    pub fn text(&self) -> String {
        let Self { pid, interfaces, cpus } = self;
        format!("{pid} {cpus} {}\n", interfaces.join(" "))
    }

    /// Content of a file; none: it is no such file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        let cpus = CpuSet::parse_list(words.next()?).ok()?;
        Some(Self { pid, cpus, interfaces: words.map(str::to_owned).collect() })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub id: u32,
    /// The physical package (socket).
    pub package: u32,
    /// The core's id within its package (not unique over packages); an offline CPU's is its own number, for the kernel
    /// does not tell.
    pub core: u32,
    /// The logical CPUs of the same core, this one included.
    pub siblings: CpuSet,
    pub node: u32,
    pub online: bool,
    /// True if isolated from the scheduler (isolcpus=, nohz_full=).
    pub isolated: bool,
    /// Speed of the CPU beside that of the machine's fastest one, which has [`FULL_CAPACITY`].
    #[serde(default = "full_capacity")]
    pub capacity: u32,
}

/// The capacity of the fastest CPU, and of every CPU where the kernel tells of no difference.
pub const FULL_CAPACITY: u32 = 1024;

fn full_capacity() -> u32 {
    FULL_CAPACITY
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nic {
    pub name: String,
    /// Index of the interface (ifindex).
    pub index: u32,
    /// The MAC address as `aa:bb:cc:dd:ee:ff`, when it has one.
    pub mac: Option<String>,
    /// The driver, such as `ixgbe` or `veth`, when known.
    pub driver: Option<String>,
    /// The address on its bus, such as `0000:03:00.0` or `virtio0`, for hardware and a hypervisor's devices.
    pub bus: Option<String>,
    /// The NUMA node, for hardware on a machine that says so.
    pub node: Option<u32>,
    /// The link speed in Mbit/s, when the driver says it.
    pub speed_mbps: Option<u32>,
    pub mtu: u32,
    /// The operational state of the link: `up`, `down`, `unknown` …
    pub operstate: String,
    /// Interface flags (IFF_…, include/uapi/linux/if.h).
    pub flags: u32,
    /// The receive queues by number.
    pub rx_queues: Vec<RxQueue>,
    /// The transmit queues by number.
    pub tx_queues: Vec<TxQueue>,
    /// The interrupts of this interface and what each serves.
    pub irqs: Vec<NicIrq>,
    /// The ground on which interrupts are known to serve queues, or the reason why they are not.
    #[serde(default)]
    pub irq_source: IrqSource,
    /// The NAPI instances, on kernels that list them (6.8 and later).
    pub napis: Vec<Napi>,
    /// NAPI runs in kernel threads; none when the kernel has no such setting.
    pub threaded: Option<bool>,
    /// Ring sizes in descriptors.
    pub rings: Option<Rings>,
    pub channels: Option<Channels>,
    pub coalescing: Option<Coalescing>,
    /// Offloads by their ethtool name, such as `rx-gro`.
    pub features: BTreeMap<String, Feature>,
    /// Receive-side scaling: the table and the key.
    pub rss: Option<Rss>,
    /// Questions about it that the kernel or the driver failed to answer, and why: these parts of the picture are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RxQueue {
    /// CPUs to which receive packet steering may hand packets of this queue (empty: off).
    pub rps_cpus: CpuSet,
    /// Entries of the flow table for receive flow steering (0: off).
    pub rps_flow_cnt: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TxQueue {
    /// CPUs that transmit through this queue; none when the driver does not support XPS.
    pub xps_cpus: Option<CpuSet>,
}

/// The work of an interrupt of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueRole {
    Rx(u32),
    Tx(u32),
    /// Both directions of queue `n`.
    RxTx(u32),
    /// Link state, mailbox, asynchronous events: no packets.
    Control,
}

/// The ground on which an interface's interrupts are known to serve its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IrqSource {
    #[default]
    Names,
    /// Their names do not tell (alike, cut off, of an unknown form): they are taken in their order.
    Order,
    NotFound,
    /// Its packets come by an interrupt that is not its own: of the USB controller, the hypervisor's bus, a channel.
    Elsewhere,
    /// A virtual interface: it has none.
    Virtual,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicIrq {
    pub irq: u32,
    pub role: QueueRole,
}

/// A NAPI instance (netlink family `netdev`, command `napi-get`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Napi {
    pub id: u32,
    /// The interrupt that schedules it.
    pub irq: Option<u32>,
    /// The process id of its kernel thread, when threaded.
    pub pid: Option<u32>,
    /// The CPUs that kernel thread may run on.
    pub cpus: Option<CpuSet>,
    /// The receive queue it serves, when known: from the kernel, or by their order when there is one for each queue.
    pub rx_queue: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    pub number: u32,
    /// The chip and line, such as `PCI-MSIX-0000:03:00.0 1-edge`.
    pub chip: String,
    /// The actions on it; more than one when devices share the line.
    pub actions: Vec<String>,
    /// The CPUs it may go to (`smp_affinity_list`).
    pub affinity: CpuSet,
    /// The CPU it does go to (`effective_affinity_list`), where the kernel says.
    pub effective: Option<CpuSet>,
    /// The kernel manages its affinity, so that writing is refused (its file is read-only).
    pub managed: bool,
    /// Interrupts so far by CPU number; a CPU that had none is left out.
    pub counts: BTreeMap<u32, u64>,
}

/// An offload or other feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    pub on: bool,
    /// True if it cannot be changed.
    pub fixed: bool,
}

impl Nic {
    /// True if it is switched on (`ip link set up`); its cable may be out all the same.
    pub fn is_up(&self) -> bool {
        const IFF_UP: u32 = 1;
        self.flags & IFF_UP != 0
    }
}

impl Host {
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|n| n.name == name)
    }

    /// The interface called `name`.
    ///
    /// # Errors
    /// There is none; names like it, or all, are told.
    pub fn named(&self, name: &str) -> Result<&Nic, NoInterface> {
        self.nic(name).ok_or_else(|| NoInterface::among(name, self.nics.iter().map(|nic| nic.name.as_str())))
    }

    /// The CPUs to which a router's fast path deals what the interface called `name` receives; none: it does not.
    pub fn fast_path_cpus(&self, name: &str) -> Option<&CpuSet> {
        let path = self.fast_path.as_ref()?;
        path.interfaces.iter().any(|port| port == name).then_some(&path.cpus)
    }

    pub fn irq(&self, number: u32) -> Option<&Irq> {
        self.irqs.iter().find(|i| i.number == number)
    }

    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|c| c.id == id)
    }

    /// The distance of two NUMA nodes, on the firmware's scale: 10 is the node itself.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let known = self.distances.get(&from).and_then(|row| row.get(&to)).copied();
        known.unwrap_or(if from == to { 10 } else { 20 })
    }

    pub fn online(&self) -> CpuSet {
        self.cpus.iter().filter(|c| c.online).map(|c| c.id).collect()
    }
}
