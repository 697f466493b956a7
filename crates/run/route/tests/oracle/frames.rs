//! Frames aimed at what a router may get wrong.

use std::net::{Ipv4Addr, Ipv6Addr};

use testbed::Dice;
use wire::checksum::Sum;

/// Where frames go, and of what size they may be.
pub(crate) struct Aim {
    pub(crate) router: [u8; 6],
    pub(crate) sender: [u8; 6],
    /// Bytes of the largest packets of the ways in and out, and of routes.
    pub(crate) mtus: [usize; 4],
}

/// The last two have a neighbour of IPv6 for their next hop.
const V4_FAR: &str = "198.18.31.5 198.18.31.140 198.18.31.200 198.18.32.5 198.18.33.5 198.18.2.2 198.18.2.2 198.18.20.7 \
    198.18.3.2 198.18.30.9 198.18.40.1 198.18.40.77 198.18.41.5 198.18.60.3 198.18.61.4";
/// The router's own, broadcasts, refusing routes, no route, groups, loopback, the rest that is odd; the way back, a neighbour who does not answer,
/// out of what is no port, and into a tunnel.
const V4_ODD: &str = "198.18.1.1 198.18.2.1 198.18.2.255 198.18.1.255 255.255.255.255 198.18.50.1 198.18.51.1 198.18.52.1 \
    203.0.113.9 224.0.0.5 239.1.2.3 127.0.0.1 0.0.0.0 0.1.2.3 240.0.0.1 198.18.10.9 198.18.3.250 \
    198.18.4.2 198.18.62.5";
/// Of the last two the one has its way back by another port, the other has none.
const V4_SOURCES: &str = "198.18.1.2 198.18.1.2 198.18.1.2 198.18.1.99 198.18.1.99 198.18.10.3 198.18.10.3 198.18.10.4 \
    198.18.10.5 198.18.10.6 198.18.30.9 203.0.113.7";
const V4_ODD_SOURCES: &str =
    "198.18.1.1 198.18.2.1 198.18.1.255 127.0.0.1 224.0.0.1 255.255.255.255 0.0.0.0 0.0.0.7 240.1.1.1";

/// A frame.
pub(crate) fn frame(dice: &mut Dice, aim: &Aim) -> Vec<u8> {
    let to = match dice.below(40) {
        0 => [0xff; 6],
        1 => [0x01, 0, 0x5e, 0, 0, 5],
        2 => [0x02, 9, 9, 9, 9, 9],
        3 => [0x33, 0x33, 0, 0, 0, 5],
        _ => aim.router,
    };
    let mut frame = [to, aim.sender].concat();
    match dice.below(60) {
        0 => frame.extend([0x81, 0, 0, dice.below(8) as u8]),
        1 => frame.extend([0x81, 0, 0xe0, 5, 0x81, 0, 0, 6]),
        2 => frame.extend([0x88, 0xa8, 0, 7]),
        _ => {}
    }
    if dice.one_in(2) {
        ipv4(dice, aim, &mut frame);
    } else {
        ipv6(dice, aim, &mut frame);
    }
    if dice.one_in(12) {
        // What follows the packet.
        frame.extend(vec![0xee; dice.below(30) as usize]);
    }
    if dice.one_in(50) {
        frame.truncate(14 + dice.below(40) as usize);
    }
    if frame.len() < 60 && dice.one_in(2) {
        frame.resize(60, 0xdd);
    }
    frame.truncate(1514);
    frame
}

/// Bytes behind the IP header, small or near a limit.
fn size(dice: &mut Dice, aim: &Aim, header: usize) -> usize {
    match dice.below(4) {
        0 => {
            let near = dice.of(&aim.mtus) as i64 + dice.below(83) as i64 - 41;
            (near as usize).saturating_sub(header)
        }
        1 => dice.below(600) as usize,
        _ => dice.below(60) as usize,
    }
}

/// Ports and the like, filled up with whatever.
fn payload(dice: &mut Dice, protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|_| dice.draw() as u8).collect();
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    match protocol {
        17 => put(4, &(len as u16).to_be_bytes()),
        6 => put(12, &[0x50]),
        1 => put(0, &[8, 0]),
        58 => put(0, &[128, 0]),
        _ => {}
    }
    bytes
}

