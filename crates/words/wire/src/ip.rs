//! IPv4 and IPv6, with extension headers and fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::network_endian::{U16, U32},
};

use crate::{
    checksum::Sum,
    error::{WireError, split},
};

/// IP protocol numbers (IANA).
pub mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMPV6: u8 = 58;
    pub const HOP_BY_HOP: u8 = 0;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AUTHENTICATION: u8 = 51;
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// Length of an IPv4 header without options, in bytes.
pub const IPV4_LEN: usize = 20;
/// Length of an IPv6 header without extensions, in bytes.
pub const IPV6_LEN: usize = 40;

/// The IPv4 header without options, as it lies in memory (RFC 791).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version 4 and the header's length in 32-bit words.
    pub version_ihl: u8,
    pub traffic_class: u8,
    /// Length of header and payload in bytes.
    pub total_len: U16,
    /// Identification of a fragmented packet.
    pub id: U16,
    /// Flags (3 bits) and the fragment's offset in units of 8 bytes.
    pub flags_fragment: U16,
    /// Time to live in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    pub checksum: U16,
    pub source: [u8; 4],
    pub destination: [u8; 4],
}

/// The IPv6 header, as it lies in memory (RFC 8200).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version 6, traffic class and flow label.
    pub version_class_flow: U32,
    /// Length of what follows this header, in bytes.
    pub payload_len: U16,
    /// Protocol of what follows.
    pub next_header: u8,
    pub hop_limit: u8,
    pub source: [u8; 16],
    pub destination: [u8; 16],
}

/// The part of a fragmented packet that this one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Identification that all parts share.
    pub id: u32,
    /// The offset of this part, in bytes.
    pub offset: u32,
    pub more: bool,
}

/// A parsed IP packet, cut to the length that it states.
#[derive(Debug, Clone, Copy)]
pub struct Ip<'a> {
    source: IpAddr,
    destination: IpAddr,
    hop_limit: u8,
    protocol: u8,
    fragment: Option<Fragment>,
    header: &'a [u8],
    payload: &'a [u8],
    cut_short: bool,
}

impl<'a> Ip<'a> {
    /// Reads an IPv4 or IPv6 packet by its version. Bytes behind the stated length are padding and not part of it; of a packet that was captured in
    /// part, what there is ([`Ip::is_cut_short`]).
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`] for the header that is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        match bytes.first().map(|b| b >> 4) {
            Some(4) => Self::parse_v4(bytes),
            Some(6) => Self::parse_v6(bytes),
            Some(_) => Err(WireError::Malformed { what: "IP", why: "the version is neither 4 nor 6" }),
            None => Err(WireError::Truncated { what: "an IP header", need: 1, have: 0 }),
        }
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "an IPv4 header";
        let (h, _) = Ipv4Header::ref_from_prefix(bytes).map_err(|_| WireError::Truncated {
            what: WHAT,
            need: IPV4_LEN,
            have: bytes.len(),
        })?;
        let header_len = usize::from(h.version_ihl & 0x0f) * 4;
        let total_len = usize::from(h.total_len.get());
        if header_len < IPV4_LEN {
            return Err(WireError::Malformed { what: WHAT, why: "it states a length below 20 bytes" });
        }
        if total_len < header_len {
            return Err(WireError::Malformed {
                what: WHAT,
                why: "the packet states a length below that of its header",
            });
        }
        if bytes.len() < header_len {
            return Err(WireError::Truncated { what: WHAT, need: header_len, have: bytes.len() });
        }
        let word = h.flags_fragment.get();
        let (offset, more) = (u32::from(word & 0x1fff) * 8, word & 0x2000 != 0);
        Ok(Self {
            source: Ipv4Addr::from(h.source).into(),
            destination: Ipv4Addr::from(h.destination).into(),
            hop_limit: h.ttl,
            protocol: h.protocol,
            fragment: (more || offset > 0).then_some(Fragment { id: h.id.get().into(), offset, more }),
            header: &bytes[..header_len],
            payload: &bytes[header_len..total_len.min(bytes.len())],
            cut_short: total_len > bytes.len(),
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (h, rest) = Ipv6Header::ref_from_prefix(bytes).map_err(|_| WireError::Truncated {
            what: "an IPv6 header",
            need: IPV6_LEN,
            have: bytes.len(),
        })?;
        let stated = usize::from(h.payload_len.get());
        let end = IPV6_LEN + stated.min(rest.len());
        let (mut payload, mut next, mut fragment) = (&bytes[IPV6_LEN..end], h.next_header, None);
        // The packet's length bounds the loop: every extension takes at least 8 bytes.
        loop {
            let len = match next {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                    let (&[_, len], _) = split::<2>(payload, "an IPv6 extension header")?;
                    8 + usize::from(len) * 8
                }
                protocol::AUTHENTICATION => {
                    let (&[_, len], _) = split::<2>(payload, "an IPv6 authentication header")?;
                    (usize::from(len) + 2).max(2) * 4
                }
                protocol::FRAGMENT if fragment.is_none() => {
                    let (&[_, _, o0, o1, i0, i1, i2, i3], _) = split::<8>(payload, "an IPv6 fragment header")?;
                    let word = u16::from_be_bytes([o0, o1]);
                    let id = u32::from_be_bytes([i0, i1, i2, i3]);
                    fragment = Some(Fragment { id, offset: u32::from(word & !7), more: word & 1 != 0 });
                    8
                }
                _ => break,
            };
            let what = "an IPv6 extension header";
            let rest = payload.get(len..).ok_or(WireError::Truncated { what, need: len, have: payload.len() })?;
            next = payload[0];
            payload = rest;
            // What follows in a later fragment is data, whatever it looks like.
            if fragment.is_some_and(|f: Fragment| f.offset > 0) {
                break;
            }
        }
        Ok(Self {
            source: Ipv6Addr::from(h.source).into(),
            destination: Ipv6Addr::from(h.destination).into(),
            hop_limit: h.hop_limit,
            protocol: next,
            fragment,
            header: &bytes[..end - payload.len()],
            payload,
            cut_short: stated > rest.len(),
        })
    }

    pub fn source(&self) -> IpAddr {
        self.source
    }

    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Time to live or hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// Protocol of the payload, behind all extension headers.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The part of a packet that this is; none for a whole one.
    pub fn fragment(&self) -> Option<Fragment> {
        self.fragment
    }

    /// Length of the header with options or extension headers, in bytes.
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// The bytes behind the headers, without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// True if the packet states more bytes than there are.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// True if the header's checksum is right; always so for IPv6, which has none.
    pub fn is_checksum_right(&self) -> bool {
        self.source.is_ipv6() || Sum::new().bytes(self.header).finish() == 0
    }

    /// True if the checksum of the UDP, TCP or ICMP payload is right; none for fragments, packets cut short, other protocols, and
    /// UDP over IPv4 without a checksum.
    pub fn is_payload_checksum_right(&self) -> Option<bool> {
        if self.fragment.is_some() || self.cut_short {
            return None;
        }
        let sum = match self.protocol {
            protocol::UDP if self.source.is_ipv4() && self.payload.get(6..8) == Some(&[0, 0]) => return None,
            protocol::UDP | protocol::TCP | protocol::ICMPV6 => {
                Sum::new().pseudo_header(self.source, self.destination, self.protocol, self.payload.len() as u32)
            }
            protocol::ICMP => Sum::new(),
            _ => return None,
        };
        Some(sum.bytes(self.payload).finish() == 0)
    }
}
