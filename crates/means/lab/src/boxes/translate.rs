//! Translation of sources, one address to one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::LabError;

use super::{Family, Inside, Network, filter};

/// Another half of the same IPv4 network, another part of the same IPv6 one.
const V4_BIT: u32 = 1 << 15;
const V6_BIT: u128 = 1 << 76;

impl Family {
    pub fn translated(self, source: IpAddr) -> IpAddr {
        match source {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() ^ V4_BIT).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() ^ V6_BIT).into(),
        }
    }
}

/// Has the box translate the sources of both sides.
pub(super) fn load(inside: &Inside, family: Family) -> Result<(), LabError> {
    let ip = if family == Family::V4 { "ip" } else { "ip6" };
    let pair = |hosts: Network| {
        let to = Network { address: family.translated(hosts.address), ..hosts };
        format!("{hosts} : {to}")
    };
    let (one, other) = (pair(family.hosts_of_sender()), pair(family.hosts_of_receiver()));
    let text = format!(
        "table inet eknat {{ chain post {{ type nat hook postrouting priority srcnat; \
         snat {ip} prefix to {ip} saddr map {{ {one}, {other} }}; }}; chain pre {{ type nat hook prerouting priority dstnat; }}; }}\n"
    );
    inside.namespace.run(|| filter::nft(&["-f", "-"], &text).map(|_| ()))?
}
