//! Frames as bytes: what is written is read, and what was changed on its way is not.

use proptest::prelude::*;
use transport::{BadFrame, Connection, Flags, HEADER_BYTES, Header, Kind, Offer, Serial, Settings, VERSION};

fn kinds() -> impl Strategy<Value = Kind> {
    use Kind::{Ack, Busy, Data, Hello, Open, OpenAck, Probe, Reset};
    prop::sample::select(vec![Data, Probe, Ack, Open, OpenAck, Reset, Busy, Hello])
}

prop_compose! {
    fn headers()(
        kind in kinds(), flags: u8, ports: (u16, u16), connection: u32, epoch: u32, numbers: (u32, u32), received: u32, credit: u16,
    ) -> Header {
        Header {
            kind, flags: Flags(flags), from_port: ports.0, to_port: ports.1, connection, epoch, sequence: Serial(numbers.0),
            acknowledged: Serial(numbers.1), received, credit,
        }
    }
}

fn frame(header: &Header, payload: &[u8]) -> Vec<u8> {
    [&header.write(payload)[..], payload].concat()
}

proptest! {
    #[test]
    fn what_is_written_is_read(header in headers(), payload in prop::collection::vec(any::<u8>(), 0..200), padding in 0usize..60) {
        let mut bytes = frame(&header, &payload);
        bytes.resize(bytes.len() + padding, 0);
        prop_assert_eq!(Header::read(&bytes), Ok((header, &payload[..])));
    }

    #[test]
    fn a_frame_cut_anywhere_is_not_read(header in headers(), payload in prop::collection::vec(any::<u8>(), 1..50)) {
        let bytes = frame(&header, &payload);
        for len in 0..bytes.len() {
            let bad = if len < HEADER_BYTES { BadFrame::Short } else { BadFrame::Length };
            prop_assert_eq!(Header::read(&bytes[..len]), Err(bad));
        }
    }

    #[test]
    fn a_byte_changed_anywhere_is_not_read(header in headers(), payload in prop::collection::vec(any::<u8>(), 0..50), by in 1u8..=255) {
        for at in 0..HEADER_BYTES + payload.len() {
            let mut bytes = frame(&header, &payload);
            bytes[at] ^= by;
            prop_assert!(Header::read(&bytes).is_err(), "byte {}", at);
        }
    }

    #[test]
    fn no_bytes_make_an_end_panic(frames in prop::collection::vec((headers(), prop::collection::vec(any::<u8>(), 0..40), 0u64..1 << 40), 0..60)) {
        let settings = Settings {
            epoch: 1, number: 2, first: Serial(u32::MAX - 3), port: 7, peer_port: 8, payload_max: 30, slots: 8, stream: false,
        };
        let mut end = Connection::open(0, settings);
        let mut now = 0;
        let offer = Offer { connection: 9, payload_max: 20, stream: false }.bytes();
        for (number, (mut header, payload, later)) in frames.into_iter().enumerate() {
            // Many are near to what an end expects.
            if number % 2 == 0 {
                header.epoch = 5;
                header.acknowledged = Serial(settings.first.0.wrapping_add(header.acknowledged.0 % 12));
                header.sequence = Serial(header.sequence.0 % 12);
            }
            now += later;
            end.on_frame(now, &header, if header.kind == Kind::OpenAck { &offer } else { &payload });
            end.on_time(now);
            let _ = end.send(now, &payload);
            let _ = end.receive(now, &mut [0; 300]);
            for _ in 0..50 {
                if end.poll(now).is_none() {
                    break;
                }
            }
        }
    }
}

#[test]
fn another_version_is_named() {
    let header = Header {
        kind: Kind::Ack,
        flags: Flags::default(),
        from_port: 1,
        to_port: 2,
        connection: 3,
        epoch: 4,
        sequence: Serial(5),
        acknowledged: Serial(6),
        received: 7,
        credit: 8,
    };
    let mut bytes = frame(&header, &[]);
    bytes[0] = (VERSION + 1) << 4;
    assert_eq!(Header::read(&bytes), Err(BadFrame::Version { theirs: VERSION + 1 }));
    bytes[0] = VERSION << 4 | 12;
    assert_eq!(Header::read(&bytes), Err(BadFrame::Kind { number: 12 }));
}
