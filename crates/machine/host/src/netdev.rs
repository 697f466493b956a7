//! The kernel's list of NAPI instances (generic netlink family `netdev`, Linux 6.8 and later).

use std::io;

use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use crate::netlink::{DUMP, GENL_HEADER_BYTES, Netlink, attributes};

/// Commands and attributes of include/uapi/linux/netdev.h.
const CMD_DEV_GET: u8 = 1;
const CMD_QUEUE_GET: u8 = 10;
const CMD_NAPI_GET: u8 = 11;
const DEV_IFINDEX: u16 = 1;
const DEV_XDP_FEATURES: u16 = 3;
const XDP_ACT_BASIC: u64 = 1;
const XDP_ACT_NDO_XMIT: u64 = 4;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_IRQ: u16 = 3;
const NAPI_PID: u16 = 4;
const NAPI_DEFER_HARD_IRQS: u16 = 5;
const NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NAPI_IRQ_SUSPEND_TIMEOUT: u16 = 7;
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI_ID: u16 = 4;
const QUEUE_TYPE_RX: u32 = 0;

/// A NAPI instance as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NapiEntry {
    pub ifindex: u32,
    pub id: u32,
    /// The interrupt that schedules it, when the driver tells.
    pub irq: Option<u32>,
    /// The process id of its kernel thread, when threaded.
    pub pid: Option<u32>,
    /// The receive queue it serves, when the driver tells.
    pub rx_queue: Option<u32>,
    /// Empty polls before the interrupt is enabled again (Linux 6.13 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defer_hard_irqs: Option<u32>,
    /// The wait with the interrupt off, in nanoseconds (Linux 6.13 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gro_flush_timeout_ns: Option<u64>,
    /// The time that the interrupt stays off while a program polls, in nanoseconds (Linux 6.13 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irq_suspend_timeout_ns: Option<u64>,
}

/// An interface's abilities with XDP, as its driver tells (`enum netdev_xdp_act`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpAbility {
    /// Programs run in the driver, before a socket buffer is made.
    pub native: bool,
    /// True if it takes redirected frames now: a veth does only while its other end has NAPI.
    pub transmit: bool,
}

/// A connection to the `netdev` family of this thread's network namespace.
#[derive(Debug)]
pub struct Netdev {
    netlink: Netlink,
    family: u16,
}

impl Netdev {
    /// Connects; none when the kernel has no such family (before 6.3).
    pub fn open() -> io::Result<Option<Self>> {
        let mut netlink = Netlink::open(SockProtocol::NetlinkGeneric).map_err(|e| unopened(&e))?;
        let family = netlink.family("netdev").map_err(|e| unopened(&e))?;
        Ok(family.map(|family| Self { netlink, family }))
    }

    /// The interface's abilities with XDP; none when the kernel does not tell.
    pub fn xdp_ability(&mut self, ifindex: u32) -> Option<XdpAbility> {
        let mut found = None;
        self.dump(CMD_DEV_GET, |device| {
            if get(device, DEV_IFINDEX) == Some(ifindex) {
                found = get_long(device, DEV_XDP_FEATURES).map(|features| XdpAbility {
                    native: features & XDP_ACT_BASIC != 0,
                    transmit: features & XDP_ACT_NDO_XMIT != 0,
                });
            }
        })?;
        found
    }

    /// Every NAPI instance of the namespace, by interface and id; none when the kernel does not list them (before 6.8).
    pub fn napis(&mut self) -> Option<Vec<NapiEntry>> {
        let mut napis = Vec::new();
        let mut queues = Vec::new();
        self.dump(CMD_NAPI_GET, |attributes| napis.extend(napi(attributes)))?;
        // Without the list of queues (some kernels list only NAPI instances), none is known.
        let _ = self.dump(CMD_QUEUE_GET, |attributes| queues.extend(rx_queue(attributes)));
        for (ifindex, id, queue) in queues {
            if let Some(napi) = napis.iter_mut().find(|napi| napi.id == id && napi.ifindex == ifindex) {
                napi.rx_queue = Some(queue);
            }
        }
        napis.sort_by_key(|napi| (napi.ifindex, napi.id));
        Some(napis)
    }

    fn dump(&mut self, command: u8, mut each: impl FnMut(&[u8])) -> Option<()> {
        let done = self.netlink.ask(self.family, DUMP, &[command, 1, 0, 0], |_, payload| {
            each(payload.get(GENL_HEADER_BYTES..).unwrap_or_default());
        });
        done.ok()
    }
}

fn get(message: &[u8], kind: u16) -> Option<u32> {
    let attribute = attributes(message).find(|a| a.kind() == kind)?;
    attribute.value().first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn unopened(source: &io::Error) -> io::Error {
    io::Error::new(source.kind(), format!("cannot open a netlink socket: {source}"))
}

/// An attribute of netlink's type uint: four bytes or eight.
fn get_long(message: &[u8], kind: u16) -> Option<u64> {
    let attribute = attributes(message).find(|a| a.kind() == kind)?;
    let value = attribute.value();
    match value.first_chunk() {
        Some(bytes) => Some(u64::from_ne_bytes(*bytes)),
        None => value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes).into()),
    }
}

fn napi(message: &[u8]) -> Option<NapiEntry> {
    Some(NapiEntry {
        ifindex: get(message, NAPI_IFINDEX)?,
        id: get(message, NAPI_ID)?,
        irq: get(message, NAPI_IRQ).filter(|&irq| irq != 0),
        pid: get(message, NAPI_PID).filter(|&pid| pid != 0),
        rx_queue: None,
        defer_hard_irqs: get(message, NAPI_DEFER_HARD_IRQS),
        gro_flush_timeout_ns: get_long(message, NAPI_GRO_FLUSH_TIMEOUT),
        irq_suspend_timeout_ns: get_long(message, NAPI_IRQ_SUSPEND_TIMEOUT),
    })
}

/// Interface, NAPI id and number of a receive queue.
fn rx_queue(message: &[u8]) -> Option<(u32, u32, u32)> {
    if get(message, QUEUE_TYPE)? != QUEUE_TYPE_RX {
        return None;
    }
    Some((get(message, QUEUE_IFINDEX)?, get(message, QUEUE_NAPI_ID)?, get(message, QUEUE_ID)?))
}
