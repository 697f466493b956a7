//! The link-layer header before a packet in a capture file, by the file's link type.
//!
//! Link types are those of <https://www.tcpdump.org/linktypes.html>.

use crate::{Mac, ethernet::ether_type};

/// EtherTypes begin here: a smaller number in their place is the length of an 802.2 frame.
const FIRST_ETHER_TYPE: u16 = 1536;
/// LINUX_SLL_P_802_2: an 802.2 frame follows the header of a cooked capture.
const SLL_802_2: u16 = 4;
/// PPP's address field: all stations.
const PPP_ADDRESS: u8 = 0xff;
/// Addresses of Cisco's HDLC: unicast and broadcast.
const CISCO_ADDRESSES: [u8; 2] = [0x0f, 0x8f];

/// A link type whose header is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// EN10MB (1).
    Ethernet,
    /// RAW (101; in files 12 and 14 too): the version of the IP header says which it is.
    Ip,
    /// IPV4 (228).
    Ipv4,
    /// IPV6 (229).
    Ipv6,
    /// NULL (0): an address family in the byte order of the machine that wrote the file.
    Null,
    /// LOOP (108): an address family in network byte order.
    Loop,
    /// PPP (9).
    Ppp,
    /// PPP_HDLC (50): PPP, or Cisco's HDLC.
    PppHdlc,
    /// LINUX_SLL (113): what libpcap makes of packets of several interfaces.
    Sll,
    /// LINUX_SLL2 (276): the same with the interface.
    Sll2,
}

/// The kind of packet behind a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// An EtherType, or what stands for one.
    Ether(u16),
    /// An 802.2 frame (LLC).
    Llc,
    /// Another protocol, by its number in this kind of header.
    Other(u32),
}

/// A packet's direction (PACKET_HOST and the others of if_packet.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    In,
    /// A packet to all.
    Broadcast,
    Multicast,
    /// A packet from one other machine to another.
    Other,
    Out,
}

impl Direction {
    /// The direction by the kernel's number; none where it says nothing of one.
    pub fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::In,
            1 => Self::Broadcast,
            2 => Self::Multicast,
            3 => Self::Other,
            4 => Self::Out,
            _ => return None,
        })
    }

    /// tcpdump's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::Broadcast => "B",
            Self::Multicast => "M",
            Self::Other => "P",
            Self::Out => "Out",
        }
    }
}

/// A packet without its link-layer header, and what that said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripped<'a> {
    pub protocol: Protocol,
    /// The number of its kind as the header has it; 0 where none stands there.
    pub number: u32,
    pub header_len: usize,
    /// Bytes behind the header. VLAN tags are still in it.
    pub payload: &'a [u8],
    /// The direction, where a cooked capture tells it.
    pub direction: Option<Direction>,
    /// The sender's address, where a cooked capture has one of Ethernet's length.
    pub sender: Option<Mac>,
    /// The index of the interface on the machine that captured, where the header tells it.
    pub interface: Option<u32>,
}

/// True of a VLAN tag's protocol, the earlier 0x9100 and 0x9200 included.
pub fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, ether_type::VLAN | ether_type::SERVICE_VLAN | 0x9100 | 0x9200)
}

/// The kind of packet by the number in an EtherType's place.
pub fn by_ether_type(number: u16) -> Protocol {
    if number < FIRST_ETHER_TYPE { Protocol::Llc } else { Protocol::Ether(number) }
}

impl LinkType {
    /// The link type with that number (LINKTYPE_…); none: its header is not known here.
    pub fn of(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            9 => Self::Ppp,
            // DLT_RAW has these numbers on some systems, and some programs wrote them into files.
            12 | 14 | 101 => Self::Ip,
            50 => Self::PppHdlc,
            108 => Self::Loop,
            113 => Self::Sll,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            276 => Self::Sll2,
            _ => return None,
        })
    }

    /// Takes the header off; none where it is not all there.
    pub fn strip(self, data: &[u8]) -> Option<Stripped<'_>> {
        match self {
            Self::Ethernet => {
                let kind = be16(data, 12)?;
                stripped(data, 14, kind.into(), by_ether_type(kind))
            }
            Self::Ip => match data.first()? >> 4 {
                4 => stripped(data, 0, 0, Protocol::Ether(ether_type::IPV4)),
                6 => stripped(data, 0, 0, Protocol::Ether(ether_type::IPV6)),
                version => stripped(data, 0, 0, Protocol::Other(version.into())),
            },
            Self::Ipv4 => stripped(data, 0, 0, Protocol::Ether(ether_type::IPV4)),
            Self::Ipv6 => stripped(data, 0, 0, Protocol::Ether(ether_type::IPV6)),
            Self::Null => {
                let family = be32(data, 0)?;
                // Families are small: the end that is nothing tells the byte order.
                let family = if family > 0xffff { family.swap_bytes() } else { family };
                stripped(data, 4, family, by_family(family))
            }
            Self::Loop => {
                let family = be32(data, 0)?;
                stripped(data, 4, family, by_family(family))
            }
            Self::Ppp => ppp(data, 0),
            Self::PppHdlc => match data.first()? {
                address if CISCO_ADDRESSES.contains(address) => {
                    let kind = be16(data, 2)?;
                    stripped(data, 4, kind.into(), by_ether_type(kind))
                }
                _ => ppp(data, 0),
            },
            Self::Sll => {
                let head = data.get(..16)?;
                let kind = be16(head, 14)?;
                let packet = stripped(data, 16, kind.into(), cooked(kind))?;
                Some(Stripped {
                    direction: u8::try_from(be16(head, 0)?).ok().and_then(Direction::of),
                    sender: address(be16(head, 4)?.into(), &head[6..14]),
                    ..packet
                })
            }
            Self::Sll2 => {
                let head = data.get(..20)?;
                let kind = be16(head, 0)?;
                let packet = stripped(data, 20, kind.into(), cooked(kind))?;
                Some(Stripped {
                    direction: Direction::of(head[10]),
                    sender: address(head[11].into(), &head[12..20]),
                    interface: Some(be32(head, 4)?),
                    ..packet
                })
            }
        }
    }
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn stripped(data: &[u8], header_len: usize, number: u32, protocol: Protocol) -> Option<Stripped<'_>> {
    let payload = data.get(header_len..)?;
    Some(Stripped { protocol, number, header_len, payload, direction: None, sender: None, interface: None })
}

