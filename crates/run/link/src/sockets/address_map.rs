//! The nodes of the addresses of a cluster.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use host::netlink::{Netlink, route};
use ipnet::IpNet;
use wire::Mac;

use crate::{Address, LinkError, UDP_PORT, Wire};

/// Time for which the kernel's table of neighbours is cached.
const NEIGHBOURS_CACHE_TIME: Duration = Duration::from_millis(1);
/// UDP port "discard", to which a datagram makes the kernel solicit a neighbour.
const DISCARD_PORT: u16 = 9;

/// Maps addresses of a cluster, behind one interface, to nodes.
#[derive(Debug)]
pub(super) struct AddressMap {
    prefixes: Vec<(IpNet, IpAddr)>,
    ifindex: u32,
    route: Netlink,
    /// The neighbours, and the time they were read.
    neighbours: Option<(Instant, HashMap<IpAddr, Mac>)>,
    /// Over UDP each node is at its own address.
    is_udp: bool,
}

impl AddressMap {
    /// A map of `prefixes` behind an interface, which has an address in each.
    ///
    /// # Errors
    /// The interface has no address in one of them, or another interface has; netlink fails.
    pub(super) fn new(prefixes: &[IpNet], wire: &Wire) -> Result<Self, LinkError> {
        let failed = |source| LinkError::System { operation: "ask the kernel for addresses", source };
        let mut route = Netlink::route().map_err(failed)?;
        let addresses = route::addresses(&mut route).map_err(failed)?;
        let of = |prefix: &IpNet| {
            let cluster = |why: String| LinkError::Cluster { prefix: prefix.to_string(), why };
            let mut within = addresses.iter().filter(|a| prefix.contains(&a.prefix.address));
            if let Some(other) = within.clone().find(|a| a.ifindex != wire.index) {
                return Err(cluster(format!(
                    "{} is in it, the address of another interface (number {})",
                    other.prefix.address, other.ifindex
                )));
            }
            match wire.udp.map(|at| at.ip()) {
                Some(own) if prefix.contains(&own) => return Ok((*prefix, own)),
                Some(own) => return Err(cluster(format!("this node's address behind UDP is {own}"))),
                None => {}
            }
            match within.next() {
                Some(own) => Ok((*prefix, own.prefix.address)),
                None => Err(cluster(format!("{} has no address in it", wire.interface))),
            }
        };
        let prefixes = prefixes.iter().map(of).collect::<Result<_, _>>()?;
        Ok(Self { prefixes, ifindex: wire.index, route, neighbours: None, is_udp: wire.udp.is_some() })
    }

    /// True if an address of another host is at `node`.
    pub(super) fn is_at(&mut self, address: IpAddr, node: Address) -> bool {
        if self.own(address).is_none_or(|own| own == address) {
            return false;
        }
        let found = self.find(address);
        if found.is_none() {
            // The next connection will find it; this one goes by TCP.
            self.provoke(address);
        }
        found == Some(node)
    }

    /// This node's address in the prefix of another one.
    pub(super) fn own(&self, to: IpAddr) -> Option<IpAddr> {
        self.prefixes.iter().find(|(prefix, _)| prefix.contains(&to)).map(|&(_, own)| own)
    }

    /// The node of an address, over Ethernet from the kernel's table of neighbours; none: it is not there.
    pub(super) fn find(&mut self, address: IpAddr) -> Option<Address> {
        if self.is_udp {
            return Some(Address::Udp(SocketAddr::new(address, UDP_PORT)));
        }
        let is_new = |(at, _): &(Instant, HashMap<IpAddr, Mac>)| at.elapsed() < NEIGHBOURS_CACHE_TIME;
        if !self.neighbours.as_ref().is_some_and(is_new) {
            let all = route::neighbours(&mut self.route).ok()?;
            let here = all.into_iter().filter(|n| n.ifindex == self.ifindex && n.is_usable());
            let known = here.filter_map(|n| Some((n.address, Mac(*n.lladdr.first_chunk()?)))).collect();
            self.neighbours = Some((Instant::now(), known));
        }
        self.neighbours.as_ref()?.1.get(&address).map(|&mac| Address::Ethernet(mac))
    }

    /// Makes the kernel solicit the neighbour, by an empty datagram.
    pub(super) fn provoke(&self, address: IpAddr) {
        let any = SocketAddr::new(self.own(address).unwrap_or(address), 0);
        // If this fails, the lookup times out.
        let _ = UdpSocket::bind(any).and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(&[], (address, DISCARD_PORT))
        });
    }
}
