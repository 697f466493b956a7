//! Per-queue counters from the kernel itself: generic netlink family `netdev`, command `qstats-get` (6.10 and later, where the
//! driver takes part). Documentation/netlink/specs/netdev.yaml has the numbers.

use std::{collections::BTreeMap, io};

use nix::sys::socket::SockProtocol;

use super::queues::QueueCounters;
use crate::netlink::{DUMP, GENL_HEADER_BYTES, Netlink, attributes, push_attribute};

const NETDEV_CMD_QSTATS_GET: u8 = 12;
const QSTATS_IFINDEX: u16 = 1;
const QSTATS_QUEUE_TYPE: u16 = 2;
const QSTATS_QUEUE_ID: u16 = 3;
const QSTATS_SCOPE: u16 = 4;
const QSTATS_RX_PACKETS: u16 = 8;
const QSTATS_RX_BYTES: u16 = 9;
const QSTATS_TX_PACKETS: u16 = 10;
const QSTATS_TX_BYTES: u16 = 11;
const QSTATS_RX_ALLOC_FAIL: u16 = 12;
const QSTATS_RX_HW_DROPS: u16 = 13;
const QSTATS_TX_HW_DROPS: u16 = 24;
const QUEUE_TYPE_RX: u64 = 0;
const SCOPE_QUEUE: u32 = 1;

pub(super) type Queues = BTreeMap<u32, QueueCounters>;

#[derive(Debug)]
pub(super) struct Qstats {
    netlink: Netlink,
    family: u16,
}

impl Qstats {
    /// None when the kernel has no such family.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let mut netlink = Netlink::open(SockProtocol::NetlinkGeneric)?;
        Ok(netlink.family("netdev")?.map(|family| Self { netlink, family }))
    }

    /// The counters of every queue whose driver takes part, by interface index.
    pub(super) fn read(&mut self) -> io::Result<BTreeMap<u32, Queues>> {
        let mut body = vec![NETDEV_CMD_QSTATS_GET, 1, 0, 0];
        push_attribute(&mut body, QSTATS_SCOPE, &SCOPE_QUEUE.to_ne_bytes());
        let mut all: BTreeMap<u32, Queues> = BTreeMap::new();
        self.netlink.ask(self.family, DUMP, &body, |_, payload| {
            let _ = parse(payload.get(GENL_HEADER_BYTES..).unwrap_or_default(), &mut all);
        })?;
        Ok(all)
    }
}

/// Adds one queue; none when the message lacks its interface or number.
fn parse(payload: &[u8], all: &mut BTreeMap<u32, Queues>) -> Option<()> {
    let find = |kind| attributes(payload).find(|a| a.kind() == kind).map(|a| number(a.value()));
    let index = u32::try_from(find(QSTATS_IFINDEX)?).ok()?;
    let queue = u32::try_from(find(QSTATS_QUEUE_ID)?).ok()?;
    let is_rx = find(QSTATS_QUEUE_TYPE)? == QUEUE_TYPE_RX;
    let counters = all.entry(index).or_default().entry(queue).or_default();
    let lost = if is_rx {
        counters.rx_packets = find(QSTATS_RX_PACKETS);
        counters.rx_bytes = find(QSTATS_RX_BYTES);
        [find(QSTATS_RX_HW_DROPS), find(QSTATS_RX_ALLOC_FAIL)]
    } else {
        counters.tx_packets = find(QSTATS_TX_PACKETS);
        counters.tx_bytes = find(QSTATS_TX_BYTES);
        [find(QSTATS_TX_HW_DROPS), None]
    };
    for n in lost.into_iter().flatten() {
        counters.drops = Some(counters.drops.unwrap_or(0).saturating_add(n));
    }
    Some(())
}

/// An unsigned number of 2, 4 or 8 bytes.
fn number(value: &[u8]) -> u64 {
    match *value {
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_queue_come_together() {
        let message = |attributes: &[(u16, u64)]| {
            let mut body = Vec::new();
            for (kind, value) in attributes {
                push_attribute(&mut body, *kind, &value.to_ne_bytes());
            }
            body
        };
        let mut all = BTreeMap::new();
        let rx = message(&[(1, 2), (2, 0), (3, 5), (8, 100), (9, 6000), (12, 1), (13, 2)]);
        let tx = message(&[(1, 2), (2, 1), (3, 5), (10, 50)]);
        assert!(parse(&rx, &mut all).is_some() && parse(&tx, &mut all).is_some());
        let want = QueueCounters {
            rx_packets: Some(100),
            rx_bytes: Some(6000),
            tx_packets: Some(50),
            tx_bytes: None,
            drops: Some(3),
        };
        assert_eq!(all[&2][&5], want);
        assert_eq!(parse(&message(&[(1, 2)]), &mut all), None);
    }
}