fn ipv4(dice: &mut Dice, aim: &Aim, frame: &mut Vec<u8>) {
    let odd = dice.one_in(8);
    let to: Ipv4Addr = dice.address(if odd { V4_ODD } else { V4_FAR });
    let from = if dice.one_in(15) { V4_ODD_SOURCES } else { V4_SOURCES };
    let from: Ipv4Addr = dice.address(from);
    let options = match dice.below(25) {
        0 => vec![7, 7, 4, 0, 0, 0, 0, 0],
        1 => vec![0x83, 7, 4, 198, 18, 2, 2, 0],
        2 => vec![0x94, 4, 0, 0],
        3 => vec![1; 4],
        _ => Vec::new(),
    };
    let protocol = dice.of(&[17, 17, 6, 1, 132, 50, 47, 4, 99]);
    let size = size(dice, aim, 20 + options.len());
    let body = payload(dice, protocol, size);
    let len = (20 + options.len() + body.len()) as u16;
    let len = match dice.below(60) {
        0 => len.wrapping_add(1 + dice.below(40) as u16),
        1 => len.saturating_sub(1 + dice.below(20) as u16),
        2 => dice.below(24) as u16,
        _ => len,
    };
    let ihl = if dice.one_in(60) { dice.below(16) as u8 } else { 5 + options.len() as u8 / 4 };
    let version = if dice.one_in(80) { dice.below(16) as u8 } else { 4 };
    let ttl = dice.of(&[64, 64, 64, 255, 128, 3, 2, 2, 1, 0]);
    let fragment: u16 = match dice.below(12) {
        0 => 0x2000,
        1 => 0x2000 | dice.below(100) as u16,
        2 => dice.below(8192) as u16,
        3 => 0x8000,
        4..=7 => 0x4000,
        _ => 0,
    };
    let mut header = vec![version << 4 | ihl, dice.of(&[0, 0, 0x10, 0xb8, 3])];
    header.extend(len.to_be_bytes());
    header.extend((dice.draw() as u16).to_be_bytes());
    header.extend(fragment.to_be_bytes());
    header.extend([ttl, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    header.extend(options);
    let mut sum = Sum::new().bytes(&header).finish();
    if dice.one_in(20) {
        // Where one hop less carries, or nearly does: the identification takes up the difference.
        let wanted: u16 = dice.of(&[0xfeff, 0xfeff, 0xfefe, 0xfffe, 0xff00, 0]);
        let id = u16::from_be_bytes([header[4], header[5]]);
        let id = (u32::from(id) + u32::from(sum) + 0xffff - u32::from(wanted)) % 0xffff;
        header[4..6].copy_from_slice(&(id as u16).to_be_bytes());
        sum = Sum::new().bytes(&header).finish();
    }
    if dice.one_in(40) {
        sum = sum.wrapping_add(dice.of(&[1, 0xffff, 0x100]));
    }
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0x08, 0]);
    frame.extend(header);
    frame.extend(body);
}

fn ipv6(dice: &mut Dice, aim: &Aim, frame: &mut Vec<u8>) {
    let far = "2001:2:0:2::2 2001:2:0:2::2 2001:2:0:20::7 2001:2:0:3::2 2001:2:0:30::9 2001:2:0:40::5 \
        2001:2:0:31::5 2001:2:0:31:9000::5 2001:2:0:31:d000::5 2001:2:0:32::5";
    let odd = "2001:2:0:1::1 2001:2:0:2::1 2001:2:0:2:: 2001:2:0:50::1 2001:2:0:51::1 2001:2:0:52::1 2001:db8::9 \
        fe80::1 ff02::5 ff0e::1 ::1 :: ::ffff:198.18.2.2 fc00::1 2001:2:0:10::9 2001:2:0:4::2 \
        2001:2:0:62::5";
    let odd_sources = "fe80::77 ::1 :: ff02::1 2001:2:0:1::1 2001:2:0:2::1 ::ffff:198.18.1.2";
    let to = if dice.one_in(8) { odd } else { far };
    let to: Ipv6Addr = dice.address(to);
    let from = if dice.one_in(15) { odd_sources } else { "2001:2:0:1::2 2001:2:0:1::2 2001:2:0:10::3" };
    let from: Ipv6Addr = dice.address(from);
    let protocol: u8 = dice.of(&[17, 17, 6, 58, 132, 50, 59, 99]);
    let (first, extension): (u8, Vec<u8>) = match dice.below(24) {
        0 => (0, vec![protocol, 0, 1, 4, 0, 0, 0, 0]),
        1 => (0, vec![protocol, 0, 5, 2, 0, 0, 1, 0]),
        2 => (43, vec![protocol, 0, 0, 0, 0, 0, 0, 0]),
        3 => (44, vec![protocol, 0, 0, 1, 0, 0, 0, 9]),
        4 => (60, vec![protocol, 0, 1, 4, 0, 0, 0, 0]),
        _ => (protocol, Vec::new()),
    };
    let size = size(dice, aim, 40 + extension.len());
    let body = payload(dice, protocol, size);
    let len = (extension.len() + body.len()) as u16;
    let len = match dice.below(60) {
        0 => len.wrapping_add(1 + dice.below(40) as u16),
        1 => len.saturating_sub(1 + dice.below(20) as u16),
        2 => 0,
        _ => len,
    };
    let version = if dice.one_in(80) { dice.below(16) as u8 } else { 6 };
    frame.extend([
        0x86,
        0xdd,
        version << 4 | dice.below(16) as u8,
        dice.draw() as u8,
        dice.draw() as u8,
        dice.draw() as u8,
    ]);
    frame.extend(len.to_be_bytes());
    frame.extend([first, dice.of(&[64, 64, 255, 3, 2, 2, 1, 0])]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend(extension);
    frame.extend(body);
}
