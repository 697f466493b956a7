//! A frame as the rules see it: the kernel programs' parser (`parse.h`) over again, in plain Rust.
//!
//! Both must agree on every frame; tests send the same bytes through both. No bytes make it panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::known::Known;

mod transport;

/// Tags that are looked behind (802.1ad, 802.1Q): what has more is not IP to the rules.
pub const TAGS_MAX: usize = 2;
/// Extension headers that are looked behind; what has more is malformed.
pub const EXTENSIONS_MAX: usize = 8;

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const IPV6_LEN: usize = 40;
const TCP: u8 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A packet that rules are about.
    Ip(Packet),
    /// A frame of another protocol (ARP, LLDP, ..): it passes.
    NotIp,
    /// IP that is cut short or contradicts itself, with the reason.
    Malformed(&'static str),
}

/// Part of a packet, as to fragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    #[default]
    Whole,
    /// The fragment that begins a packet.
    First,
    /// A fragment behind the first.
    Later,
}

/// Fields of a packet that rules can test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Source address; its family is the packet's.
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Source and destination port of TCP, UDP, UDP-Lite, SCTP and DCCP; none in later fragments.
    pub ports: Option<(u16, u16)>,
    /// IPv4's total length, IPv6's payload length plus 40; at most 65,535.
    pub len: u16,
    /// VLAN id of the outermost tag.
    pub vlan: Option<u16>,
    /// Behind all extension headers.
    pub protocol: u8,
    /// Flags of TCP; none in later fragments.
    pub tcp_flags: Option<u8>,
    /// Type of ICMP (protocol 1 over IPv4) and of ICMPv6 (58 over IPv6); none in later fragments.
    pub icmp_type: Option<u8>,
    pub part: Part,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Facts from the machine; empty without a lookup.
    pub known: Known,
    /// The offset of the IP header from the start of the frame, in bytes.
    pub ip_at: usize,
    /// The offset of the transport header (a later fragment's data).
    pub transport_at: usize,
}

impl Packet {
    /// Parses a frame from its Ethernet header on.
    pub fn parse(frame: &[u8]) -> Parsed {
        match ethernet(frame) {
            Ok((0x0800, vlan, at)) => parsed(ipv4(frame, at, vlan)),
            Ok((0x86dd, vlan, at)) => parsed(ipv6(frame, at, vlan)),
            Ok(_) => Parsed::NotIp,
            Err(why) => Parsed::Malformed(why),
        }
    }

    /// Parses a packet without a link layer, as tunnels have them.
    pub fn parse_ip(packet: &[u8]) -> Parsed {
        match packet.first().map(|b| b >> 4) {
            Some(4) => parsed(ipv4(packet, 0, None)),
            Some(6) => parsed(ipv6(packet, 0, None)),
            Some(_) => Parsed::Malformed("neither IPv4 nor IPv6"),
            None => Parsed::Malformed("empty"),
        }
    }

    /// As [`Packet::parse`], of a frame that was captured where it was sent: TCP of length 0 is still to be cut by the card, and as long as its frame.
    pub fn parse_uncut(frame: &[u8]) -> Parsed {
        filled(frame, ethernet(frame).ok()).map_or(Parsed::NotIp, |whole| Self::parse(&whole))
    }

    /// [`Packet::parse_uncut`] of a packet without a link layer.
    pub fn parse_ip_uncut(packet: &[u8]) -> Parsed {
        let kind = if packet.first().is_some_and(|b| b >> 4 == 4) { 0x0800 } else { 0x86dd };
        filled(packet, Some((kind, None, 0))).map_or(Parsed::NotIp, |whole| Self::parse_ip(&whole))
    }

    /// 4 or 6.
    pub fn family(&self) -> u8 {
        if self.source.is_ipv4() { 4 } else { 6 }
    }
}

/// The frame with its IP packet's length filled in; none: it is not TCP of length 0.
fn filled(frame: &[u8], behind: Option<Behind>) -> Option<Vec<u8>> {
    let (kind, _, at) = behind?;
    let (length_at, protocol_at, counted) = match kind {
        0x0800 => (2, 9, 0),
        0x86dd => (4, 6, IPV6_LEN),
        _ => return None,
    };
    let rest = frame.get(at..)?;
    if be16(rest, length_at)? != 0 || *rest.get(protocol_at)? != TCP {
        return None;
    }
    let len = u16::try_from(rest.len().checked_sub(counted)?).ok()?;
    let mut whole = frame.to_vec();
    whole[at + length_at..at + length_at + 2].copy_from_slice(&len.to_be_bytes());
    Some(whole)
}

fn parsed(result: Result<Packet, &'static str>) -> Parsed {
    match result {
        Ok(packet) => Parsed::Ip(packet),
        Err(why) => Parsed::Malformed(why),
    }
}

/// EtherType behind the tags, VLAN id of the outermost one, where the next header begins.
type Behind = (u16, Option<u16>, usize);

