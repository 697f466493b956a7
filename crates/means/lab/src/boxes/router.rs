//! A router: the kernel forwards between its two interfaces.

use std::{fs, io};

use crate::{LabError, Namespace, VethEnd, boxes::Family, link};

use super::{Inside, TestBox};

/// Addresses, static neighbours, routes, and the switch that makes a host a router.
pub(super) fn furnish(of: &TestBox) -> Result<(), LabError> {
    let (Some(Inside { namespace, entry, exit: Some(exit) }), Some(receiver)) = (&of.inside, &of.receiver) else {
        return Ok(());
    };
    let family = of.spec.family;
    let left = Side { end: entry, own: family.entry(), peer: family.sender() };
    let right = Side { end: exit, own: family.exit(), peer: family.receiver() };
    for (side, peer_end, hosts) in
        [(&left, &of.sender.end, family.hosts_of_sender()), (&right, &receiver.end, family.hosts_of_receiver())]
    {
        namespace.add_address(&side.end.name, side.own, family.link_len())?;
        namespace.add_neighbour(&side.end.name, side.peer, of.last_hop(peer_end))?;
        namespace.run(|| link::add_route(&side.end.name, hosts, side.peer))??;
    }
    for (side, place, far) in [(&left, &of.sender, family.receiver()), (&right, receiver, family.sender())] {
        host(&place.namespace, &place.end, side, family, far)?;
    }
    namespace.run(|| set_forwarding(family, true))?
}

struct Side<'a> {
    end: &'a VethEnd,
    own: std::net::IpAddr,
    peer: std::net::IpAddr,
}

/// The host at one side: its address, and its way to the other side's host.
fn host(
    namespace: &Namespace,
    end: &VethEnd,
    side: &Side<'_>,
    family: Family,
    far: std::net::IpAddr,
) -> Result<(), LabError> {
    namespace.add_address(&end.name, side.peer, family.link_len())?;
    namespace.add_neighbour(&end.name, side.own, side.end.mac)?;
    namespace.run(|| link::add_route(&end.name, super::Network::host(far), side.own))?
}

/// The switch that makes a host a router.
pub(super) fn switch(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.ipv4.ip_forward",
        Family::V6 => "net.ipv6.conf.all.forwarding",
    }
}

/// Turns it, in the namespace of the calling thread.
pub(super) fn set_forwarding(family: Family, on: bool) -> Result<(), LabError> {
    let path = format!("/proc/sys/{}", switch(family).replace('.', "/"));
    let value = if on { "1" } else { "0" };
    fs::write(&path, value).map_err(|source: io::Error| LabError::Setting { path, value: value.into(), source })
}
