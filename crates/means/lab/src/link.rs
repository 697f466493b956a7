//! Interfaces inside a namespace. Every function works in the namespace of the calling thread.

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsRawFd, BorrowedFd},
    thread::sleep,
    time::{Duration, Instant},
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType},
};

use sys::ethtool::Ethtool;
use wire::Mac;

use crate::{LabError, rtnl};

/// The kernel's time to see that a link is there.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    /// The length of its prefix in bits.
    pub prefix_len: u8,
}

impl Network {
    pub fn host(address: IpAddr) -> Self {
        Self { address, prefix_len: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// An end of a veth pair, as its namespace sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VethEnd {
    pub name: String,
    pub index: u32,
    pub mac: Mac,
}

pub(crate) fn failed(what: &'static str, object: impl fmt::Display) -> impl FnOnce(io::Error) -> LabError {
    let object = object.to_string();
    move |source| LabError::Link { what, object, source }
}

pub(crate) fn index_of(name: &str) -> Result<u32, LabError> {
    Ok(host::interface::index(name)?)
}

/// Makes a veth pair, one end here and the other in `peer_ns`.
pub(crate) fn create_veth(name: &str, peer: &str, peer_ns: BorrowedFd<'_>, queues: u32) -> Result<(), LabError> {
    let end = |name: &str| {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::NumTxQueues(queues),
            LinkAttribute::NumRxQueues(queues),
        ];
        message
    };
    let mut there = end(peer);
    there.attributes.push(LinkAttribute::NetNsFd(peer_ns.as_raw_fd()));
    let mut here = end(name);
    here.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(there))),
    ]));
    rtnl::request(&RouteNetlinkMessage::NewLink(here), NLM_F_CREATE | NLM_F_EXCL)
        .map_err(failed("create the veth pair", format_args!("{name} - {peer}")))
}

pub(crate) fn set_up(name: &str) -> Result<(), LabError> {
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    rtnl::request(&RouteNetlinkMessage::SetLink(message), 0).map_err(failed("set up the interface", name))
}

/// Waits until an interface whose both ends are up is ready to send.
///
/// The kernel gives it its queueing discipline in a work item of its own (net/core/link_watch.c); until then it drops all
/// that is sent (noop_enqueue).
pub(crate) fn wait_until_ready(name: &str) -> Result<(), LabError> {
    let read = |file: &str| {
        let path = format!("/sys/class/net/{name}/{file}");
        fs::read_to_string(&path).map_err(failed("read", &path))
    };
    let started = Instant::now();
    // Whoever reads the carrier has the work done at once (carrier_show in net/core/net-sysfs.c); else it may wait for a second.
    while {
        read("carrier")?;
        read("operstate")?.trim() != "up"
    } {
        if started.elapsed() > READY_TIMEOUT {
            let source = io::Error::from(io::ErrorKind::TimedOut);
            return Err(failed("see the carrier of the interface", name)(source));
        }
        sleep(Duration::from_millis(1));
    }
    // The state is told just before the discipline is there, both under the lock that this request waits for.
    set_up(name)
}

pub(crate) fn set_mtu(name: &str, mtu: u32) -> Result<(), LabError> {
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    message.attributes = vec![LinkAttribute::Mtu(mtu)];
    rtnl::request(&RouteNetlinkMessage::SetLink(message), 0).map_err(failed("set the MTU of the interface", name))
}

pub(crate) fn remove(name: &str) -> Result<(), LabError> {
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    rtnl::request(&RouteNetlinkMessage::DelLink(message), 0).map_err(failed("remove the interface", name))
}

pub(crate) fn set_down(name: &str) -> Result<(), LabError> {
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    message.header.change_mask = LinkFlags::Up;
    rtnl::request(&RouteNetlinkMessage::SetLink(message), 0).map_err(failed("set down the interface", name))
}

/// Stops the kernel from sending IPv6 packets of its own on the interface.
pub(crate) fn silence(name: &str) -> Result<(), LabError> {
    let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    match fs::write(&path, "1") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()), // a kernel without IPv6
        other => other.map_err(|source| LabError::Setting { path, value: "1".into(), source }),
    }
}

pub(crate) fn describe(name: &str) -> Result<VethEnd, LabError> {
    let path = format!("/sys/class/net/{name}/address");
    let text = fs::read_to_string(&path).map_err(failed("read", &path))?;
    let mac = text
        .parse()
        .map_err(|e| failed("read a MAC address from", &path)(io::Error::new(io::ErrorKind::InvalidData, e)))?;
    Ok(VethEnd { name: name.to_owned(), index: index_of(name)?, mac })
}

