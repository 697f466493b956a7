//! Payload of IP and ARP packets.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, Ipv6Addr},
};

use etherparse::{
    ArpPacketSlice, Icmpv4Slice, Icmpv6Slice, IpNumber, Ipv6ExtensionSlice, LaxIpv4Slice, LaxIpv6Slice,
    TcpOptionElement, TcpSlice, TransportSlice, UdpSlice,
};

use wire::Mac;

use super::Shown;

/// An ARP packet of IPv4 over Ethernet, or of another kind by its operation.
pub(super) fn arp(out: &mut Vec<u8>, arp: &ArpPacketSlice<'_>, rest: u32) -> io::Result<()> {
    let bytes = arp.slice();
    let address = |at: usize| bytes.get(at..at + 4).map(|b| Ipv4Addr::new(b[0], b[1], b[2], b[3]));
    let operation = bytes.get(6..8).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    match (operation, address(14), bytes.get(8..14).and_then(<[u8]>::first_chunk), address(24)) {
        (1, Some(asking), _, Some(wanted)) => {
            write!(out, "ARP, Request who-has {wanted} tell {asking}, length {rest}")
        }
        (2, Some(written), Some(mac), _) => write!(out, "ARP, Reply {written} is-at {}, length {rest}", Mac(*mac)),
        _ => write!(out, "ARP, operation {operation}, length {rest}"),
    }
}

fn protocol(number: IpNumber) -> String {
    number.keyword_str().map_or_else(|| format!("proto-{}", number.0), |name| name.replace("IPv6-ICMP", "ICMPv6"))
}

/// Sender and receiver, as they stand before the payload.
struct Ends {
    from: String,
    to: String,
    /// The addresses stand before an IPv6 fragment header already.
    written: bool,
}

impl Ends {
    fn hosts(&self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.written { Ok(()) } else { write!(out, "{} > {}: ", self.from, self.to) }
    }

    fn ports(&self, out: &mut Vec<u8>, from: u16, to: u16) -> io::Result<()> {
        if self.written {
            write!(out, "{from} > {to}: ")
        } else {
            write!(out, "{}.{from} > {}.{to}: ", self.from, self.to)
        }
    }
}

/// Payload of an IP packet.
struct Carried<'a> {
    number: IpNumber,
    transport: Option<TransportSlice<'a>>,
    bytes: &'a [u8],
    /// Length on the wire.
    length: u32,
}

/// The transport header of a first fragment, which etherparse leaves unread; none where it is not all there.
fn of_first_fragment(number: IpNumber, bytes: &[u8]) -> Option<TransportSlice<'_>> {
    match number {
        IpNumber::UDP => UdpSlice::from_slice_lax(bytes).ok().map(TransportSlice::Udp),
        IpNumber::TCP => TcpSlice::from_slice(bytes).ok().map(TransportSlice::Tcp),
        IpNumber::ICMP => Icmpv4Slice::from_slice(bytes).ok().map(TransportSlice::Icmpv4),
        IpNumber::IPV6_ICMP => Icmpv6Slice::from_slice(bytes).ok().map(TransportSlice::Icmpv6),
        _ => None,
    }
}

/// Writes a fragment behind the first: only its place and length are known.
fn later(out: &mut Vec<u8>, offset: u32, carried: &Carried<'_>) -> io::Result<()> {
    write!(out, "frag ({offset}|{}) {}", carried.length, protocol(carried.number))
}

pub(super) fn v4(
    out: &mut Vec<u8>,
    ip: &LaxIpv4Slice<'_>,
    transport: Option<&TransportSlice<'_>>,
    rest: u32,
    shown: Shown,
) -> io::Result<()> {
    let header = ip.header();
    let offset = u32::from(header.fragments_offset().byte_offset());
    out.write_all(b"IP ")?;
    if shown.verbose {
        let flags = match (header.dont_fragment(), header.more_fragments()) {
            (true, true) => "DF,+",
            (true, false) => "DF",
            (false, true) => "+",
            (false, false) => "none",
        };
        write!(
            out,
            "(tos 0x{:x}, ttl {}, id {}, offset {offset}, flags [{flags}], proto {} ({}), length {}) ",
            header.slice().get(1).copied().unwrap_or(0),
            header.ttl(),
            header.identification(),
            protocol(header.protocol()),
            header.protocol().0,
            header.total_len(),
        )?;
    }
    // A packet that the kernel has not cut into segments yet may have no total length.
    let total = if header.total_len() == 0 { rest } else { u32::from(header.total_len()) };
    let extensions = ip.extensions().auth.map_or(0, |auth| auth.slice().len());
    let (number, bytes) = (ip.payload_ip_number(), ip.payload().payload);
    let first = || of_first_fragment(number, bytes).filter(|_| header.more_fragments());
    let carried = Carried {
        number,
        transport: transport.cloned().or_else(first),
        bytes,
        length: total.saturating_sub((header.slice().len() + extensions) as u32),
    };
    let ends =
        Ends { from: header.source_addr().to_string(), to: header.destination_addr().to_string(), written: false };
    if offset > 0 {
        ends.hosts(out)?;
        return later(out, offset, &carried);
    }
    write_carried(out, &ends, &carried, shown.quick)
}

