//! Neighbours that were asked for and have not answered: packets wait for them, seen by no counter.

use std::{collections::BTreeMap, io};

use nix::sys::socket::SockProtocol;

use crate::netlink::{Netlink, route};

/// The interface and the protocol of unanswered neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    pub ifindex: u32,
    /// True for neighbour discovery (IPv6), false for ARP.
    pub v6: bool,
}

/// The neighbours of the caller's network namespace that are asked for and have not answered: their number by interface and protocol.
pub fn unanswered() -> io::Result<BTreeMap<NeighbourKey, u64>> {
    let mut found = BTreeMap::new();
    for neighbour in route::neighbours(&mut Netlink::open(SockProtocol::NetlinkRoute)?)? {
        if neighbour.is_incomplete() {
            *found.entry(NeighbourKey { ifindex: neighbour.ifindex, v6: neighbour.address.is_ipv6() }).or_default() +=
                1;
        }
    }
    Ok(found)
}