/// Reads Ethernet's header and at most two tags. Linux takes off any number of priority tags, and VLAN devices can lie within each other:
/// what is behind a third tag could reach a stack unseen.
fn ethernet(frame: &[u8]) -> Result<Behind, &'static str> {
    let mut kind = be16(frame, 12).ok_or("cut within the Ethernet header")?;
    let mut at = ETHERNET_LEN;
    let mut vlan = None;
    for _ in 0..TAGS_MAX {
        if !is_tag(kind) {
            break;
        }
        let tag = be16(frame, at).ok_or("cut within a VLAN tag")?;
        kind = be16(frame, at + 2).ok_or("cut within a VLAN tag")?;
        vlan.get_or_insert(tag & 0xfff);
        at += TAG_LEN;
    }
    if is_tag(kind) { Err("more than two VLAN tags") } else { Ok((kind, vlan, at)) }
}

fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8)
}

fn ipv4(frame: &[u8], at: usize, vlan: Option<u16>) -> Result<Packet, &'static str> {
    let rest = frame.get(at..).unwrap_or_default();
    let header = rest.get(..20).ok_or("cut within the IPv4 header")?;
    if header[0] >> 4 != 4 {
        return Err("EtherType IPv4, another version within");
    }
    let header_len = usize::from(header[0] & 0xf) * 4;
    if header_len < 20 {
        return Err("IPv4 header length below 20");
    }
    let len = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
        0 => big(rest).unwrap_or(0),
        len => len,
    };
    if len < header_len {
        return Err("IPv4 total length below the header's");
    }
    let packet = rest.get(..len).ok_or("IPv4 total length beyond the frame")?;
    let offset = u16::from_be_bytes([header[6], header[7]]);
    let part = match (offset & 0x1fff, offset & 0x2000 != 0) {
        (0, false) => Part::Whole,
        (0, true) => Part::First,
        _ => Part::Later,
    };
    let address = |n: usize| Ipv4Addr::new(header[n], header[n + 1], header[n + 2], header[n + 3]).into();
    Packet {
        source: address(12),
        destination: address(16),
        ports: None,
        len: u16::try_from(len).unwrap_or(u16::MAX),
        vlan,
        protocol: header[9],
        tcp_flags: None,
        icmp_type: None,
        part,
        dscp: header[1] >> 2,
        known: Known::default(),
        ip_at: at,
        transport_at: at + header_len,
    }
    .with_transport(&packet[header_len..])
}

fn ipv6(frame: &[u8], at: usize, vlan: Option<u16>) -> Result<Packet, &'static str> {
    let rest = frame.get(at..).unwrap_or_default();
    let header = rest.get(..IPV6_LEN).ok_or("cut within the IPv6 header")?;
    if header[0] >> 4 != 6 {
        return Err("EtherType IPv6, another version within");
    }
    let len = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        0 => big(rest).unwrap_or(IPV6_LEN),
        payload => payload + IPV6_LEN,
    };
    let packet = rest.get(..len).ok_or("IPv6 payload length beyond the frame")?;
    let chain = extensions(packet, header[6])?;
    let address = |n: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[n..n + 16]);
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    Packet {
        source: address(8),
        destination: address(24),
        ports: None,
        len: u16::try_from(len).unwrap_or(u16::MAX),
        vlan,
        protocol: chain.protocol,
        tcp_flags: None,
        icmp_type: None,
        part: chain.part,
        dscp: (header[0] & 0xf) << 2 | header[1] >> 6,
        known: Known::default(),
        ip_at: at,
        transport_at: at + chain.end,
    }
    .with_transport(&packet[chain.end..])
}

/// The protocol behind the extension headers, and its place.
struct Chain {
    protocol: u8,
    part: Part,
    end: usize,
}

/// Walks hop-by-hop options, routing, fragment, authentication and destination options headers (RFC 8200 section 4); it ends at
/// anything else, and at a later fragment, whose bytes are the middle of something.
fn extensions(packet: &[u8], first: u8) -> Result<Chain, &'static str> {
    const CUT: &str = "cut within the IPv6 extension headers";
    let mut chain = Chain { protocol: first, part: Part::Whole, end: IPV6_LEN };
    let mut seen = 0;
    while chain.part != Part::Later && matches!(chain.protocol, 0 | 43 | 44 | 51 | 60) {
        if seen == EXTENSIONS_MAX {
            return Err("more than 8 IPv6 extension headers");
        }
        seen += 1;
        let header = packet.get(chain.end..chain.end + 8).ok_or(CUT)?;
        let len = match chain.protocol {
            44 => {
                let offset = u16::from_be_bytes([header[2], header[3]]);
                if offset & 0xfff8 != 0 {
                    chain.part = Part::Later;
                } else if offset & 1 != 0 {
                    chain.part = Part::First;
                }
                8
            }
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if chain.end + len > packet.len() {
            return Err(CUT);
        }
        chain.protocol = header[0];
        chain.end += len;
    }
    Ok(chain)
}

/// The length of a packet that is longer than its length fields can say, which then are 0: BIG TCP, packets that a stack has merged or has still to cut.
fn big(packet: &[u8]) -> Option<usize> {
    (packet.len() > usize::from(u16::MAX)).then_some(packet.len())
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests;
