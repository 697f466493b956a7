//! Whole frames from a few facts: addresses, ports, kind and size.

use std::net::IpAddr;

use zerocopy::{
    IntoBytes,
    byteorder::network_endian::{U16, U32},
};

use crate::{
    checksum::Sum,
    error::WireError,
    ethernet::{self, Mac, Tag, ether_type},
    ip::{IPV4_LEN, IPV6_LEN, Ipv4Header, Ipv6Header, protocol},
    size::FrameSize,
    transport::{TCP_LEN, TcpHeader, UDP_LEN, UdpHeader, tcp_flags},
};

const HOPS: u8 = 64;
const WINDOW: u16 = 64240;
/// IPv4: do not fragment.
const DONT_FRAGMENT: u16 = 0x4000;

/// The bytes behind the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Udp,
    /// A TCP SYN without options.
    TcpSyn,
    /// A TCP segment of an established connection (ACK, and PSH if it has data).
    TcpData,
}

impl Kind {
    fn header_len(self) -> usize {
        match self {
            Self::Udp => UDP_LEN,
            Self::TcpSyn | Self::TcpData => TCP_LEN,
        }
    }

    fn protocol(self) -> u8 {
        match self {
            Self::Udp => protocol::UDP,
            Self::TcpSyn | Self::TcpData => protocol::TCP,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    pub source: IpAddr,
    /// Destination address, of the same IP version.
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
}

/// The fields that all frames of one stream share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    pub destination: Mac,
    pub source: Mac,
    /// VLAN tags, the outer one first.
    pub tags: [Option<Tag>; ethernet::TAGS_MAX],
    /// The bytes behind the IP header.
    pub kind: Kind,
}

impl Template {
    /// The offset of the IP header, in bytes.
    pub fn ip_offset(&self) -> usize {
        ethernet::HEADER_LEN + self.tags.iter().flatten().count() * ethernet::TAG_LEN
    }

    /// The offset of the UDP or TCP header, in bytes.
    pub fn transport_offset(&self, ipv6: bool) -> usize {
        self.ip_offset() + if ipv6 { IPV6_LEN } else { IPV4_LEN }
    }

    /// Length of all headers together, in bytes.
    pub fn headers_len(&self, ipv6: bool) -> usize {
        self.transport_offset(ipv6) + self.kind.header_len()
    }

    /// The least size that holds the headers.
    pub fn min_size(&self, ipv6: bool) -> FrameSize {
        FrameSize::in_memory(self.headers_len(ipv6)).max(FrameSize::MIN)
    }

    /// Builds a frame without FCS, all checksums right. Its payload is zeros: UDP and TCP data fill the frame, a SYN has none and is padded.
    ///
    /// # Errors
    /// [`WireError::Size`] for a size that the headers do not fit in or IP cannot state, [`WireError::Families`] for mixed addresses.
    pub fn build(&self, flow: &FlowKey, size: FrameSize, sequence: u32) -> Result<Vec<u8>, WireError> {
        let ipv6 = flow.source.is_ipv6();
        let (min, max) = (self.min_size(ipv6), FrameSize::in_memory(self.ip_offset() + usize::from(u16::MAX)));
        if size < min || size > max {
            return Err(WireError::Size {
                size: size.bytes_with_fcs(),
                min: min.bytes_with_fcs(),
                max: max.bytes_with_fcs(),
            });
        }
        let mut frame = Vec::with_capacity(size.bytes_in_memory());
        self.put_ethernet(&mut frame, ipv6);
        let room = size.bytes_in_memory() - self.transport_offset(ipv6);
        let len = if self.kind == Kind::TcpSyn { TCP_LEN } else { room };
        match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut h = Ipv4Header {
                    version_ihl: 0x45,
                    traffic_class: 0,
                    total_len: U16::new((IPV4_LEN + len) as u16),
                    id: U16::ZERO,
                    flags_fragment: U16::new(DONT_FRAGMENT),
                    ttl: HOPS,
                    protocol: self.kind.protocol(),
                    checksum: U16::ZERO,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                h.checksum = U16::new(Sum::new().bytes(h.as_bytes()).finish());
                frame.extend_from_slice(h.as_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let h = Ipv6Header {
                    version_class_flow: U32::new(6 << 28),
                    payload_len: U16::new(len as u16),
                    next_header: self.kind.protocol(),
                    hop_limit: HOPS,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                frame.extend_from_slice(h.as_bytes());
            }
            (source_address, destination_address) => {
                return Err(WireError::Families { source_address, destination_address });
            }
        }
        let sum = Sum::new().pseudo_header(flow.source, flow.destination, self.kind.protocol(), len as u32);
        self.put_transport(&mut frame, flow, len, sequence, sum);
        frame.resize(size.bytes_in_memory(), 0);
        Ok(frame)
    }

    fn put_ethernet(&self, frame: &mut Vec<u8>, ipv6: bool) {
        frame.extend_from_slice(&self.destination.0);
        frame.extend_from_slice(&self.source.0);
        for tag in self.tags.iter().flatten() {
            frame.extend_from_slice(&tag.protocol.to_be_bytes());
            frame.extend_from_slice(&tag.control.to_be_bytes());
        }
        let kind = if ipv6 { ether_type::IPV6 } else { ether_type::IPV4 };
        frame.extend_from_slice(&kind.to_be_bytes());
    }

    fn put_transport(&self, frame: &mut Vec<u8>, flow: &FlowKey, len: usize, sequence: u32, sum: Sum) {
        let (source, destination) = (U16::new(flow.source_port), U16::new(flow.destination_port));
        // The payload is zeros and adds nothing to the sum.
        match self.kind {
            Kind::Udp => {
                let mut h = UdpHeader { source, destination, len: U16::new(len as u16), checksum: U16::ZERO };
                h.checksum = U16::new(sum.bytes(h.as_bytes()).finish_udp());
                frame.extend_from_slice(h.as_bytes());
            }
            Kind::TcpSyn | Kind::TcpData => {
                let flags = match self.kind {
                    Kind::TcpSyn => tcp_flags::SYN,
                    _ if len > TCP_LEN => tcp_flags::ACK | tcp_flags::PSH,
                    _ => tcp_flags::ACK,
                };
                let mut h = TcpHeader {
                    source,
                    destination,
                    sequence: U32::new(sequence),
                    acknowledgement: U32::new(u32::from(self.kind == Kind::TcpData)),
                    offset_flags: U16::new(5 << 12 | flags),
                    window: U16::new(WINDOW),
                    checksum: U16::ZERO,
                    urgent: U16::ZERO,
                };
                h.checksum = U16::new(sum.bytes(h.as_bytes()).finish());
                frame.extend_from_slice(h.as_bytes());
            }
        }
    }
}
