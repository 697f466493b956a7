//! The counters of every interface, in one netlink dump (RTM_GETSTATS, `struct rtnl_link_stats64`).

use std::{collections::BTreeMap, io};

use nix::sys::socket::SockProtocol;

use crate::netlink::{DUMP, Netlink, attributes};

const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;
const IFLA_STATS_LINK_64: u16 = 1;
/// `struct if_stats_msg`: family, padding, ifindex, filter mask.
const IF_STATS_MSG_BYTES: usize = 12;

/// The counters of one interface since it was made: `struct rtnl_link_stats64` (include/uapi/linux/if_link.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub multicast: u64,
    pub collisions: u64,
    pub rx_length_errors: u64,
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub rx_frame_errors: u64,
    pub rx_fifo_errors: u64,
    pub rx_missed_errors: u64,
    pub tx_aborted_errors: u64,
    pub tx_carrier_errors: u64,
    pub tx_fifo_errors: u64,
    pub tx_heartbeat_errors: u64,
    pub tx_window_errors: u64,
    pub rx_compressed: u64,
    pub tx_compressed: u64,
    pub rx_nohandler: u64,
    pub rx_otherhost_dropped: u64,
}

impl LinkStats {
    /// Reads the kernel's structure; what an older kernel's lacks is 0.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut stats = Self::default();
        for (slot, word) in stats.slots().into_iter().zip(bytes.as_chunks::<8>().0) {
            *slot = u64::from_ne_bytes(*word);
        }
        stats
    }

    fn slots(&mut self) -> [&mut u64; 25] {
        [
            &mut self.rx_packets,
            &mut self.tx_packets,
            &mut self.rx_bytes,
            &mut self.tx_bytes,
            &mut self.rx_errors,
            &mut self.tx_errors,
            &mut self.rx_dropped,
            &mut self.tx_dropped,
            &mut self.multicast,
            &mut self.collisions,
            &mut self.rx_length_errors,
            &mut self.rx_over_errors,
            &mut self.rx_crc_errors,
            &mut self.rx_frame_errors,
            &mut self.rx_fifo_errors,
            &mut self.rx_missed_errors,
            &mut self.tx_aborted_errors,
            &mut self.tx_carrier_errors,
            &mut self.tx_fifo_errors,
            &mut self.tx_heartbeat_errors,
            &mut self.tx_window_errors,
            &mut self.rx_compressed,
            &mut self.tx_compressed,
            &mut self.rx_nohandler,
            &mut self.rx_otherhost_dropped,
        ]
    }

    /// The counts between `earlier` and now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (mut now, mut before) = (*self, *earlier);
        for (slot, before) in now.slots().into_iter().zip(before.slots()) {
            *slot = slot.saturating_sub(*before);
        }
        now
    }
}

/// Asks for the counters of the interfaces of the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Links(Netlink);

impl Links {
    pub(super) fn open() -> io::Result<Self> {
        Netlink::open(SockProtocol::NetlinkRoute).map(Self)
    }

    pub(super) fn read(&mut self) -> io::Result<BTreeMap<u32, LinkStats>> {
        let mut body = [0; IF_STATS_MSG_BYTES];
        body[8..].copy_from_slice(&(1u32 << (IFLA_STATS_LINK_64 - 1)).to_ne_bytes());
        let mut links = BTreeMap::new();
        self.0.ask(RTM_GETSTATS, DUMP, &body, |kind, payload| {
            if kind == RTM_NEWSTATS {
                links.extend(parse(payload));
            }
        })?;
        Ok(links)
    }
}

fn parse(payload: &[u8]) -> Option<(u32, LinkStats)> {
    let index = u32::from_ne_bytes(payload.get(4..8)?.try_into().ok()?);
    let stats = attributes(payload.get(IF_STATS_MSG_BYTES..)?).find(|a| a.kind() == IFLA_STATS_LINK_64)?;
    Some((index, LinkStats::parse(stats.value())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_where_the_kernel_puts_them() {
        let bytes: Vec<u8> = (0u64..25).flat_map(|i| (100 + i).to_ne_bytes()).collect();
        let stats = LinkStats::parse(&bytes);
        assert_eq!((stats.rx_packets, stats.tx_dropped), (100, 107));
        assert_eq!((stats.rx_missed_errors, stats.rx_nohandler, stats.rx_otherhost_dropped), (115, 123, 124));
        assert_eq!(LinkStats::parse(&bytes[..8 * 23]).rx_nohandler, 0);
    }

    #[test]
    fn a_message_of_the_kernel() {
        let mut payload = vec![0; 12];
        payload[4..8].copy_from_slice(&9u32.to_ne_bytes());
        crate::netlink::push_attribute(&mut payload, IFLA_STATS_LINK_64, &5u64.to_ne_bytes());
        let (index, stats) = parse(&payload).expect("a link");
        assert_eq!((index, stats.rx_packets), (9, 5));
        assert_eq!(parse(&payload[..10]), None);
    }

    #[test]
    fn a_difference_never_goes_below_zero() {
        let earlier = LinkStats { rx_packets: 5, tx_dropped: 9, ..LinkStats::default() };
        let now = LinkStats { rx_packets: 8, tx_dropped: 2, ..LinkStats::default() };
        assert_eq!(now.since(&earlier), LinkStats { rx_packets: 3, ..LinkStats::default() });
    }
}
