//! Streams between two ends without a network: read in pieces of any size, whatever their frames, and bounded in memory.

mod budget;
mod pieces;

use transport::{Connection, HEADER_BYTES, Header, Nanos, Offer, Serial, Settings, State};

const PAYLOAD: u16 = 100;
const SLOTS: u32 = 64;

fn settings(number: u32, first: Serial) -> Settings {
    Settings { epoch: number, number, first, port: 1, peer_port: 2, payload_max: PAYLOAD, slots: SLOTS, stream: true }
}

/// Two ends of an open connection, whose frames begin with these numbers.
fn joined(number: u32, firsts: [Serial; 2]) -> (Connection, Connection) {
    let mut a = Connection::open(0, settings(number, firsts[0]));
    let offer = a.poll(0).unwrap();
    let frame = [&offer.head[..], offer.payload].concat();
    assert_eq!(frame.len(), HEADER_BYTES + 8);
    let (header, payload) = Header::read(&frame).unwrap();
    let mut b = Connection::accept(0, settings(number + 1, firsts[1]), &header, &Offer::read(payload).unwrap());
    carry(0, &mut b, &mut a);
    carry(0, &mut a, &mut b);
    assert_eq!((a.state(), b.state()), (State::Open, State::Open));
    (a, b)
}

/// All that `from` has to send.
fn carry(now: Nanos, from: &mut Connection, to: &mut Connection) {
    let mut frames = Vec::new();
    while let Some(frame) = from.poll(now) {
        frames.push([&frame.head[..], frame.payload].concat());
    }
    for frame in frames {
        let (header, payload) = Header::read(&frame).unwrap();
        to.on_frame(now, &header, payload);
    }
}
