//! Every interface with its counters, its XDP programs and its place in a bridge, in one netlink dump (RTM_GETLINK).

use std::{collections::BTreeMap, io};

use model::xdp::XdpMode;

use crate::{
    counters::LinkStats,
    netlink::{Netlink, attributes, text, u32_at},
};

/// RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK
pub(crate) const LINK: [u16; 3] = [16, 17, 18];
/// `struct ifinfomsg`: family, padding, type, index, flags, change.
const IFINFOMSG_BYTES: usize = 16;
const IFF_UP: u32 = 1;
/// Hardware types (linux/if_arp.h).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_PPP: u16 = 512;
const ARPHRD_LOOPBACK: u16 = 772;
/// Virtual interfaces without a link layer whose drivers set the MAC header of what they receive to the inner IP header (since Linux 5.14). Others, as
/// `gre` without a remote address, leave it at an outer one.
const BARE_IP: [&str; 5] = ["tun", "wireguard", "ipip", "ip6tnl", "sit"];

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;

/// The state of a bridge port by the spanning tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortState {
    /// Everything that arrives is lost.
    #[default]
    Disabled,
    /// Arriving frames are lost; only the spanning tree's own are heard.
    Listening,
    /// Arriving frames are lost, their senders learned.
    Learning,
    /// Frames pass.
    Forwarding,
    /// Frames are lost, to break a loop.
    Blocking,
}

/// The beginning of what an interface receives, as generic XDP sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameStart {
    Ethernet,
    Ip,
    /// Anything else, of this hardware type (ARPHRD).
    Other(u16),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Name of the interface at that moment.
    pub name: String,
    pub alternatives: Vec<String>,
    /// The kind of a virtual one, such as `veth` or `bridge`; empty for hardware.
    pub kind: String,
    /// The hardware type (ARPHRD).
    pub hardware: u16,
    /// The hardware address as /sys writes it: `02:00:00:00:00:01`; empty where there is none.
    pub address: String,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// The index of the other end, or of what it sits on.
    pub lower: Option<u32>,
    /// True if that one is in another network namespace, where the index is its.
    pub elsewhere: bool,
    /// The id of a VLAN device's frames on the interface that it sits on.
    pub vlan: Option<u16>,
    /// A VLAN device writes priorities into the tags of what leaves (egress-qos-map).
    pub vlan_priorities: bool,
    pub up: bool,
    /// True if it can carry packets: up, with a carrier (IF_OPER_UP, or unknown as for a loopback).
    pub running: bool,
    /// True if it takes frames for any address.
    pub promiscuous: bool,
    /// The index of the bridge or bond it belongs to.
    pub master: Option<u32>,
    /// Its state in its bridge; none for an interface in no bridge.
    pub bridge_port: Option<PortState>,
    /// The kind of its root queueing discipline.
    pub qdisc: String,
    /// The XDP programs on it: where, and their ids.
    pub xdp: Vec<(XdpMode, u32)>,
    /// Its counters. `rx_dropped` holds the losses of a full backlog and packets for which nobody listens as well.
    pub stats: LinkStats,
}

impl Link {
    /// The beginning of what it receives.
    pub fn frame_start(&self) -> FrameStart {
        match self.hardware {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => FrameStart::Ethernet,
            ARPHRD_PPP => FrameStart::Ip,
            _ if BARE_IP.contains(&self.kind.as_str()) => FrameStart::Ip,
            other => FrameStart::Other(other),
        }
    }

    /// The counts between `earlier` and now; the rest is that of now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { stats: self.stats.since(&earlier.stats), ..self.clone() }
    }
}

/// Reads all interfaces of the namespace in which `route` was opened, by index.
pub fn links(route: &mut Netlink) -> io::Result<BTreeMap<u32, Link>> {
    Ok(route.dump(LINK, IFINFOMSG_BYTES, parse)?.into_iter().collect())
}

