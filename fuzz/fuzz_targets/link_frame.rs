//! Frames of messages between nodes: any bytes are a frame or not, what is read is written as it was, no part of it is read, nor what had one byte changed.

#![cfg_attr(feature = "run", no_main)]

use libfuzzer_sys::fuzz_target;
use transport::{HEADER_BYTES, Header, Node, NodeSettings, Offer, Reason};
use wire::checksum::Sum;

fuzz_target!(|bytes: &[u8]| {
    let mut node: Node<u8> = Node::new(NodeSettings {
        name: "node".to_owned(),
        epoch: 1,
        payload_max: 100,
        slots: 8,
        secret: 1,
        ports: transport::FREE_PORTS,
    });
    let mut frame = bytes.to_vec();
    // Most are to be whole: with a payload of the length that is there, and a right checksum.
    if frame.len() >= HEADER_BYTES && frame[HEADER_BYTES - 1] & 1 == 0 {
        let len = (frame.len() - HEADER_BYTES) as u16;
        frame[2..4].copy_from_slice(&len.to_be_bytes());
        frame[30..32].fill(0);
        let sum = Sum::new().bytes(&frame).finish();
        frame[30..32].copy_from_slice(&sum.to_be_bytes());
    }
    node.on_frame(1, 1, &frame);
    while node.poll(1).is_some() {}
    let Ok((header, payload)) = Header::read(&frame) else { return };
    let len = HEADER_BYTES + payload.len();
    let written = [&header.write(payload)[..], payload].concat();
    // A sum of 0 can be written as 0 and as 0xffff.
    assert_eq!(written[..30], frame[..30]);
    assert_eq!((Header::read(&written), &written[32..]), (Ok((header, payload)), &frame[32..len]));
    let _ = Reason::read(payload);
    if let Some(offer) = Offer::read(payload) {
        assert_eq!(Offer::read(&offer.bytes()), Some(offer));
    }
    let step = 1 + len / 64;
    for at in (0..len).step_by(step) {
        assert!(Header::read(&frame[..at]).is_err());
        let mut changed = frame.clone();
        changed[at] ^= 1 + (at as u8 & 0x7f);
        // What names less may leave the checksum right.
        assert!(at == 2 || at == 3 || Header::read(&changed).is_err(), "byte {at}");
    }
});

#[cfg(not(feature = "run"))]
fn main() {}
