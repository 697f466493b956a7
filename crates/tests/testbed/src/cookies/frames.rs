//! TCP frames made by hand, and read back.

use std::net::IpAddr;

use wire::{Mac, Sum};

use crate::{Ip, ethernet};

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
pub const RST: u8 = 4;
pub const FIN: u8 = 1;
pub const ECN: u8 = 0xc0;
/// As Linux sends them: MSS 1460, SACK, timestamp 0x01020304, window shift 10.
pub const LINUX: [u8; 20] = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 10];
/// As Windows does by default: no timestamps.
pub const WINDOWS: [u8; 12] = [2, 4, 0x05, 0xb4, 1, 3, 3, 8, 1, 1, 4, 2];

/// A TCP segment in a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub to: Mac,
    pub from: Mac,
    /// 802.1Q tag control fields, the outer one first.
    pub tags: Vec<u16>,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    /// IPv4 options or IPv6 destination options, as they are in the packet, a multiple of 4 or 8 bytes.
    pub extra: Vec<u8>,
    pub data: Vec<u8>,
}

impl Frame {
    pub fn new(to: Mac, from: Mac, source: &str, destination: &str) -> Self {
        Self {
            to,
            from,
            tags: vec![],
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ports: (40_000, super::PORT),
            seq: 0xfeed_0001,
            ack: 0,
            flags: SYN,
            window: 64_240,
            options: LINUX.to_vec(),
            extra: vec![],
            data: vec![],
        }
    }

    /// The bytes, without padding.
    pub fn bytes(&self) -> Vec<u8> {
        let mut tcp = vec![0; 20];
        tcp[..2].copy_from_slice(&self.ports.0.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.ports.1.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.to_be_bytes());
        tcp[12] = (((20 + self.options.len()) / 4) << 4) as u8;
        tcp[13] = self.flags;
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        tcp.extend_from_slice(&self.options);
        tcp.extend_from_slice(&self.data);
        let sum = Sum::new().pseudo_header(self.source, self.destination, 6, tcp.len() as u32).bytes(&tcp).finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let next = if self.source.is_ipv6() && !self.extra.is_empty() { 60 } else { 6 };
        let ip = Ip { fragment: 0x4000, ..Ip::new(self.source, self.destination, next) };
        let tags: Vec<_> = self.tags.iter().map(|tag| (0x8100, *tag)).collect();
        ethernet([self.to.0, self.from.0], &tags, &ip.packet(&self.extra, &tcp))
    }

    /// Reads a frame without IP options or extension headers; panics where a length or a checksum is wrong.
    pub fn read(bytes: &[u8]) -> Self {
        let mac = |at: usize| Mac(bytes[at..at + 6].try_into().unwrap());
        let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (mut at, mut tags) = (12, vec![]);
        while number(at) == 0x8100 {
            tags.push(number(at + 2));
            at += 4;
        }
        let (source, destination, tcp): (IpAddr, IpAddr, &[u8]) = if number(at) == 0x0800 {
            let ip = &bytes[at + 2..];
            assert_eq!((ip[0], ip[9]), (0x45, 6), "IPv4 without options, TCP");
            assert_eq!(Sum::new().bytes(&ip[..20]).finish(), 0, "the IPv4 checksum");
            let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
            (address(12), address(16), &ip[20..len])
        } else {
            let ip = &bytes[at + 2..];
            assert_eq!((ip[0] >> 4, ip[6]), (6, 6), "IPv6 without extension headers, TCP");
            let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
            (address(8), address(24), &ip[40..40 + len])
        };
        let sum = Sum::new().pseudo_header(source, destination, 6, tcp.len() as u32).bytes(tcp).finish();
        assert_eq!(sum, 0, "the TCP checksum");
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let header = usize::from(tcp[12] >> 4) * 4;
        Self {
            to: mac(0),
            from: mac(6),
            tags,
            source,
            destination,
            ports: ((word(0) >> 16) as u16, word(0) as u16),
            seq: word(4),
            ack: word(8),
            flags: tcp[13],
            window: word(12) as u16,
            options: tcp[20..header].to_vec(),
            extra: vec![],
            data: tcp[header..].to_vec(),
        }
    }

    /// The ACK that completes the handshake offered by `answer`.
    pub fn finish(&self, answer: &Self) -> Self {
        let mut ack = Self { seq: self.seq + 1, ack: answer.seq.wrapping_add(1), flags: ACK, ..self.clone() };
        ack.options = match answer.stamp() {
            Some(stamp) => {
                let mut options = vec![1, 1, 8, 10, 1, 2, 3, 5];
                options.extend_from_slice(&stamp.to_be_bytes());
                options
            }
            None => vec![],
        };
        ack
    }

    /// The timestamp in the options of a SYN-ACK of ours.
    pub fn stamp(&self) -> Option<u32> {
        let at = self.options.windows(2).position(|w| w == [8, 10])?;
        Some(u32::from_be_bytes(self.options[at + 2..at + 6].try_into().unwrap()))
    }
}
