//! What IP and ARP packets carry.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, Ipv6Addr},
};

use etherparse::{ArpPacketSlice, IpNumber, LaxIpv4Slice, LaxIpv6Slice, TcpOptionElement, TcpSlice, TransportSlice};

/// An ARP packet of IPv4 over Ethernet, or of another kind by its operation.
pub(super) fn arp(out: &mut Vec<u8>, arp: &ArpPacketSlice<'_>, rest: u32) -> io::Result<()> {
    let bytes = arp.slice();
    let address = |at: usize| bytes.get(at..at + 4).map(|b| Ipv4Addr::new(b[0], b[1], b[2], b[3]));
    let operation = bytes.get(6..8).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    match (operation, address(14), bytes.get(8..14), address(24)) {
        (1, Some(asking), _, Some(wanted)) => {
            write!(out, "ARP, Request who-has {wanted} tell {asking}, length {rest}")
        }
        (2, Some(told), Some(mac), _) => write!(out, "ARP, Reply {told} is-at {}, length {rest}", super::Mac(mac)),
        _ => write!(out, "ARP, operation {operation}, length {rest}"),
    }
}

fn protocol(number: IpNumber) -> String {
    number.keyword_str().map_or_else(|| format!("proto-{}", number.0), |name| name.replace("IPv6-ICMP", "ICMPv6"))
}

pub(super) fn v4(
    out: &mut Vec<u8>,
    ip: &LaxIpv4Slice<'_>,
    transport: Option<&TransportSlice<'_>>,
    rest: u32,
    verbose: bool,
) -> io::Result<()> {
    let header = ip.header();
    out.write_all(b"IP ")?;
    if verbose {
        let flags = match (header.dont_fragment(), header.more_fragments()) {
            (true, true) => "DF,+",
            (true, false) => "DF",
            (false, true) => "+",
            (false, false) => "none",
        };
        write!(
            out,
            "(tos 0x{:x}, ttl {}, id {}, offset {}, flags [{flags}], proto {} ({}), length {}) ",
            header.slice().get(1).copied().unwrap_or(0),
            header.ttl(),
            header.identification(),
            header.fragments_offset().byte_offset(),
            protocol(header.protocol()),
            header.protocol().0,
            header.total_len(),
        )?;
    }
    // A packet that the kernel has not cut into segments yet may have no total length.
    let total = if header.total_len() == 0 { rest } else { u32::from(header.total_len()) };
    let extensions = ip.extensions().auth.map_or(0, |auth| auth.slice().len());
    let payload = total.saturating_sub((header.slice().len() + extensions) as u32);
    let ends = (header.source_addr().to_string(), header.destination_addr().to_string());
    let fragment = header.fragments_offset().byte_offset() > 0;
    carried(out, &ends, transport.filter(|_| !fragment), ip.payload_ip_number(), payload)
}

pub(super) fn v6(
    out: &mut Vec<u8>,
    ip: &LaxIpv6Slice<'_>,
    transport: Option<&TransportSlice<'_>>,
    rest: u32,
    verbose: bool,
) -> io::Result<()> {
    let header = ip.header();
    out.write_all(b"IP6 ")?;
    if verbose {
        write!(
            out,
            "(class 0x{:x}, flowlabel 0x{:05x}, hlim {}, next-header {} ({}) payload length: {}) ",
            header.traffic_class(),
            header.flow_label().value(),
            header.hop_limit(),
            protocol(header.next_header()),
            header.next_header().0,
            header.payload_length(),
        )?;
    }
    let length = match header.payload_length() {
        0 => rest.saturating_sub(header.slice().len() as u32),
        length => u32::from(length),
    };
    let payload = length.saturating_sub(ip.extensions().slice().len() as u32);
    let ends = (header.source_addr().to_string(), header.destination_addr().to_string());
    carried(out, &ends, transport, ip.payload().ip_number, payload)
}

