//! Frames put together by hand.

use std::net::IpAddr;

/// The header of an IP packet. Its lengths, and IPv4's checksum, follow from what is behind it.
#[derive(Debug, Clone, Copy)]
pub struct Ip {
    /// Address of the same family as the destination.
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The number of what is behind the header: of IPv6 with extension headers, that of the first one.
    pub next: u8,
    pub tos: u8,
    pub hops: u8,
    /// IPv4's identification.
    pub id: u16,
    /// IPv4's flags and fragment offset.
    pub fragment: u16,
}

impl Ip {
    pub fn new(source: impl Into<IpAddr>, destination: impl Into<IpAddr>, next: u8) -> Self {
        let (source, destination) = (source.into(), destination.into());
        Self { source, destination, next, tos: 0, hops: 64, id: 1, fragment: 0 }
    }

    /// The packet, with these IPv4 options or IPv6 extension headers.
    pub fn packet(&self, more: &[u8], payload: &[u8]) -> Vec<u8> {
        let (length, mut packet) = (more.len() + payload.len(), Vec::new());
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                packet.extend([0x45 + more.len() as u8 / 4, self.tos]);
                packet.extend([(20 + length) as u16, self.id, self.fragment].map(u16::to_be_bytes).concat());
                packet.extend([self.hops, self.next, 0, 0]);
                packet.extend([source.octets(), destination.octets()].concat());
                packet.extend(more);
                let sum = checksum(&packet);
                packet[10..12].copy_from_slice(&sum);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                packet.extend([0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                packet.extend((length as u16).to_be_bytes());
                packet.extend([self.next, self.hops]);
                packet.extend([source.octets(), destination.octets()].concat());
                packet.extend(more);
            }
            _ => panic!("addresses of two families"),
        }
        packet.extend(payload);
        packet
    }
}

/// The checksum of a header (RFC 1071).
fn checksum(header: &[u8]) -> [u8; 2] {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!(sum + (sum >> 16)) as u16).to_be_bytes()
}

/// An IP packet in a frame to and from these addresses, behind these tags (protocol and control field).
pub fn ethernet(macs: [[u8; 6]; 2], tags: &[(u16, u16)], packet: &[u8]) -> Vec<u8> {
    let mut frame = macs.concat();
    for (protocol, control) in tags {
        frame.extend([protocol.to_be_bytes(), control.to_be_bytes()].concat());
    }
    frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    frame.extend(packet);
    frame
}
