use std::net::IpAddr;

use rules::packet::Part;

use crate::{Ip, ethernet};

/// A frame in words.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Tag protocol and VLAN id, outermost first.
    pub tags: Vec<(u16, u16)>,
    /// Both of one family.
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Where the protocol has ports.
    pub ports: (u16, u16),
    pub tcp_flags: u8,
    pub icmp_type: u8,
    pub part: Part,
    pub dscp: u8,
    /// IPv4 options in words of 4 bytes, 0 to 10.
    pub option_words: u8,
    /// IPv6 extension headers before the fragment header (one, if it is a fragment): 0, 43, 51, 60.
    pub extensions: Vec<u8>,
    /// Bytes behind the transport header.
    pub payload: usize,
    /// Bytes behind the IP packet.
    pub padding: usize,
}

impl Spec {
    /// Bytes before the payload: IP header, extensions, transport header.
    pub fn headers_len(&self) -> usize {
        self.network_len() + self.transport().len()
    }

    fn network_len(&self) -> usize {
        match self.source {
            IpAddr::V4(_) => 20 + 4 * usize::from(self.option_words),
            IpAddr::V6(_) => 40 + self.chain().1.len(),
        }
    }

    /// The frame's bytes; lengths and IPv4's header checksum are right, transport checksums 0.
    pub fn bytes(&self) -> Vec<u8> {
        let (next, more) = match self.source {
            IpAddr::V4(_) => (self.protocol, vec![1; 4 * usize::from(self.option_words)]),
            IpAddr::V6(_) => self.chain(),
        };
        let fragment = match self.part {
            Part::Whole => 0x4000,
            Part::First => 0x2000,
            Part::Later => 0x2001,
        };
        let ip = Ip { tos: self.dscp << 2, id: 0x1234, fragment, ..Ip::new(self.source, self.destination, next) };
        let packet = ip.packet(&more, &[self.transport(), vec![0xa5; self.payload]].concat());
        let mut frame = ethernet([[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], &self.tags, &packet);
        frame.resize(frame.len() + self.padding, 0);
        frame
    }

    /// The first extension header's number (the protocol's without one), and their bytes.
    fn chain(&self) -> (u8, Vec<u8>) {
        let mut numbers = self.extensions.clone();
        if self.part != Part::Whole {
            numbers.push(44);
        }
        let mut bytes = Vec::new();
        for (n, number) in numbers.iter().enumerate() {
            let next = numbers.get(n + 1).copied().unwrap_or(self.protocol);
            match number {
                44 => bytes.extend([next, 0, 0, if self.part == Part::First { 1 } else { 9 }, 0, 0, 0, 7]),
                // Three words of 4 bytes: two more than the header's length says are not counted.
                51 => bytes.extend([next, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                // A padding option fills it (routing: type 253, no segments left).
                43 => bytes.extend([next, 0, 253, 0, 0, 0, 0, 0]),
                _ => bytes.extend([next, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            }
        }
        (numbers.first().copied().unwrap_or(self.protocol), bytes)
    }

    /// The transport header; a later fragment has none.
    fn transport(&self) -> Vec<u8> {
        let [source, destination] = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()];
        let mut ports = [source, destination].concat();
        let is_icmp = self.protocol == if self.source.is_ipv4() { 1 } else { 58 };
        match self.protocol {
            _ if self.part == Part::Later => return Vec::new(),
            6 => ports.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, self.tcp_flags, 1, 0, 0, 0, 0, 0]),
            17 | 136 => {
                ports.extend(((8 + self.payload) as u16).to_be_bytes());
                ports.extend([0, 0]);
            }
            // DCCP: data offset 4 words of a generic header with a short sequence number; SCTP: verification tag, checksum.
            33 => ports.extend([4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
            132 => ports.extend([0, 0, 0, 1, 0, 0, 0, 0]),
            _ if is_icmp => return vec![self.icmp_type, 0, 0, 0, 0, 0, 0, 0],
            _ => return Vec::new(),
        }
        ports
    }
}