/// Index and interface of a message about one.
pub(crate) fn parse(payload: &[u8]) -> Option<(u32, Link)> {
    let index = u32_at(payload, 4)?;
    let flags = u32_at(payload, 8)?;
    let hardware = u16::from_ne_bytes(*payload.get(2..)?.first_chunk()?);
    let mut link = Link { hardware, up: flags & IFF_UP != 0, ..Link::default() };
    for attribute in attributes(payload.get(IFINFOMSG_BYTES..)?) {
        let value = attribute.value();
        match attribute.kind() {
            IFLA_ADDRESS => link.address = value.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"),
            IFLA_IFNAME => link.name = text(value),
            IFLA_PROP_LIST => {
                let names = attributes(value).filter(|a| a.kind() == IFLA_ALT_IFNAME);
                link.alternatives = names.map(|a| text(a.value())).collect();
            }
            IFLA_MTU => link.mtu = u32_at(value, 0).unwrap_or(0),
            IFLA_LINK => link.lower = u32_at(value, 0),
            IFLA_LINK_NETNSID => link.elsewhere = true,
            IFLA_QDISC => link.qdisc = text(value),
            // The flag IFF_PROMISC shows only what a user asked for, not the kernel's own wishes (a bridge's, a tap's).
            IFLA_PROMISCUITY => link.promiscuous = u32_at(value, 0).is_some_and(|n| n > 0),
            IFLA_MASTER => link.master = u32_at(value, 0),
            // IF_OPER_UNKNOWN or IF_OPER_UP
            IFLA_OPERSTATE => link.running = link.up && matches!(value.first(), Some(0 | 6)),
            IFLA_STATS64 => link.stats = LinkStats::parse(value),
            IFLA_XDP => link.xdp = xdp(value),
            IFLA_LINKINFO => link_info(value, &mut link),
            _ => {}
        }
    }
    Some((index, link))
}

fn link_info(bytes: &[u8], link: &mut Link) {
    let mut bridge = false;
    for attribute in attributes(bytes) {
        match attribute.kind() {
            IFLA_INFO_KIND => link.kind = text(attribute.value()),
            IFLA_INFO_DATA if link.kind == "vlan" => {
                let id = attributes(attribute.value()).find(|a| a.kind() == IFLA_VLAN_ID);
                link.vlan = id.and_then(|a| a.value().first_chunk().map(|id| u16::from_ne_bytes(*id)));
                link.vlan_priorities = attributes(attribute.value()).any(|a| a.kind() == IFLA_VLAN_EGRESS_QOS);
            }
            IFLA_INFO_SLAVE_KIND => bridge = text(attribute.value()) == "bridge",
            IFLA_INFO_SLAVE_DATA if bridge => {
                let state = attributes(attribute.value()).find(|a| a.kind() == IFLA_BRPORT_STATE);
                link.bridge_port = state.map(|a| match a.value().first() {
                    Some(1) => PortState::Listening,
                    Some(2) => PortState::Learning,
                    Some(3) => PortState::Forwarding,
                    Some(4) => PortState::Blocking,
                    _ => PortState::Disabled,
                });
            }
            _ => {}
        }
    }
}