pub(crate) fn add_address(name: &str, address: IpAddr, prefix_len: u8) -> Result<(), LabError> {
    if address.is_ipv6() {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        fs::write(&path, "0").map_err(|source| LabError::Setting { path, value: "0".into(), source })?;
    }
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_len;
    message.header.index = index_of(name)?;
    // At once, without asking first whether somebody has it.
    message.header.flags = AddressHeaderFlags::Nodad;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    rtnl::request(&RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
        .map_err(failed("add the address", address))?;
    match address {
        IpAddr::V6(address) => wait_until_local(name, address),
        IpAddr::V4(_) => Ok(()),
    }
}

/// Waits until packets to an IPv6 address of an interface that is up are taken for the host's own.
///
/// The kernel enters the address's local route in a work item of its own (addrconf_dad_work in net/ipv6/addrconf.c), even without
/// duplicate address detection; until then it would forward what comes, or drop it (Ip6InAddrErrors).
fn wait_until_local(name: &str, address: Ipv6Addr) -> Result<(), LabError> {
    const ROUTES: &str = "/proc/thread-self/net/ipv6_route";
    let state = format!("/sys/class/net/{name}/operstate");
    if fs::read_to_string(&state).map_err(failed("read", &state))?.trim() != "up" {
        return Ok(());
    }
    // The destination, the length of its prefix (hexadecimal), … and the interface.
    let destination = format!("{:032x} 80 ", address.to_bits());
    let is_there = |table: &str| table.lines().any(|l| l.starts_with(&destination) && l.ends_with(&format!(" {name}")));
    let started = Instant::now();
    while !is_there(&fs::read_to_string(ROUTES).map_err(failed("read", ROUTES))?) {
        if started.elapsed() > READY_TIMEOUT {
            return Err(failed("see the local route of the address", address)(io::ErrorKind::TimedOut.into()));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

pub(crate) fn add_neighbour(name: &str, address: IpAddr, mac: Mac) -> Result<(), LabError> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index_of(name)?;
    message.header.state = NeighbourState::Permanent;
    let destination = match address {
        IpAddr::V4(a) => NeighbourAddress::Inet(a),
        IpAddr::V6(a) => NeighbourAddress::Inet6(a),
    };
    message.attributes =
        vec![NeighbourAttribute::Destination(destination), NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())];
    rtnl::request(&RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
        .map_err(failed("add the neighbour", address))
}

/// Adds a route to `to` through the neighbour `gateway` on an interface.
pub(crate) fn add_route(name: &str, to: Network, gateway: IpAddr) -> Result<(), LabError> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(gateway);
    message.header.destination_prefix_length = to.prefix_len;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(to.address.into()),
        RouteAttribute::Gateway(gateway.into()),
        RouteAttribute::Oif(index_of(name)?),
    ];
    rtnl::request(&RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
        .map_err(failed("add the route", format_args!("{to} via {gateway}")))
}

/// Makes a bridge, down. It does not look into multicast, for which it would send reports of its own.
pub(crate) fn create_bridge(name: &str) -> Result<(), LabError> {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Bridge),
            LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)])),
        ]),
    ];
    rtnl::request(&RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
        .map_err(failed("create the bridge", name))
}

pub(crate) fn set_controller(name: &str, bridge: &str) -> Result<(), LabError> {
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    message.attributes = vec![LinkAttribute::Controller(index_of(bridge)?)];
    rtnl::request(&RouteNetlinkMessage::SetLink(message), 0)
        .map_err(failed("make a port", format_args!("{name} of {bridge}")))
}

/// Tells the bridge of `port` that `mac` lies behind it, for good.
pub(crate) fn add_bridge_entry(port: &str, mac: Mac) -> Result<(), LabError> {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = index_of(port)?;
    message.header.state = NeighbourState::Noarp;
    message.header.flags = NeighbourFlags::Controller;
    message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())];
    rtnl::request(&RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
        .map_err(failed("add the bridge entry", format_args!("{mac} behind {port}")))
}

pub(crate) fn set_feature(name: &str, feature: &str, on: bool) -> Result<(), LabError> {
    let mut ethtool = Ethtool::open()?;
    Ok(ethtool.set_feature(name, feature, on)?)
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
