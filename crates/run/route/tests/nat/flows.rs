//! Connections through a translating router, and their frames.

use std::net::{IpAddr, SocketAddr};

use testbed::{Dice, Ip, ethernet};
use wire::checksum::Sum;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PUSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// A connection: how its packets look where they are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) tcp: bool,
    /// From and to, as the client sends them.
    pub(crate) out: [SocketAddr; 2],
    /// From and to, as the server sends them.
    pub(crate) back: [SocketAddr; 2],
    /// Bytes sent so far by each side.
    pub(crate) seq: [u32; 2],
}

impl Flow {
    pub(crate) fn new(tcp: bool, out: [&str; 2], back: [&str; 2]) -> Self {
        let both = |of: [&str; 2]| of.map(|text| text.parse().unwrap());
        Self { tcp, out: both(out), back: both(back), seq: [1000, 5000] }
    }

    /// The next packet of the client (0) or the server (1), in a frame.
    pub(crate) fn packet(&mut self, side: usize, flags: u8, payload: &[u8], shape: &Shape) -> Vec<u8> {
        let [from, to] = if side == 0 { self.out } else { self.back };
        let (seq, ack) = (self.seq[side], self.seq[1 - side]);
        self.seq[side] = seq.wrapping_add(payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0));
        let mut segment = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        let at = if self.tcp {
            segment.extend(seq.to_be_bytes());
            segment.extend(if flags & ACK != 0 { ack } else { 0 }.to_be_bytes());
            segment.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
            16
        } else {
            segment.extend((8 + payload.len() as u16).to_be_bytes());
            segment.extend([0, 0]);
            6
        };
        segment.extend(payload);
        let protocol = if self.tcp { 6 } else { 17 };
        let sum = Sum::new().pseudo_header(from.ip(), to.ip(), protocol, segment.len() as u32).bytes(&segment);
        let sum = if self.tcp { sum.finish() } else { sum.finish_udp() };
        if !(shape.no_sum && !self.tcp && from.is_ipv4()) {
            segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        shape.frame(from.ip(), to.ip(), protocol, &segment)
    }

    /// Has a datagram with this payload have the checksum zero once it is translated, which UDP writes as 0xffff.
    pub(crate) fn sum_up_to_zero(&self, side: usize, payload: &mut [u8]) {
        let [to, from] = if side == 0 { self.back } else { self.out };
        if payload.len() < 2 || self.tcp {
            return;
        }
        payload[..2].fill(0);
        let len = (8 + payload.len() as u16).to_be_bytes();
        let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        let segment = [&ports[..], &len, &[0, 0], payload].concat();
        let sum = Sum::new().pseudo_header(from.ip(), to.ip(), 17, segment.len() as u32).bytes(&segment);
        payload[..2].copy_from_slice(&sum.finish().to_be_bytes());
    }
}

/// Headers of a frame's packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// To and from, on the link.
    pub(crate) macs: [[u8; 6]; 2],
    pub(crate) hops: u8,
    pub(crate) tos: u8,
    pub(crate) id: u16,
    pub(crate) fragment: u16,
    pub(crate) options: bool,
    /// UDP over IPv4 without a checksum.
    pub(crate) no_sum: bool,
    /// Padding behind the packet.
    pub(crate) trailer: usize,
}

impl Shape {
    pub(crate) fn plain(macs: [[u8; 6]; 2]) -> Self {
        Self { macs, hops: 64, tos: 0, id: 1, fragment: 0x4000, options: false, no_sum: false, trailer: 0 }
    }

    pub(crate) fn random(macs: [[u8; 6]; 2], dice: &mut Dice) -> Self {
        Self {
            macs,
            hops: dice.of(&[64, 64, 64, 255, 128, 3, 2, 2, 1]),
            tos: dice.of(&[0, 0, 0x10, 0xb8, 3]),
            id: dice.draw() as u16,
            fragment: dice.of(&[0, 0x4000, 0x4000]),
            options: dice.one_in(30),
            no_sum: dice.one_in(6),
            trailer: if dice.one_in(12) { dice.below(30) as usize } else { 0 },
        }
    }

    pub(crate) fn frame(&self, from: IpAddr, to: IpAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
        let ip =
            Ip { tos: self.tos, hops: self.hops, id: self.id, fragment: self.fragment, ..Ip::new(from, to, protocol) };
        let mut packet = ip.packet(if self.options && from.is_ipv4() { &[1; 4] } else { &[] }, body);
        if from.is_ipv6() {
            // The flow label.
            packet[2..4].fill(self.id as u8);
        }
        let mut frame = ethernet(self.macs, &[], &packet);
        frame.extend(vec![0xee; self.trailer]);
        if frame.len() < 60 {
            frame.resize(60, 0xdd);
        }
        frame
    }

    /// An error message about a packet of `about`, as its receiver sends it.
    pub(crate) fn error(&self, from: IpAddr, to: IpAddr, about: &[u8]) -> Vec<u8> {
        let kept = &about[14..about.len().min(14 + 60)];
        let (mut body, protocol) = match from.is_ipv4() {
            true => (vec![3, 1, 0, 0, 0, 0, 0, 0], 1),
            false => (vec![1, 3, 0, 0, 0, 0, 0, 0], 58),
        };
        body.extend(kept);
        let sum = match from.is_ipv4() {
            true => Sum::new(),
            false => Sum::new().pseudo_header(from, to, 58, body.len() as u32),
        };
        let sum = sum.bytes(&body).finish();
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        self.frame(from, to, protocol, &body)
    }
}

/// The same packet in two fragments, where it can be cut: of IPv4, with something in each.
pub(crate) fn in_two(frame: &[u8]) -> Vec<Vec<u8>> {
    let Some(header) = frame.get(14..34).filter(|_| frame[12..14] == [8, 0]) else { return vec![frame.to_vec()] };
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let Some(body) = frame.get(34..14 + len).filter(|body| body.len() > 24) else { return vec![frame.to_vec()] };
    let cut = body.len() / 2 / 8 * 8;
    let part = |body: &[u8], fragment: u16| {
        let mut header = header.to_vec();
        header[2..4].copy_from_slice(&(20 + body.len() as u16).to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header[10..12].fill(0);
        let sum = Sum::new().bytes(&header).finish();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&frame[..14], &header, body].concat()
    };
    vec![part(&body[..cut], 0x2000), part(&body[cut..], cut as u16 / 8)]
}
