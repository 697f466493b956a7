//! Two namespaces and the veth pair between them.

use std::net::{IpAddr, Ipv4Addr};

use bpf::lossy_wire;
use lab::{Lab, Namespace, VethEnd};
use model::link_bench::Conditions;

use super::MessagesError;
use link::LinkError;

/// The addresses of both ends.
pub(super) const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
pub(super) const PREFIX_LEN: u8 = 24;
/// Offloads that segment or merge packets.
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
    pub(super) queues: u32,
    _between: Option<Namespace>,
}

impl Bed {
    /// A bed on interfaces of so many queues.
    pub(super) fn new(conditions: Conditions, queues: u32) -> Result<Self, MessagesError> {
        let lab = Lab::new("linkbench")?;
        let spaces = [lab.namespace("a")?, lab.namespace("b")?];
        let names = [lab.interface("la"), lab.interface("lb")];
        let [a, b] = &spaces;
        let (left, right, between) = match conditions.lost_per_million {
            None => {
                let (left, right) = lab.veth((a, &names[0]), (b, &names[1]), queues)?;
                (left, right, None)
            }
            Some(lost) => {
                let between = lab.namespace("w")?;
                let inner = [lab.interface("wa"), lab.interface("wb")];
                let (left, _) = lab.veth((a, &names[0]), (&between, &inner[0]), queues)?;
                let (right, _) = lab.veth((b, &names[1]), (&between, &inner[1]), queues)?;
                for name in &inner {
                    between.set_mtu(name, conditions.mtu)?;
                }
                between
                    .run(|| {
                        lossy_wire(&inner[0], &inner[1], lost)?;
                        lossy_wire(&inner[1], &inner[0], lost)
                    })?
                    .map_err(LinkError::from)?;
                (left, right, Some(between))
            }
        };
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
        Ok(Self { places, conditions, queues, _between: between })
    }
}
