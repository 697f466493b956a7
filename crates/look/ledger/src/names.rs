//! Names of protocols and flows.

use bpf::drops::DropFlow;
use model::stations::Flow;

/// An EtherType; none for 0.
pub(crate) fn ethertype(ethertype: u16) -> Option<String> {
    Some(match ethertype {
        0 => return None,
        0x0800 => "IPv4".into(),
        0x86dd => "IPv6".into(),
        0x0806 => "ARP".into(),
        other => format!("{other:#06x}"),
    })
}

pub(crate) fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".into(),
        2 => "IGMP".into(),
        4 => "IPIP".into(),
        6 => "TCP".into(),
        17 => "UDP".into(),
        41 => "IPv6 in IP".into(),
        47 => "GRE".into(),
        50 => "ESP".into(),
        51 => "AH".into(),
        58 => "ICMPv6".into(),
        89 => "OSPF".into(),
        103 => "PIM".into(),
        112 => "VRRP".into(),
        132 => "SCTP".into(),
        other => format!("IP protocol {other}"),
    }
}

/// A flow for people and JSON.
pub(crate) fn flow(raw: &DropFlow) -> Flow {
    let port = |port| (port != 0).then_some(port);
    Flow {
        protocol: protocol(raw.protocol),
        source: raw.source,
        source_port: port(raw.source_port),
        destination: raw.destination,
        destination_port: port(raw.destination_port),
    }
}