pub(super) fn v6(
    out: &mut Vec<u8>,
    ip: &LaxIpv6Slice<'_>,
    transport: Option<&TransportSlice<'_>>,
    rest: u32,
    shown: Shown,
) -> io::Result<()> {
    let header = ip.header();
    out.write_all(b"IP6 ")?;
    if shown.verbose {
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
    let (number, bytes) = (ip.payload().ip_number, ip.payload().payload);
    let fragment = ip.extensions().clone().into_iter().find_map(|extension| match extension {
        Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment),
        _ => None,
    });
    let first = || of_first_fragment(number, bytes).filter(|_| fragment.is_some());
    let carried = Carried {
        number,
        transport: transport.cloned().or_else(first),
        bytes,
        length: length.saturating_sub(ip.extensions().slice().len() as u32),
    };
    let mut ends =
        Ends { from: header.source_addr().to_string(), to: header.destination_addr().to_string(), written: false };
    if let Some(fragment) = fragment {
        ends.hosts(out)?;
        ends.written = true;
        let offset = u32::from(fragment.fragment_offset().byte_offset());
        if offset > 0 {
            return later(out, offset, &carried);
        }
        write!(out, "frag (0|{}) ", carried.length)?;
    }
    write_carried(out, &ends, &carried, shown.quick)
}

/// Both ends and the transport protocol.
fn write_carried(out: &mut Vec<u8>, ends: &Ends, carried: &Carried<'_>, quick: bool) -> io::Result<()> {
    let payload = carried.length;
    match &carried.transport {
        Some(TransportSlice::Udp(udp)) => {
            let length = match udp.length() {
                0 => payload.saturating_sub(8),
                length => u32::from(length).saturating_sub(8),
            };
            ends.ports(out, udp.source_port(), udp.destination_port())?;
            write!(out, "UDP, length {length}")
        }
        Some(TransportSlice::Tcp(segment)) => {
            ends.ports(out, segment.source_port(), segment.destination_port())?;
            let length = payload.saturating_sub(u32::from(segment.data_offset()) * 4);
            if quick { write!(out, "tcp {length}") } else { tcp(out, segment, length) }
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            ends.hosts(out)?;
            out.write_all(b"ICMP ")?;
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
            ends.hosts(out)?;
            out.write_all(b"ICMP6, ")?;
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
        _ => match (carried.number, carried.bytes) {
            (IpNumber::SCTP, [f0, f1, t0, t1, ..]) => {
                ends.ports(out, u16::from_be_bytes([*f0, *f1]), u16::from_be_bytes([*t0, *t1]))?;
                out.write_all(b"sctp")?;
                sctp(out, carried.bytes, payload)
            }
            (number @ (IpNumber::DCCP | IpNumber::UDP_LITE), [f0, f1, t0, t1, ..]) => {
                ends.ports(out, u16::from_be_bytes([*f0, *f1]), u16::from_be_bytes([*t0, *t1]))?;
                write!(out, "{}, length {payload}", protocol(number))
            }
            (number, _) => {
                ends.hosts(out)?;
                write!(out, "{}, length {payload}", protocol(number))
            }
        },
    }
}

/// The chunks of an SCTP packet (RFC 9260) that are there, by number and name, and its length.
fn sctp(out: &mut Vec<u8>, bytes: &[u8], length: u32) -> io::Result<()> {
    const NAMES: [&str; 15] = [
        "DATA",
        "INIT",
        "INIT ACK",
        "SACK",
        "HB REQ",
        "HB ACK",
        "ABORT",
        "SHUTDOWN",
        "SHUTDOWN ACK",
        "OP ERR",
        "COOKIE ECHO",
        "COOKIE ACK",
        "ECN ECHO",
        "CWR",
        "SHUTDOWN COMPLETE",
    ];
    let (mut at, mut number) = (12, 0);
    while let Some([kind, _, l0, l1]) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        number += 1;
        match NAMES.get(usize::from(*kind)) {
            Some(name) => write!(out, " ({number}) [{name}]")?,
            None => write!(out, " ({number}) [type {kind}]")?,
        }
        // A chunk is at least its header, and ends at a multiple of four.
        at += usize::from(u16::from_be_bytes([*l0, *l1])).max(4).next_multiple_of(4);
    }
    write!(out, ", length {length}")
}

/// The unreachable thing, by the code of an ICMP message.
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
