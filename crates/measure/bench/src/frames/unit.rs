//! A unit as the sender's entries: headers with room for the signature, with checksums for a signature of zeros.

use std::net::IpAddr;

use bpf::bench_tx::BenchEntry;
use lab::boxes::Family;
use wire::{
    FlowKey, FrameSize, Mac, Sum,
    ethernet::{EthernetHeader, HEADER_LEN, ether_type},
    ip::{IPV4_LEN, IPV6_LEN, Ipv4Header, Ipv6Header, protocol},
    transport::{TCP_LEN, TcpHeader, UDP_LEN, UdpHeader},
};
use zerocopy::{
    IntoBytes,
    byteorder::network_endian::{U16, U32},
};

use super::{FRAGMENT_MTU, SIGNATURE_BYTES};

/// Hops that a unit may take.
const HOPS: u8 = 64;
/// IPv4: do not fragment.
const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4: more fragments follow.
const MORE_FRAGMENTS: u16 = 0x2000;
/// Length of the fragment header of IPv6, in bytes (RFC 8200, section 4.5).
const FRAGMENT_LEN: usize = 8;
/// Fragments begin at multiples of so many bytes.
const FRAGMENT_STEP: usize = 8;

/// Length of Ethernet, IP and UDP headers, in bytes.
pub(super) fn udp_headers(family: Family) -> usize {
    HEADER_LEN + ip_header_len(family) + UDP_LEN
}

/// Length of an IP header without options or extensions, in bytes.
pub(super) fn ip_header_len(family: Family) -> usize {
    match family {
        Family::V4 => IPV4_LEN,
        Family::V6 => IPV6_LEN,
    }
}

/// Bytes of the datagram that a fragment carries, but for the last one.
pub(super) fn fragment_room(family: Family) -> usize {
    let extension = if family == Family::V6 { FRAGMENT_LEN } else { 0 };
    (FRAGMENT_MTU as usize - ip_header_len(family) - extension) / FRAGMENT_STEP * FRAGMENT_STEP
}

/// The transport protocol of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Udp,
    /// TCP as a capture file has it.
    Tcp {
        sequence: u32,
        acknowledgement: u32,
        flags: u16,
        window: u16,
    },
}

impl Carrier {
    /// Length of the header in bytes.
    pub(super) fn header_len(self) -> usize {
        match self {
            Self::Udp => UDP_LEN,
            Self::Tcp { .. } => TCP_LEN,
        }
    }

    fn protocol(self) -> u8 {
        match self {
            Self::Udp => protocol::UDP,
            Self::Tcp { .. } => protocol::TCP,
        }
    }

    /// The offset of the checksum in the header.
    fn checksum_at(self) -> usize {
        match self {
            Self::Udp => 6,
            Self::Tcp { .. } => 16,
        }
    }
}

/// A unit to be laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) destination: Mac,
    pub(super) source: Mac,
    /// Addresses, of one IP version, and ports.
    pub(super) key: FlowKey,
    pub(super) carrier: Carrier,
    pub(super) traffic_class: u8,
    /// Bytes behind the transport header, the signature's among them.
    pub(super) data_len: usize,
    /// 0 forward, 1 backward.
    pub(super) direction: u8,
    /// Number of the flow within the direction.
    pub(super) flow: u32,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    /// The offset in the datagram, in bytes.
    offset: usize,
    /// Bytes of the datagram in this part.
    len: usize,
    /// True if it is one of several.
    fragment: bool,
    /// True if another follows.
    more: bool,
}

impl Unit {
    /// Adds its frames to `entries`: one, or the fragments of a datagram that an MTU of [`FRAGMENT_MTU`] does not let pass. `(base, step)` are the sequence
    /// number of its first time and what each pass over the table adds.
    pub(super) fn push_fragments(&self, seq: (u32, u32), entries: &mut Vec<BenchEntry>) {
        self.put(&self.parts(), seq, entries);
    }

    /// Adds it to `entries` as one frame.
    pub(super) fn push(&self, seq: (u32, u32), entries: &mut Vec<BenchEntry>) {
        self.put(&[Part { offset: 0, len: self.total(), fragment: false, more: false }], seq, entries);
    }

    fn put(&self, parts: &[Part], (seq_base, seq_step): (u32, u32), entries: &mut Vec<BenchEntry>) {
        let checksum = self.checksum();
        for part in parts {
            let mut frame = Vec::with_capacity(HEADER_LEN + IPV6_LEN + FRAGMENT_LEN + TCP_LEN + SIGNATURE_BYTES);
            self.put_ethernet(&mut frame);
            self.put_ip(&mut frame, part);
            let transport_at = frame.len();
            let first = part.offset == 0;
            if first {
                self.put_transport(&mut frame, checksum);
            }
            let (ip_bytes, signature_at) = (transport_at + part.len, frame.len());
            frame.resize(signature_at + SIGNATURE_BYTES, 0);
            let v6 = self.key.source.is_ipv6();
            entries.push(BenchEntry {
                frame_len: ip_bytes.max(FrameSize::MIN.bytes_in_memory()) as u16,
                direction: self.direction,
                signature_at: signature_at as u8,
                checksum_at: if first { (transport_at + self.carrier.checksum_at()) as u8 } else { 0 },
                checksum_times: if first { parts.len() as u8 } else { 0 },
                id_at: if part.fragment && !v6 { (HEADER_LEN + 4) as u8 } else { 0 },
                id6_at: if part.fragment && v6 { (transport_at - 4) as u8 } else { 0 },
                more: part.more,
                flow: self.flow,
                seq_base,
                seq_step,
                frame,
            });
        }
    }