/// Both ends and the transport protocol; `payload` is the length of what IP carries.
fn carried(
    out: &mut Vec<u8>,
    (from, to): &(String, String),
    transport: Option<&TransportSlice<'_>>,
    number: IpNumber,
    payload: u32,
) -> io::Result<()> {
    match transport {
        Some(TransportSlice::Udp(udp)) => {
            let length = match udp.length() {
                0 => payload.saturating_sub(8),
                length => u32::from(length).saturating_sub(8),
            };
            write!(out, "{from}.{} > {to}.{}: UDP, length {length}", udp.source_port(), udp.destination_port())
        }
        Some(TransportSlice::Tcp(segment)) => {
            write!(out, "{from}.{} > {to}.{}: ", segment.source_port(), segment.destination_port())?;
            let header = u32::from(segment.data_offset()) * 4;
            tcp(out, segment, payload.saturating_sub(header))
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            write!(out, "{from} > {to}: ICMP ")?;
            match (icmp.type_u8(), icmp.code_u8(), icmp.bytes5to8()) {
                (8 | 0, _, [i0, i1, s0, s1]) => {
                    let name = if icmp.type_u8() == 8 { "request" } else { "reply" };
                    let (id, seq) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([s0, s1]));
                    write!(out, "echo {name}, id {id}, seq {seq}")?;
                }
                (3, code, _) => write!(out, "{} unreachable", unreachable(code))?,
                (5, ..) => write!(out, "redirect")?,
                (11, 0, _) => write!(out, "time exceeded in-transit")?,
                (11, ..) => write!(out, "ip reassembly time exceeded")?,
                (kind, code, _) => write!(out, "type-#{kind}, code {code}")?,
            }
            write!(out, ", length {payload}")
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            write!(out, "{from} > {to}: ICMP6, ")?;
            let bytes = icmp.slice();
            let target = bytes.get(8..24).and_then(|b| <[u8; 16]>::try_from(b).ok()).map(Ipv6Addr::from);
            match (icmp.type_u8(), icmp.bytes5to8(), target) {
                (128 | 129, [i0, i1, s0, s1], _) => {
                    let name = if icmp.type_u8() == 128 { "request" } else { "reply" };
                    let (id, seq) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([s0, s1]));
                    write!(out, "echo {name}, id {id}, seq {seq}")?;
                }
                (1, ..) => write!(out, "destination unreachable, code {}", icmp.code_u8())?,
                (2, ..) => write!(out, "packet too big")?,
                (3, ..) => write!(out, "time exceeded")?,
                (133, ..) => write!(out, "router solicitation")?,
                (134, ..) => write!(out, "router advertisement")?,
                (135, _, Some(target)) => write!(out, "neighbor solicitation, who has {target}")?,
                (136, _, Some(target)) => write!(out, "neighbor advertisement, tgt is {target}")?,
                (kind, ..) => write!(out, "type-#{kind}, code {}", icmp.code_u8())?,
            }
            write!(out, ", length {payload}")
        }
        _ => write!(out, "{from} > {to}: {}, length {payload}", protocol(number)),
    }
}

/// What cannot be reached by the code of an ICMP message.
fn unreachable(code: u8) -> &'static str {
    match code {
        0 => "net",
        1 => "host",
        2 => "protocol",
        3 => "port",
        4 => "(need to frag)",
        9 | 10 | 13 => "(admin prohibited)",
        _ => "destination",
    }
}

fn tcp(out: &mut Vec<u8>, tcp: &TcpSlice<'_>, length: u32) -> io::Result<()> {
    let flags = [
        (tcp.syn(), 'S'),
        (tcp.fin(), 'F'),
        (tcp.rst(), 'R'),
        (tcp.psh(), 'P'),
        (tcp.ack(), '.'),
        (tcp.urg(), 'U'),
        (tcp.ece(), 'E'),
        (tcp.cwr(), 'W'),
    ];
    let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, c)| c).collect();
    write!(out, "Flags [{}], ", if flags.is_empty() { "none" } else { &flags })?;
    let first = tcp.sequence_number();
    // A segment without data has a number where that says something.
    if length > 0 {
        write!(out, "seq {first}:{}, ", first.wrapping_add(length))?;
    } else if tcp.syn() || tcp.fin() || tcp.rst() {
        write!(out, "seq {first}, ")?;
    }
    if tcp.ack() {
        write!(out, "ack {}, ", tcp.acknowledgment_number())?;
    }
    write!(out, "win {}", tcp.window_size())?;
    if tcp.urg() {
        write!(out, ", urg {}", tcp.urgent_pointer())?;
    }
    if !tcp.options().is_empty() {
        let options: Vec<String> = tcp.options_iterator().map_while(Result::ok).map(|o| option(&o)).collect();
        write!(out, ", options [{}]", options.join(","))?;
    }
    write!(out, ", length {length}")
}

fn option(option: &TcpOptionElement) -> String {
    match option {
        TcpOptionElement::Noop => "nop".into(),
        TcpOptionElement::MaximumSegmentSize(bytes) => format!("mss {bytes}"),
        TcpOptionElement::WindowScale(shift) => format!("wscale {shift}"),
        TcpOptionElement::SelectiveAcknowledgementPermitted => "sackOK".into(),
        TcpOptionElement::SelectiveAcknowledgement(first, more) => {
            let ranges: Vec<&(u32, u32)> = std::iter::once(first).chain(more.iter().flatten()).collect();
            let text: String = ranges.iter().map(|(from, to)| format!("{{{from}:{to}}}")).collect();
            format!("sack {} {text}", ranges.len())
        }
        TcpOptionElement::Timestamp(value, echo) => format!("TS val {value} ecr {echo}"),
    }
}
