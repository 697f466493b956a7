//! The packet sockets: what they must neither lose nor tell twice.

mod world;

use std::{net::UdpSocket, time::Duration};

use port::{Group, PacketOptions, PacketSource, PlainReading, PortError, RingSource, Source, WHOLE_FRAME};
use sys::packet::{Fanout, FanoutAlgorithm, RingLayout};
use world::{RECEIVER, datagram, read, send, sink, wire};

fn options(interface: &str) -> PacketOptions {
    PacketOptions {
        interface: interface.to_owned(),
        filter: Vec::new(),
        snaplen: WHOLE_FRAME,
        promiscuous: false,
        ignore_outgoing: false,
    }
}

#[test]
fn a_group_on_the_loopback_sees_a_packet_once() {
    let Some(wire) = wire(1) else { return };
    let fanout =
        Fanout { algorithm: FanoutAlgorithm::LoadBalance, defrag: false, rollover: false, ignore_outgoing: false };
    let layout = RingLayout { block_bytes: 1 << 16, blocks: 4, retire_ms: 5, rx_hash: false, node: None };
    let group = || Group { fanout, members: 2, program: None };
    let send = || {
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        for n in 0..10u8 {
            from.send_to(&[n; 40], to.local_addr().unwrap()).unwrap();
        }
    };
    let counted = wire.receiver.run(|| {
        let mut rings = RingSource::open_group(&options("lo"), layout, &group()).expect("rings");
        let mut plain =
            PacketSource::open_group(&options("lo"), PlainReading::default(), &group()).expect("plain sockets");
        send();
        let rings: usize = rings.iter_mut().map(|source| read(source, 100, |_| ()).len()).sum();
        let plain: usize = plain.iter_mut().map(|source| read(source, 100, |_| ()).len()).sum();
        (rings, plain)
    });
    assert_eq!(counted, (10, 10));
}

#[test]
fn what_was_queued_before_the_interface_went_down_is_read() {
    let Some(wire) = wire(1) else { return };
    let reading = PlainReading { batch: 64, ..PlainReading::default() };
    // What the stack answers is not counted.
    let incoming = PacketOptions { ignore_outgoing: true, ..options(RECEIVER) };
    let mut source = wire.receiver.run(|| PacketSource::open(&incoming, reading)).expect("a socket");
    let frames: Vec<_> = (0..150).map(|n| datagram(n, 100)).collect();
    send(&mut sink(&wire, 0), &frames);
    wire.receiver.link_set("down");
    let mut seen = 0;
    let error = loop {
        match source.receive(Duration::from_millis(50), |_| seen += 1) {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert!(matches!(error, PortError::Down { .. }), "{error}");
    assert_eq!(seen, 150);
}