    fn family(&self) -> Family {
        if self.key.source.is_ipv6() { Family::V6 } else { Family::V4 }
    }

    /// Length of transport header and data.
    fn total(&self) -> usize {
        self.carrier.header_len() + self.data_len
    }

    /// Parts of one length but for the last one, as the receiver expects them.
    fn parts(&self) -> Vec<Part> {
        let total = self.total();
        let mut len = fragment_room(self.family());
        // The last one has room for a signature, too.
        while (1..SIGNATURE_BYTES).contains(&(total % len)) {
            len -= FRAGMENT_STEP;
        }
        let part = |offset| Part { offset, len: len.min(total - offset), fragment: true, more: total - offset > len };
        (0..total).step_by(len).map(part).collect()
    }

    /// The checksum over pseudo-header, transport header and zeros.
    fn checksum(&self) -> u16 {
        let mut header = Vec::with_capacity(TCP_LEN);
        self.put_transport(&mut header, 0);
        let sum = Sum::new()
            .pseudo_header(self.key.source, self.key.destination, self.carrier.protocol(), self.total() as u32)
            .bytes(&header);
        match self.carrier {
            Carrier::Udp => sum.finish_udp(),
            Carrier::Tcp { .. } => sum.finish(),
        }
    }

    fn put_ethernet(&self, frame: &mut Vec<u8>) {
        let kind = if self.key.source.is_ipv6() { ether_type::IPV6 } else { ether_type::IPV4 };
        let h = EthernetHeader { destination: self.destination, source: self.source, ether_type: U16::new(kind) };
        frame.extend_from_slice(h.as_bytes());
    }

    fn put_ip(&self, frame: &mut Vec<u8>, part: &Part) {
        let offset = part.offset as u16;
        match (self.key.source, self.key.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let flags = match (part.fragment, part.more) {
                    (false, _) => DONT_FRAGMENT,
                    (true, false) => 0,
                    (true, true) => MORE_FRAGMENTS,
                };
                let mut h = Ipv4Header {
                    version_ihl: 0x45,
                    traffic_class: self.traffic_class,
                    total_len: U16::new((IPV4_LEN + part.len) as u16),
                    // The sender's business where it matters: in fragments.
                    id: U16::ZERO,
                    flags_fragment: U16::new(flags | (offset / FRAGMENT_STEP as u16)),
                    ttl: HOPS,
                    protocol: self.carrier.protocol(),
                    checksum: U16::ZERO,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                h.checksum = U16::new(Sum::new().bytes(h.as_bytes()).finish());
                frame.extend_from_slice(h.as_bytes());
            }
            (source, destination) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V6(a) => a.octets(),
                    IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
                };
                let extension = if part.fragment { FRAGMENT_LEN } else { 0 };
                let h = Ipv6Header {
                    version_class_flow: U32::new(6 << 28 | u32::from(self.traffic_class) << 20),
                    payload_len: U16::new((extension + part.len) as u16),
                    next_header: if part.fragment { protocol::FRAGMENT } else { self.carrier.protocol() },
                    hop_limit: HOPS,
                    source: octets(source),
                    destination: octets(destination),
                };
                frame.extend_from_slice(h.as_bytes());
                if part.fragment {
                    frame.extend_from_slice(&[self.carrier.protocol(), 0]);
                    frame.extend_from_slice(&(offset | u16::from(part.more)).to_be_bytes());
                    frame.extend_from_slice(&[0; 4]);
                }
            }
        }
    }

    fn put_transport(&self, frame: &mut Vec<u8>, checksum: u16) {
        let (source, destination) = (U16::new(self.key.source_port), U16::new(self.key.destination_port));
        let checksum = U16::new(checksum);
        match self.carrier {
            Carrier::Udp => {
                let h = UdpHeader { source, destination, len: U16::new(self.total() as u16), checksum };
                frame.extend_from_slice(h.as_bytes());
            }
            Carrier::Tcp { sequence, acknowledgement, flags, window } => {
                let h = TcpHeader {
                    source,
                    destination,
                    sequence: U32::new(sequence),
                    acknowledgement: U32::new(acknowledgement),
                    offset_flags: U16::new(5 << 12 | flags),
                    window: U16::new(window),
                    checksum,
                    urgent: U16::ZERO,
                };
                frame.extend_from_slice(h.as_bytes());
            }
        }
    }
}
