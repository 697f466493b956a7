//! Fixtures of the message tests: handmade frames, and the records of a ring.

use bpf::LinkRing;
use wire::Sum;

pub const ETHERTYPE: u16 = 0x88B5;
/// The address that frames come from.
pub const FAR: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub const PORT: u16 = 40_000;

/// A record of a ring: address, VLAN, header and payload.
pub type Read = ([u8; 6], Option<u16>, Vec<u8>);

/// Header and payload, with a right checksum; by hand, as docs/protocol/link.md has them.
pub fn message(version: u8, kind: u8, to_port: u16, connection: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![version << 4 | kind, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend(7u16.to_be_bytes());
    bytes.extend(to_port.to_be_bytes());
    bytes.extend(connection.to_be_bytes());
    bytes.extend([0xaa; 16]);
    bytes.extend([0, 3, 0, 0]);
    bytes.extend(payload);
    let sum = Sum::new().bytes(&bytes).finish();
    bytes[30..32].copy_from_slice(&sum.to_be_bytes());
    bytes
}

pub fn data(payload: &[u8]) -> Vec<u8> {
    message(1, 0, PORT, 5, payload)
}

pub fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// An Ethernet frame behind these tags, padded to 60 bytes.
pub fn frame(to: [u8; 6], tags: &[[u16; 2]], message: &[u8]) -> Vec<u8> {
    let mut frame = [to, FAR].concat();
    for [protocol, id] in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(id.to_be_bytes());
    }
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.extend(message);
    frame.resize(frame.len().max(60), 0);
    frame
}

pub fn read(ring: &mut LinkRing) -> Vec<Read> {
    let mut read = Vec::new();
    let count = ring.consume(|from, vlan, frame| read.push((from, vlan, frame.to_vec())));
    assert_eq!(count, read.len());
    read
}
