//! UDP, TCP and ICMP.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::network_endian::{U16, U32},
};

use crate::{
    error::WireError,
    ip::{Ip, protocol},
};

/// Length of a UDP header in bytes.
pub const UDP_LEN: usize = 8;
/// Length of a TCP header without options, in bytes.
pub const TCP_LEN: usize = 20;

/// The UDP header as it lies in memory (RFC 768).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    pub source: U16,
    pub destination: U16,
    /// Length of header and payload in bytes.
    pub len: U16,
    pub checksum: U16,
}

/// The TCP header without options, as it lies in memory (RFC 9293).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    pub source: U16,
    pub destination: U16,
    pub sequence: U32,
    pub acknowledgement: U32,
    /// Length of the header in 32-bit words (4 bits), reserved (4), flags (8).
    pub offset_flags: U16,
    pub window: U16,
    pub checksum: U16,
    pub urgent: U16,
}

/// Flags of TCP, the low byte of [`TcpHeader::offset_flags`].
pub mod tcp_flags {
    pub const FIN: u16 = 0x01;
    pub const RST: u16 = 0x04;
    pub const SYN: u16 = 0x02;
    pub const PSH: u16 = 0x08;
    pub const ACK: u16 = 0x10;
}

/// The first 8 bytes of ICMP and ICMPv6 as they lie in memory (RFC 792, RFC 4443).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcmpHeader {
    pub kind: u8,
    pub code: u8,
    pub checksum: U16,
    /// Identifier and sequence number of an echo; otherwise as the type says.
    pub rest: [u8; 4],
}

/// The payload of an IP packet.
#[derive(Debug, Clone, Copy)]
pub enum Transport<'a> {
    /// UDP: the header, and the payload cut to the length that it states.
    Udp(&'a UdpHeader, &'a [u8]),
    /// TCP: the header, its options, and the payload.
    Tcp(&'a TcpHeader, &'a [u8], &'a [u8]),
    /// ICMP or ICMPv6: the header and what follows.
    Icmp(&'a IcmpHeader, &'a [u8]),
    /// A later fragment, or another protocol.
    Other(&'a [u8]),
}

impl<'a> Transport<'a> {
    /// Reads what `ip` carries.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`] for the header that is wrong.
    pub fn parse(ip: &Ip<'a>) -> Result<Self, WireError> {
        let payload = ip.payload();
        if ip.fragment().is_some_and(|f| f.offset > 0) {
            return Ok(Self::Other(payload));
        }
        let truncated = |what, need| WireError::Truncated { what, need, have: payload.len() };
        match ip.protocol() {
            protocol::UDP => {
                let (h, rest) = UdpHeader::ref_from_prefix(payload).map_err(|_| truncated("a UDP header", UDP_LEN))?;
                let stated = usize::from(h.len.get());
                // 0 is the length of a jumbogram (RFC 2675).
                if stated != 0 && stated < UDP_LEN {
                    return Err(WireError::Malformed { what: "a UDP header", why: "it states a length below 8 bytes" });
                }
                let end = if stated == 0 { rest.len() } else { (stated - UDP_LEN).min(rest.len()) };
                Ok(Self::Udp(h, &rest[..end]))
            }
            protocol::TCP => {
                let (h, rest) = TcpHeader::ref_from_prefix(payload).map_err(|_| truncated("a TCP header", TCP_LEN))?;
                let header_len = usize::from(h.offset_flags.get() >> 12) * 4;
                if header_len < TCP_LEN {
                    return Err(WireError::Malformed {
                        what: "a TCP header",
                        why: "it states a length below 20 bytes",
                    });
                }
                let (options, data) =
                    rest.split_at_checked(header_len - TCP_LEN).ok_or(truncated("a TCP header", header_len))?;
                Ok(Self::Tcp(h, options, data))
            }
            protocol::ICMP | protocol::ICMPV6 => {
                let (h, rest) = IcmpHeader::ref_from_prefix(payload).map_err(|_| truncated("an ICMP header", 8))?;
                Ok(Self::Icmp(h, rest))
            }
            _ => Ok(Self::Other(payload)),
        }
    }

    /// Source and destination port of UDP and TCP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self {
            Self::Udp(h, _) => Some((h.source.get(), h.destination.get())),
            Self::Tcp(h, ..) => Some((h.source.get(), h.destination.get())),
            Self::Icmp(..) | Self::Other(_) => None,
        }
    }
}
