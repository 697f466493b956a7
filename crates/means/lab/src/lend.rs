//! Parts of a real interface that a test borrows: an address, and the answer of a neighbour. Works in the calling thread's namespace.

use std::{
    io,
    net::IpAddr,
    sync::atomic::Ordering,
    thread::{self, park_timeout},
    time::{Duration, Instant},
};

use host::netlink::{Netlink, route};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage, CacheInfo},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage},
};
use nix::sys::socket::SockProtocol;
use sys::worker::Worker;
use wire::Mac;

use crate::{
    LabError,
    link::{failed, family, index_of},
    rtnl,
};

/// The kernel takes a borrowed address away by itself after this time, should nobody be left to do so.
const LIFETIME_S: u32 = 120;
/// Time after which that time is begun anew. Short, as IPv6 addresses go when a link goes down.
const RENEWAL_PERIOD: Duration = Duration::from_secs(1);
/// Time between two requests for a neighbour, and two looks for its answer.
const POLL_PERIOD: Duration = Duration::from_millis(20);
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// An address that an interface has for a while. It goes when this is dropped, and within two minutes after the process was killed.
#[derive(Debug)]
pub struct LentAddress {
    interface: String,
    address: IpAddr,
    /// Removes the address: it is in the namespace where the interface is.
    _renewer: Worker,
}

impl LentAddress {
    /// Gives `interface` the address; none when it has it already, which is left as it is.
    pub fn lend(interface: &str, address: IpAddr, prefix_len: u8) -> Result<Option<Self>, LabError> {
        let what = format!("{address}/{prefix_len} to {interface}");
        let failed = || failed("lend the address", &what);
        let index = index_of(interface)?;
        let message = message(index, address, prefix_len);
        match rtnl::request(&RouteNetlinkMessage::NewAddress(message.clone()), NLM_F_CREATE | NLM_F_EXCL) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            other => other.map_err(failed())?,
        }
        // In the namespace of this thread, as a child of it.
        let renewer = Worker::start("ek-lend", move |stop| {
            park_timeout(RENEWAL_PERIOD);
            while !stop.load(Ordering::Relaxed) {
                // When the interface is gone there is nothing to renew.
                let _ = rtnl::request(&RouteNetlinkMessage::NewAddress(message.clone()), NLM_F_CREATE | NLM_F_REPLACE);
                park_timeout(RENEWAL_PERIOD);
            }
            let _ = rtnl::request(&RouteNetlinkMessage::DelAddress(message), 0);
        });
        Ok(Some(Self { interface: interface.to_owned(), address, _renewer: renewer.map_err(failed())? }))
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }
}

fn message(index: u32, address: IpAddr, prefix_len: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_len;
    message.header.index = index;
    message.header.flags = AddressHeaderFlags::Nodad;
    let mut lifetime = CacheInfo::default();
    (lifetime.ifa_valid, lifetime.ifa_preferred) = (LIFETIME_S, LIFETIME_S);
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
        AddressAttribute::CacheInfo(lifetime),
    ];
    message
}

/// The MAC address of `address` behind `interface`, asked for by the kernel (ARP, neighbour discovery) for at most `patience`; none when
/// nobody answers. What the kernel knows already counts.
pub fn resolve(interface: &str, address: IpAddr, patience: Duration) -> Result<Option<Mac>, LabError> {
    let index = index_of(interface)?;
    let until = Instant::now() + patience;
    let mut ask = Instant::now();
    loop {
        if Instant::now() >= ask {
            let done = rtnl::request(&RouteNetlinkMessage::NewNeighbour(question(index, address)), NLM_F_CREATE);
            done.map_err(failed("ask for the neighbour", format_args!("{address} on {interface}")))?;
            ask += RETRY_PERIOD;
        }
        thread::sleep(POLL_PERIOD);
        if let Some(mac) = known(index, address).map_err(failed("read the neighbours of", interface))? {
            return Ok(Some(mac));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
    }
}

fn question(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    // As if a packet waited for it.
    message.header.flags = NeighbourFlags::Use;
    message.attributes = vec![NeighbourAttribute::Destination(neighbour_address(address))];
    message
}

fn neighbour_address(address: IpAddr) -> NeighbourAddress {
    match address {
        IpAddr::V4(a) => NeighbourAddress::Inet(a),
        IpAddr::V6(a) => NeighbourAddress::Inet6(a),
    }
}

/// The neighbour's MAC address if the kernel knows it.
fn known(index: u32, address: IpAddr) -> io::Result<Option<Mac>> {
    let all = route::neighbours(&mut Netlink::open(SockProtocol::NetlinkRoute)?)?;
    let found = all.into_iter().find(|n| n.ifindex == index && n.address == address && n.is_usable());
    Ok(found.and_then(|n| Some(Mac(*n.lladdr.first_chunk()?))))
}
