//! One readable line per packet.

use std::io::Write;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use port::Frame;

/// LINKTYPE_RAW: packets begin with their IP header.
const RAW_IP: u16 = 101;

/// Appends a line: time of day (UTC), addresses, what it carries, length. Packets of other link types than Ethernet (1) and raw IP (101)
/// are not looked into.
pub fn line(out: &mut Vec<u8>, frame: &Frame<'_>, link_type: u16) {
    if frame.lost_before != 0 {
        let _ = writeln!(out, "-- {} packets lost here --", frame.lost_before);
    }
    let seconds = frame.timestamp_ns / 1_000_000_000 % 86_400;
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{h:02}:{m:02}:{s:02}.{:06} ", frame.timestamp_ns % 1_000_000_000 / 1000);
    if let Some(tag) = frame.vlan {
        let _ = write!(out, "vlan {} ", tag.tci & 0xfff);
    }
    describe(out, frame.data, link_type);
    let _ = writeln!(out, " length {}", frame.wire_len);
}

fn describe(out: &mut Vec<u8>, data: &[u8], link_type: u16) {
    let sliced = match link_type {
        1 => SlicedPacket::from_ethernet(data).ok(),
        RAW_IP => SlicedPacket::from_ip(data).ok(),
        _ => None,
    };
    let Some(packet) = sliced else {
        if link_type != 1 {
            let what = if link_type == RAW_IP { "no IP, cut or malformed" } else { "not looked into" };
            let _ = write!(out, "link type {link_type}, {what}");
            return;
        }
        let _ = match data {
            [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1, ..] => write!(
                out,
                "{s0:02x}:{s1:02x}:{s2:02x}:{s3:02x}:{s4:02x}:{s5:02x} > \
                 {d0:02x}:{d1:02x}:{d2:02x}:{d3:02x}:{d4:02x}:{d5:02x} type 0x{t0:02x}{t1:02x}, cut or malformed"
            ),
            _ => write!(out, "cut frame"),
        };
        return;
    };
    for vlan in packet.vlan_ids() {
        let _ = write!(out, "vlan {} ", vlan.value());
    }
    let (source, destination) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => (ip.header().source_addr().to_string(), ip.header().destination_addr().to_string()),
        Some(NetSlice::Ipv6(ip)) => {
            (format!("[{}]", ip.header().source_addr()), format!("[{}]", ip.header().destination_addr()))
        }
        _ => return ethernet(out, data),
    };
    let _ = match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let flags = [
                (tcp.syn(), 'S'),
                (tcp.fin(), 'F'),
                (tcp.rst(), 'R'),
                (tcp.psh(), 'P'),
                (tcp.urg(), 'U'),
                (tcp.ack(), '.'),
            ];
            let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, c)| c).collect();
            write!(
                out,
                "{source}:{} > {destination}:{} TCP [{flags}] seq {}",
                tcp.source_port(),
                tcp.destination_port(),
                tcp.sequence_number()
            )
        }
        Some(TransportSlice::Udp(udp)) => {
            write!(out, "{source}:{} > {destination}:{} UDP", udp.source_port(), udp.destination_port())
        }
        Some(TransportSlice::Icmpv4(_)) => write!(out, "{source} > {destination} ICMP"),
        Some(TransportSlice::Icmpv6(_)) => write!(out, "{source} > {destination} ICMPv6"),
        _ => {
            let protocol = match &packet.net {
                Some(NetSlice::Ipv4(ip)) => ip.payload().ip_number.0,
                Some(NetSlice::Ipv6(ip)) => ip.payload().ip_number.0,
                _ => 0,
            };
            write!(out, "{source} > {destination} IP protocol {protocol}")
        }
    };
}

fn ethernet(out: &mut Vec<u8>, data: &[u8]) {
    let mac = |b: &[u8]| b.iter().map(|x| format!("{x:02x}")).collect::<Vec<_>>().join(":");
    if let (Some(d), Some(s), Some(t)) = (data.get(..6), data.get(6..12), data.get(12..14)) {
        let _ = write!(out, "{} > {} type 0x{:02x}{:02x}", mac(s), mac(d), t[0], t[1]);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn shown(data: &[u8], link_type: u16) -> String {
        let mut out = Vec::new();
        let frame = Frame {
            timestamp_ns: 3_661_000_001_000,
            wire_len: data.len() as u32,
            data,
            vlan: None,
            unfinished: false,
            lost_before: 0,
        };
        line(&mut out, &frame, link_type);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_syn_reads_as_one() {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64)
            .tcp(1234, 80, 7, 100)
            .syn();
        let mut packet = Vec::new();
        builder.write(&mut packet, &[]).expect("a packet");
        assert_eq!(shown(&packet, 1), "01:01:01.000001 198.18.0.1:1234 > 198.18.0.2:80 TCP [S] seq 7 length 54\n");
        assert!(shown(&packet[..20], 1).contains("type 0x0800, cut or malformed"));
        let raw = "01:01:01.000001 198.18.0.1:1234 > 198.18.0.2:80 TCP [S] seq 7 length 40\n";
        assert_eq!(shown(&packet[14..], 101), raw);
        assert!(shown(&packet, 113).contains("link type 113, not looked into"));
    }

    proptest! {
        #[test]
        fn any_bytes_make_one_line(data in prop::collection::vec(any::<u8>(), 0..120), link_type in prop::sample::select(vec![1u16, 101, 113])) {
            prop_assert_eq!(shown(&data, link_type).matches('\n').count(), 1);
        }
    }
}
