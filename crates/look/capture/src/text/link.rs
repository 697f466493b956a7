//! The link header of a packet, its tags, and what stands behind them.

use std::{fmt, io::Write};

use etherparse::{EtherType, LaxSlicedPacket};
use port::Frame;
use wire::{
    LinkType, Mac,
    link::{Direction, Protocol, Stripped, by_ether_type, is_tag},
};

use super::{Writer, llc};

/// tcpdump's name of an EtherType.
pub(super) fn ether_type(number: u16) -> &'static str {
    match number {
        0x0800 => "IPv4",
        0x0806 => "ARP",
        0x86dd => "IPv6",
        0x8100 => "802.1Q",
        0x88a8 => "802.1Q-QinQ",
        0x9100 => "802.1Q-9100",
        0x9200 => "802.1Q-9200",
        0x88cc => "LLDP",
        0x8847 => "MPLS unicast",
        0x8863 => "PPPoE D",
        0x8864 => "PPPoE S",
        _ => "Unknown",
    }
}

/// An EtherType as the link header of a line has it: its name alone where little is shown.
struct Kind {
    number: u16,
    quick: bool,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.quick, ether_type(self.number)) {
            (true, "Unknown") => write!(f, "Unknown Ethertype (0x{:04x})", self.number),
            (true, name) => f.write_str(name),
            (false, name) => write!(f, "ethertype {name} (0x{:04x})", self.number),
        }
    }
}

/// Both addresses of an Ethernet header: the sender's, and the receiver's.
fn addresses(data: &[u8]) -> Option<(Mac, Mac)> {
    let mac = |at: usize| data.get(at..at + 6)?.try_into().ok().map(Mac);
    Some((mac(6)?, mac(0)?))
}

/// A packet behind its link header and its tags.
struct Behind<'a> {
    stripped: Stripped<'a>,
    /// TPID and TCI of each tag; one that the kernel took out stands beside the frame.
    tags: Vec<(u16, u16)>,
    protocol: Protocol,
    payload: &'a [u8],
    /// Bytes before the payload.
    begin: usize,
}

impl<'a> Behind<'a> {
    fn new(link: LinkType, frame: &Frame<'a>) -> Option<Self> {
        let stripped = link.strip(frame.data)?;
        let Stripped { mut protocol, mut payload, header_len: mut begin, .. } = stripped;
        let mut tags: Vec<(u16, u16)> = frame.vlan.iter().map(|tag| (tag.tpid, tag.tci)).collect();
        while let (Protocol::Ether(kind), Some([t0, t1, k0, k1])) = (protocol, payload.first_chunk::<4>())
            && is_tag(kind)
        {
            tags.push((kind, u16::from_be_bytes([*t0, *t1])));
            protocol = by_ether_type(u16::from_be_bytes([*k0, *k1]));
            (payload, begin) = (&payload[4..], begin + 4);
        }
        Some(Self { stripped, tags, protocol, payload, begin })
    }

    /// The kind that a header names: a tag, or what is behind all of them.
    fn kind(&self, tag: usize, quick: bool) -> String {
        match (self.tags.get(tag), self.protocol) {
            (Some(&(number, _)), _) | (None, Protocol::Ether(number)) => Kind { number, quick }.to_string(),
            (None, Protocol::Llc) => "802.3".to_owned(),
            (None, Protocol::Other(number)) => format!("protocol {number}"),
        }
    }
}

impl Writer {
    /// Writes a frame behind its time, and says where its link header ends.
    pub(super) fn framed(&self, out: &mut Vec<u8>, frame: &Frame<'_>, link: LinkType) -> usize {
        let Some(behind) = Behind::new(link, frame) else {
            let name = match link {
                LinkType::Ethernet => "ether",
                LinkType::Ip | LinkType::Ipv4 | LinkType::Ipv6 => "ip",
                LinkType::Null | LinkType::Loop => "null",
                LinkType::Ppp | LinkType::PppHdlc => "ppp",
                LinkType::Sll | LinkType::Sll2 => "sll",
            };
            let _ = write!(out, "[|{name}], length {}", frame.wire_len);
            return 0;
        };
        if link == LinkType::Sll2 {
            // The names of interfaces are those of another machine: only the index is known.
            let name = format!("if{}", behind.stripped.interface.unwrap_or(0));
            let _ = write!(out, "{name:<5} {:<3} ", behind.stripped.direction.map_or("?", Direction::name));
        }
        if self.shown.link {
            self.header(out, frame, link, &behind);
        }
        for (at, (_, tci)) in behind.tags.iter().enumerate() {
            let eligible = if tci & 0x1000 == 0 { "" } else { "DEI, " };
            let _ = write!(out, "vlan {}, p {}, {eligible}", tci & 0xfff, tci >> 13);
            if self.shown.link {
                let _ = write!(out, "{}, ", behind.kind(at + 1, self.shown.quick));
            }
        }
        let rest = frame.wire_len.saturating_sub(behind.begin as u32);
        match behind.protocol {
            Protocol::Ether(kind) => {
                if !self.by_ether_type(out, kind, behind.payload, rest) {
                    self.unknown(out, frame, link, &behind, rest);
                }
            }
            Protocol::Llc => {
                // Behind the length of an 802.3 header there may be padding.
                let length = match behind.begin.checked_sub(2).and_then(|at| frame.data.get(at..at + 2)) {
                    Some(&[l0, l1]) if link == LinkType::Ethernet => rest.min(u16::from_be_bytes([l0, l1]).into()),
                    _ => rest,
                };
                let there = behind.payload.get(..length as usize).unwrap_or(behind.payload);
                let ends = addresses(frame.data).filter(|_| link == LinkType::Ethernet);
                self.llc(out, there, length, ends);
            }
            Protocol::Other(_) => self.unknown(out, frame, link, &behind, rest),
        }
        behind.begin
    }

