//! The shield's parser: any bytes are a packet, another protocol's frame or malformed, and bytes behind the packet change nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shield::packet::{Packet, Parsed};

fuzz_target!(|frame: &[u8]| {
    let parsed = Packet::parse(frame);
    if let Parsed::Ip(packet) = parsed {
        assert!(packet.ip_at < packet.transport_at && packet.transport_at <= frame.len());
        let end = packet.ip_at + usize::from(packet.len);
        assert!(end <= frame.len());
        assert_eq!(Packet::parse(&frame[..end]), parsed);
        assert!(matches!(Packet::parse(&frame[..end - 1]), Parsed::Malformed(_)));
    }
    let _ = Packet::parse_ip(frame);
});