fn xdp(bytes: &[u8]) -> Vec<(XdpMode, u32)> {
    let mut programs = Vec::new();
    let (mut attached, mut only) = (0, None);
    for attribute in attributes(bytes) {
        let id = u32_at(attribute.value(), 0);
        let mode = match attribute.kind() {
            IFLA_XDP_ATTACHED => {
                attached = attribute.value().first().copied().unwrap_or(0);
                continue;
            }
            IFLA_XDP_PROG_ID => {
                only = id;
                continue;
            }
            IFLA_XDP_DRV_PROG_ID => XdpMode::Native,
            IFLA_XDP_SKB_PROG_ID => XdpMode::Generic,
            IFLA_XDP_HW_PROG_ID => XdpMode::Offload,
            _ => continue,
        };
        programs.extend(id.map(|id| (mode, id)));
    }
    // Kernels before 4.17 name only the one program and its place.
    if programs.is_empty()
        && let Some(id) = only
    {
        let mode = match attached {
            2 => XdpMode::Generic,
            3 => XdpMode::Offload,
            _ => XdpMode::Native,
        };
        programs.push((mode, id));
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::push_attribute;

    fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in attributes {
            push_attribute(&mut bytes, *kind, value);
        }
        bytes
    }

    fn message() -> Vec<u8> {
        let stats: Vec<u8> = (0u64..25).flat_map(|i| (100 + i).to_ne_bytes()).collect();
        let xdp = nested(&[(2, &[1]), (4, &77u32.to_ne_bytes()), (5, &77u32.to_ne_bytes())]);
        let port = nested(&[(1, &[3])]);
        let info = nested(&[(1, b"veth\0"), (4, b"bridge\0"), (5, &port)]);
        let mut payload = [0u32, 12, IFF_UP, 0].map(u32::to_ne_bytes).concat();
        payload.extend(nested(&[
            (IFLA_IFNAME, b"ek0\0"),
            (IFLA_OPERSTATE, &[6]),
            (IFLA_MASTER, &5u32.to_ne_bytes()),
            (IFLA_PROMISCUITY, &1u32.to_ne_bytes()),
            (IFLA_STATS64, &stats),
            (IFLA_XDP, &xdp),
            (IFLA_LINKINFO, &info),
        ]));
        payload
    }

    #[test]
    fn a_vlan_device_with_priorities_and_one_without() {
        let map = nested(&[(1, &[[1u32, 5].map(u32::to_ne_bytes).concat()].concat())]);
        for (more, priorities) in [(vec![], false), (vec![(IFLA_VLAN_EGRESS_QOS, map.as_slice())], true)] {
            let id = 7u16.to_ne_bytes();
            let data = nested(&[vec![(IFLA_VLAN_ID, id.as_slice())], more].concat());
            let info = nested(&[(1, b"vlan\0"), (2, &data)]);
            let payload =
                [[0u32, 9, IFF_UP, 0].map(u32::to_ne_bytes).concat(), nested(&[(IFLA_LINKINFO, &info)])].concat();
            let (_, link) = parse(&payload).expect("a link");
            assert_eq!((link.vlan, link.vlan_priorities), (Some(7), priorities));
        }
    }

    #[test]
    fn what_frames_begin_with_is_known_by_hardware_type_and_kind() {
        let of = |hardware, kind: &str| Link { hardware, kind: kind.into(), ..Link::default() }.frame_start();
        for kind in ["veth", "", "tun", "gretap"] {
            assert_eq!(of(1, kind), FrameStart::Ethernet, "a tap is of kind tun");
        }
        assert_eq!(of(772, ""), FrameStart::Ethernet);
        for (hardware, kind) in [
            (65534, "tun"),
            (65534, "wireguard"),
            (512, "ppp"),
            (512, ""),
            (768, "ipip"),
            (769, "ip6tnl"),
            (776, "sit"),
        ] {
            assert_eq!(of(hardware, kind), FrameStart::Ip, "{kind}");
        }
        for (hardware, kind) in
            [(778, "gre"), (823, "ip6gre"), (768, "vti"), (65534, "xfrm"), (65534, ""), (32, ""), (803, "")]
        {
            assert_eq!(of(hardware, kind), FrameStart::Other(hardware), "{kind}");
        }
    }

    #[test]
    fn a_message_of_the_kernel() {
        let (index, link) = parse(&message()).expect("a link");
        assert_eq!((index, link.name.as_str(), link.kind.as_str()), (12, "ek0", "veth"));
        assert!(link.up && link.running && link.promiscuous);
        assert_eq!((link.master, link.bridge_port), (Some(5), Some(PortState::Forwarding)));
        assert_eq!(link.xdp, [(XdpMode::Native, 77)]);
        assert_eq!((link.stats.rx_packets, link.stats.rx_missed_errors, link.stats.rx_nohandler), (100, 115, 123));
        for end in 0..message().len() {
            let _ = parse(&message()[..end]);
        }
    }
}