    /// Writes the link header as `-e` shows it.
    fn header(&self, out: &mut Vec<u8>, frame: &Frame<'_>, link: LinkType, behind: &Behind<'_>) {
        let (quick, packet) = (self.shown.quick, &behind.stripped);
        let length = frame.wire_len + if frame.vlan.is_some() { 4 } else { 0 };
        let _ = match link {
            LinkType::Ethernet => {
                let Some((from, to)) = addresses(frame.data) else { return };
                // An 802.3 frame says its own length.
                let is_802_3 = behind.tags.is_empty() && behind.protocol == Protocol::Llc;
                let length = if is_802_3 { packet.number } else { length };
                write!(out, "{from} > {to}, {}, length {length}: ", behind.kind(0, quick))
            }
            LinkType::Ip | LinkType::Ipv4 | LinkType::Ipv6 => write!(out, "ip: "),
            LinkType::Null | LinkType::Loop => {
                let name = match packet.protocol {
                    Protocol::Ether(0x0800) => "IPv4",
                    Protocol::Ether(_) => "IPv6",
                    _ => "Unknown",
                };
                match (quick, name) {
                    (true, "Unknown") => write!(out, "Unknown AF {}, length {length}: ", packet.number),
                    (true, name) => write!(out, "{name}, length {length}: "),
                    (false, name) => write!(out, "AF {name} ({}), length {length}: ", packet.number),
                }
            }
            LinkType::Ppp | LinkType::PppHdlc => {
                let name = match packet.number {
                    0x0021 | 0x0800 => "IP",
                    0x0057 | 0x86dd => "IP6",
                    0xc021 => "LCP",
                    0x8021 => "IPCP",
                    0x8057 => "IPV6CP",
                    _ => "Unknown",
                };
                write!(out, "{name} (0x{:04x}), length {length}: ", packet.number)
            }
            LinkType::Sll | LinkType::Sll2 => {
                let _ = match (link, packet.interface) {
                    (LinkType::Sll2, Some(index)) => write!(out, "ifindex {index} "),
                    _ => write!(out, "{:>3} ", packet.direction.map_or("?", Direction::name)),
                };
                if let Some(sender) = packet.sender {
                    let _ = write!(out, "{sender} ");
                }
                match (quick, packet.protocol) {
                    (true, _) => Ok(()),
                    (false, Protocol::Llc) => write!(out, "802.2, length {length}: "),
                    (false, _) => write!(out, "{}, length {length}: ", behind.kind(0, quick)),
                }
            }
        };
    }

    /// Writes a packet of that EtherType; false where it is none that is looked into, or not all there.
    fn by_ether_type(&self, out: &mut Vec<u8>, kind: u16, payload: &[u8], rest: u32) -> bool {
        let packet = LaxSlicedPacket::from_ether_type(EtherType(kind), payload);
        if packet.net.is_some() {
            self.inside(out, &packet, rest);
        }
        packet.net.is_some()
    }

    /// Writes what is known of a packet that is not looked into.
    fn unknown(&self, out: &mut Vec<u8>, frame: &Frame<'_>, link: LinkType, behind: &Behind<'_>, rest: u32) {
        let (kind, cut) = match behind.protocol {
            Protocol::Ether(number) => {
                let cut = if matches!(number, 0x0800 | 0x0806 | 0x86dd) { ", cut or malformed" } else { "" };
                (Kind { number, quick: false }.to_string(), cut)
            }
            Protocol::Llc => ("802.2".to_owned(), ""),
            Protocol::Other(number) => match link {
                LinkType::Ip => (format!("IP version {number}"), ""),
                LinkType::Null | LinkType::Loop => (format!("address family {number}"), ""),
                LinkType::Ppp | LinkType::PppHdlc => (format!("PPP protocol 0x{number:04x}"), ""),
                _ => (format!("protocol {number}"), ""),
            },
        };
        let _ = match (self.shown.link, addresses(frame.data)) {
            (true, _) => write!(out, "length {rest}"),
            (false, Some((from, to))) if link == LinkType::Ethernet => {
                write!(out, "{from} > {to}, {kind}{cut}, length {rest}")
            }
            (false, _) => write!(out, "{kind}{cut}, length {rest}"),
        };
    }

    fn llc(&self, out: &mut Vec<u8>, bytes: &[u8], length: u32, ends: Option<(Mac, Mac)>) {
        let frame = llc::Llc::new(bytes, length);
        if self.shown.link {
            let _ = frame.header(out);
        }
        if let Some((kind, payload)) = frame.ether_type()
            && self.by_ether_type(out, kind, payload, frame.rest())
        {
            return;
        }
        let _ = frame.write(out, self.shown.link, ends);
    }
}
