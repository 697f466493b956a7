//! Two namespaces and the veth pair between them.

use std::net::{IpAddr, Ipv4Addr};

use lab::{Lab, Namespace, VethEnd};
use model::link_bench::Conditions;

use super::BenchError;

/// The addresses of both ends.
pub(super) const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
pub(super) const PREFIX_LEN: u8 = 24;
/// What segments, and what joins segments.
const OFFLOADS: [&str; 3] = ["tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro"];

/// A place of an end: its namespace and its interface.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) space: Namespace,
    pub(super) link: VethEnd,
}

/// Two nodes on a wire. They go when it is dropped.
#[derive(Debug)]
pub(super) struct Bed {
    pub(super) places: [Place; 2],
    pub(super) conditions: Conditions,
}

impl Bed {
    pub(super) fn new(conditions: Conditions) -> Result<Self, BenchError> {
        let lab = Lab::new("linkbench")?;
        let spaces = [lab.namespace("a")?, lab.namespace("b")?];
        let names = [lab.interface("la"), lab.interface("lb")];
        let [a, b] = &spaces;
        let (left, right) = lab.veth((a, &names[0]), (b, &names[1]), 1)?;
        let [a, b] = spaces;
        let places = [Place { space: a, link: left }, Place { space: b, link: right }];
        for (i, place) in places.iter().enumerate() {
            let (space, name) = (&place.space, place.link.name.as_str());
            space.set_mtu(name, conditions.mtu)?;
            space.add_address(name, IpAddr::V4(ADDRESSES[i]), PREFIX_LEN)?;
            space.add_neighbour(name, IpAddr::V4(ADDRESSES[1 - i]), places[1 - i].link.mac)?;
            if !conditions.offloads {
                OFFLOADS.iter().try_for_each(|feature| space.set_feature(name, feature, false))?;
            }
            if let Some(bytes) = conditions.tcp_rmem {
                let least = bytes.min(4096);
                space.set_sysctl("net.ipv4.tcp_rmem", &format!("{least} {bytes} {bytes}"))?;
            }
        }
        Ok(Self { places, conditions })
    }
}
