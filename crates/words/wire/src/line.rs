//! A packet in one line, for people.

use std::fmt::Write;

use crate::{
    Ip, Mac, Transport,
    ip::protocol,
    transport::{TcpHeader, tcp_flags},
};

/// A packet in one line as tcpdump's users know it. `link_header`: bytes of the Ethernet header (0: none); `ether_type`: protocol of the rest. The
/// packet may be cut.
pub fn describe(bytes: &[u8], link_header: usize, ether_type: u16) -> String {
    let (link, packet) = bytes.split_at(link_header.min(bytes.len()));
    let addresses = match link {
        [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] => {
            let (to, from) = (Mac([*d0, *d1, *d2, *d3, *d4, *d5]), Mac([*s0, *s1, *s2, *s3, *s4, *s5]));
            format!("{from} > {to} ")
        }
        _ => String::new(),
    };
    match Ip::parse(packet) {
        Ok(ip) if matches!(ether_type, 0x0800 | 0x86dd) => ip_line(&ip),
        Err(e) if matches!(ether_type, 0x0800 | 0x86dd) => format!("{addresses}IP, damaged or cut: {e}"),
        _ if ether_type == 0x0806 => format!("{addresses}{}", arp(packet)),
        _ => format!("{addresses}EtherType {ether_type:#06x}"),
    }
}

fn ip_line(ip: &Ip<'_>) -> String {
    let version = if ip.source().is_ipv4() { "IP" } else { "IP6" };
    let port = |port: Option<u16>| port.map_or_else(String::new, |p| format!(".{p}"));
    let transport = Transport::parse(ip);
    let ports = transport.as_ref().ok().and_then(Transport::ports);
    let (from, to) = (port(ports.map(|p| p.0)), port(ports.map(|p| p.1)));
    let mut text = format!("{version} {}{from} > {}{to}: ", ip.source(), ip.destination());
    // Writing to a String cannot fail.
    let _ = match transport {
        Ok(Transport::Udp(udp, _)) => write!(text, "UDP, length {}", udp.len.get().saturating_sub(8)),
        Ok(Transport::Tcp(tcp, ..)) => write!(text, "{}", tcp_line(tcp)),
        Ok(Transport::Icmp(icmp, _)) => write!(text, "ICMP type {} code {}", icmp.kind, icmp.code),
        Ok(Transport::Other(_)) => match ip.fragment() {
            Some(f) if f.offset > 0 => write!(text, "fragment of {:#06x}, offset {}", f.id, f.offset),
            _ => write!(text, "IP protocol {}", ip.protocol()),
        },
        Err(e) => {
            write!(text, "{}, damaged or cut: {e}", if ip.protocol() == protocol::TCP { "TCP" } else { "payload" })
        }
    };
    let _ = write!(text, ", ttl {}", ip.hop_limit());
    text
}

fn tcp_line(tcp: &TcpHeader) -> String {
    let bits = tcp.offset_flags.get();
    let letters = [
        (tcp_flags::FIN, 'F'),
        (tcp_flags::SYN, 'S'),
        (tcp_flags::RST, 'R'),
        (tcp_flags::PSH, 'P'),
        (tcp_flags::ACK, '.'),
    ];
    let flags: String = letters.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| *letter).collect();
    format!(
        "Flags [{}], seq {}, ack {}, win {}",
        if flags.is_empty() { "none" } else { &flags },
        tcp.sequence,
        tcp.acknowledgement,
        tcp.window
    )
}

fn arp(packet: &[u8]) -> String {
    match packet {
        [0, 1, 8, 0, 6, 4, 0, operation, rest @ ..] if rest.len() >= 20 => {
            let address = |at: usize| format!("{}.{}.{}.{}", rest[at], rest[at + 1], rest[at + 2], rest[at + 3]);
            match operation {
                1 => format!("ARP, who has {} tell {}", address(16), address(6)),
                2 => {
                    format!("ARP, {} is at {}", address(6), Mac([rest[0], rest[1], rest[2], rest[3], rest[4], rest[5]]))
                }
                other => format!("ARP, operation {other}"),
            }
        }
        _ => "ARP, cut or of another kind".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey, FrameSize, Kind, Template};

    fn frame(kind: Kind) -> Vec<u8> {
        let template =
            Template { destination: Mac([2, 0, 0, 0, 0, 2]), source: Mac([2, 0, 0, 0, 0, 1]), tags: [None; 2], kind };
        let flow = FlowKey {
            source: [198, 18, 0, 1].into(),
            destination: [198, 18, 0, 2].into(),
            source_port: 5000,
            destination_port: 9,
        };
        template.build(&flow, FrameSize::MIN, 0).expect("a frame")
    }

    #[test]
    fn packets_are_reported_in_a_line() {
        let udp = frame(Kind::Udp);
        assert_eq!(describe(&udp, 14, 0x0800), "IP 198.18.0.1.5000 > 198.18.0.2.9: UDP, length 18, ttl 64");
        assert_eq!(describe(&udp[14..], 0, 0x0800), describe(&udp, 14, 0x0800));
        let cut = describe(&udp[..30], 14, 0x0800);
        assert!(cut.starts_with("02:00:00:00:00:01 > 02:00:00:00:00:02 IP, damaged or cut"), "{cut}");
        let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
        assert_eq!(describe(&arp, 0, 0x0806), "ARP, who has 10.0.0.2 tell 10.0.0.1");
        assert_eq!(describe(&[], 0, 0x88cc), "EtherType 0x88cc");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), link in 0usize..20, kind in 0u16..4) {
            let _ = describe(&bytes, link, [0x0800, 0x86dd, 0x0806, 1][usize::from(kind)]);
        }
    }
}
