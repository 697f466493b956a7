//! Frames: no bytes make a parser panic, and what it hands out lies within them.

#![cfg_attr(feature = "run", no_main)]

use libfuzzer_sys::fuzz_target;
use wire::{Ethernet, Ip, Transport};

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = Ethernet::parse(bytes) else { return };
    assert!(frame.payload().len() <= bytes.len());
    let Ok(ip) = Ip::parse(frame.payload()) else { return };
    assert!(ip.header_len() + ip.payload().len() <= frame.payload().len());
    let _ = (ip.is_checksum_right(), ip.is_payload_checksum_right(), ip.fragment());
    let _ = Transport::parse(&ip);
});

#[cfg(not(feature = "run"))]
fn main() {}