/// The kind of packet by an address family: that of IPv6 has a number of its own on each system.
fn by_family(family: u32) -> Protocol {
    match family {
        2 => Protocol::Ether(ether_type::IPV4),
        10 | 24 | 28 | 30 => Protocol::Ether(ether_type::IPV6),
        other => Protocol::Other(other),
    }
}

/// The kind of packet in a cooked capture: numbers below the EtherTypes are Linux's own.
fn cooked(number: u16) -> Protocol {
    match number {
        SLL_802_2 => Protocol::Llc,
        number if number < FIRST_ETHER_TYPE => Protocol::Other(number.into()),
        number => Protocol::Ether(number),
    }
}

fn address(length: usize, bytes: &[u8]) -> Option<Mac> {
    (length == 6).then(|| bytes.get(..6)?.try_into().ok().map(Mac)).flatten()
}

/// PPP (RFC 1661, 1662): address and control may be left out, and the first byte of the protocol too.
fn ppp(data: &[u8], at: usize) -> Option<Stripped<'_>> {
    let at = if *data.get(at)? == PPP_ADDRESS { at + 2 } else { at };
    let first = *data.get(at)?;
    let (number, end) = if first & 1 == 1 { (u16::from(first), at + 1) } else { (be16(data, at)?, at + 2) };
    let protocol = match number {
        0x0021 => Protocol::Ether(ether_type::IPV4),
        0x0057 => Protocol::Ether(ether_type::IPV6),
        other => Protocol::Other(other.into()),
    };
    stripped(data, end, number.into(), protocol)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPES: [u16; 12] = [0, 1, 9, 12, 14, 50, 101, 108, 113, 228, 229, 276];

    fn strip(link_type: u16, data: &[u8]) -> (Protocol, usize) {
        let packet = LinkType::of(link_type).expect("known").strip(data).expect("whole");
        (packet.protocol, packet.header_len)
    }

    #[test]
    fn each_link_type_names_its_protocol() {
        let (v4, v6) = (Protocol::Ether(0x0800), Protocol::Ether(0x86dd));
        let ethernet = |kind: [u8; 2]| [&[2; 12][..], &kind].concat();
        for (link_type, data, protocol) in [
            (1, ethernet([8, 0]), v4),
            (1, ethernet([0, 38]), Protocol::Llc),
            (101, vec![0x45], v4),
            (12, vec![0x60], v6),
            (14, vec![0x10], Protocol::Other(1)),
            (228, vec![], v4),
            (229, vec![], v6),
            (0, vec![2, 0, 0, 0], v4),
            (0, vec![0, 0, 0, 2], v4),
            (0, vec![30, 0, 0, 0], v6),
            (0, vec![7, 0, 0, 0], Protocol::Other(7)),
            (108, vec![0, 0, 0, 24], v6),
            (9, vec![0xff, 3, 0, 0x21], v4),
            (9, vec![0, 0x57], v6),
            (9, vec![0x21], v4),
            (9, vec![0xff, 3, 0xc0, 0x21], Protocol::Other(0xc021)),
            (50, vec![0x8f, 0, 0x86, 0xdd], v6),
            (50, vec![0xff, 3, 0, 0x21], v4),
        ] {
            let length = data.len() - usize::from(matches!(link_type, 12 | 14 | 101));
            assert_eq!(strip(link_type, &data), (protocol, length), "{link_type} {data:x?}");
        }
        assert!(LinkType::of(105).is_none());
    }

    #[test]
    fn cooked_captures_show_direction_sender_and_interface() {
        let sll = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 0x81, 0, 7];
        let packet = LinkType::Sll.strip(&sll).expect("whole");
        assert_eq!((packet.protocol, packet.payload), (Protocol::Ether(0x8100), &[7][..]));
        assert_eq!((packet.direction, packet.sender), (Some(Direction::Out), Some(Mac([2, 0, 0, 0, 0, 9]))));
        let sll2 = [0, 4, 0, 0, 0, 0, 0, 3, 3, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let packet = LinkType::Sll2.strip(&sll2).expect("whole");
        assert_eq!((packet.protocol, packet.interface), (Protocol::Llc, Some(3)));
        assert_eq!((packet.direction, packet.sender), (Some(Direction::Broadcast), None));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(number in prop::sample::select(TYPES.to_vec()), data in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(packet) = LinkType::of(number).expect("known").strip(&data) {
                prop_assert_eq!(packet.header_len + packet.payload.len(), data.len());
            }
        }
    }
}
