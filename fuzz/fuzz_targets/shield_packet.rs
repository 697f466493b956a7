//! The shield's parser and its search: any bytes are a packet, another protocol's frame or malformed, as the parser of the crate `wire`
//! has it too; bytes behind the packet change nothing; the compiled tables decide as the rules say; and a capture that kept a part
//! of the frame is explained as the whole frame would be, or not at all; who is asked is answered by a frame that is right and no longer.
//!
//! The first byte picks one of [`SETS`] sets of rules, the second where the capture cuts; the rest is the frame.

#![cfg_attr(feature = "run", no_main)]

use std::{ops::ControlFlow, path::Path, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use rules::tables::RuleTables;
use rules::{
    Rules,
    compile::{self, Counters, Now, lookup},
    explain::{CaptureReader, Captured, Frame, explain},
    packet::{EXTENSIONS_MAX, Packet, Parsed, Part},
    reference,
};
use shield::between::ring::proof::{Challenged, Overload, SynProof};
use testbed::random::{self, Random, Shape};
use wire::{Ethernet, Ip, Transport};

/// Sets of rules, of up to 40 rules each; every eighth has up to 200, which are more than one word of 64.
const SETS: u64 = 32;

fn sets() -> &'static (Now, Vec<(Rules, RuleTables)>) {
    static MADE: OnceLock<(Now, Vec<(Rules, RuleTables)>)> = OnceLock::new();
    MADE.get_or_init(|| {
        let now = Now::read();
        let set = |seed: u64| {
            let most = if seed.is_multiple_of(8) { 200 } else { 40 };
            let rules = random::rules(&mut Random(seed), Shape { rules: most, ..Shape::default() }, now.wall);
            let tables = compile::tables(&rules, &mut Counters::new(), now).expect("rules that can be compiled");
            (rules, tables)
        };
        (now, (0..SETS).map(set).collect())
    })
}

fuzz_target!(|bytes: &[u8]| {
    let [pick, cut, frame @ ..] = bytes else { return };
    let parsed = Packet::parse(frame);
    if let Parsed::Ip(packet) = parsed {
        assert!(packet.ip_at < packet.transport_at && packet.transport_at <= frame.len());
        let end = packet.ip_at + usize::from(packet.len);
        assert!(end <= frame.len());
        assert_eq!(Packet::parse(&frame[..end]), parsed);
        assert!(matches!(Packet::parse(&frame[..end - 1]), Parsed::Malformed(_)));
        let bare = Packet { vlan: None, ip_at: 0, transport_at: packet.transport_at - packet.ip_at, ..packet };
        assert_eq!(Packet::parse_ip(&frame[packet.ip_at..]), Parsed::Ip(bare));
    }
    let _ = Packet::parse_ip(frame);
    as_wire(frame, parsed);
    decided(u64::from(*pick) % SETS, frame, parsed);
    syn_acked(u64::from(*cut), frame, parsed);
    explained(frame, parsed, usize::from(*cut));
});

/// The house's other parser, which knows nothing of this one, finds the same.
fn as_wire(frame: &[u8], parsed: Parsed) {
    let found = Ethernet::parse(frame).ok().and_then(|ethernet| Some((ethernet, Ip::parse(ethernet.payload()).ok()?)));
    let Some((ethernet, ip)) = found else {
        return assert!(!matches!(parsed, Parsed::Ip(_)), "wire refuses what is taken: {parsed:?}");
    };
    // It stops at a second fragment header, and is more particular about UDP's length and ICMP's header.
    if ip.protocol() == 44 {
        return;
    }
    let transport = Transport::parse(&ip);
    if let Parsed::Ip(packet) = parsed {
        assert_eq!((packet.source, packet.destination), (ip.source(), ip.destination()));
        assert_eq!(packet.protocol, ip.protocol());
        assert_eq!(packet.vlan, ethernet.tags().next().map(|tag| tag.vlan()));
        assert_eq!(packet.transport_at - packet.ip_at, ip.header_len());
        assert!(!ip.is_cut_short());
        // Of two fragment headers it tells the last, as this parser does, but also of one that says "whole".
        let part = ip.fragment().map_or(Part::Whole, |f| match (f.offset, f.more) {
            (0, false) => Part::Whole,
            (0, true) => Part::First,
            _ => Part::Later,
        });
        assert_eq!(packet.part, part);
        match transport {
            Ok(Transport::Tcp(header, ..)) => {
                assert_eq!(packet.tcp_flags, Some(header.offset_flags.get() as u8));
                assert_eq!(packet.ports, Some((header.source.get(), header.destination.get())));
            }
            Ok(Transport::Udp(header, _)) => {
                assert_eq!(packet.ports, Some((header.source.get(), header.destination.get())));
            }
            _ => {}
        }
    } else {
        let kind = ethernet.ether_type();
        let agrees = kind == if ip.source().is_ipv4() { 0x0800 } else { 0x86dd };
        // Ports of UDP-Lite, SCTP and DCCP are nothing to it.
        let known = !matches!(ip.protocol(), 33 | 132 | 136);
        let many = parsed == Parsed::Malformed("more than 8 IPv6 extension headers")
            && ip.header_len() > 40 + 8 * EXTENSIONS_MAX;
        assert!(
            !agrees || !known || ip.is_cut_short() || transport.is_err() || many,
            "wire takes what is refused: {parsed:?}"
        );
    }
}

/// The tables decide as the rules say.
fn decided(set: u64, frame: &[u8], parsed: Parsed) {
    let (now, sets) = sets();
    let (rules, tables) = &sets[set as usize];
    // Limits are exceeded by some packets, the same ones for both.
    let exceeds = |rule: usize, packet: &Packet| (rule + usize::from(packet.len)).is_multiple_of(3);
    let found = lookup::decide_frame(tables, frame, now.monotonic_ns, exceeds);
    let meant = match parsed {
        Parsed::Ip(packet) => {
            assert_eq!(lookup::protected(tables, &packet), reference::protected(rules, &packet));
            reference::decide_with(rules, &packet, *now, exceeds)
        }
        _ => reference::decide_frame(rules, frame, *now),
    };
    assert_eq!(found, meant, "set {set}");
}

/// A question is a SYN-ACK to where the packet came from, and its checksums are right.
fn syn_acked(second: u64, frame: &[u8], parsed: Parsed) {
    static PROOF: OnceLock<SynProof> = OnceLock::new();
    let Parsed::Ip(packet) = parsed else { return };
    let proof = PROOF.get_or_init(|| SynProof::new().expect("random numbers"));
    let Challenged::SynAck(question) = proof.judge(&packet, frame, second * 1_000_000_000, &mut Overload::default())
    else {
        return;
    };
    let bytes = question.bytes();
    assert!(bytes.len() <= frame.len(), "{} of {}", bytes.len(), frame.len());
    let Parsed::Ip(answer) = Packet::parse(bytes) else { panic!("{bytes:02x?}") };
    assert_eq!((answer.source, answer.destination), (packet.destination, packet.source));
    assert_eq!(answer.ports, packet.ports.map(|(from, to)| (to, from)));
    assert_eq!((answer.vlan, answer.tcp_flags, answer.ip_at), (packet.vlan, Some(0x12), packet.ip_at));
    let ip = Ip::parse(&bytes[answer.ip_at..]).expect("an IP header");
    assert!(ip.is_checksum_right() && ip.is_payload_checksum_right() == Some(true), "{bytes:02x?}");
}

/// A capture file in memory: the whole frame, then the cut one.
struct Twice<'f> {
    frame: &'f [u8],
    kept: [usize; 2],
    number: usize,
}

impl CaptureReader for Twice<'_> {
    fn link_type(&self) -> (i32, String) {
        (1, "EN10MB".to_owned())
    }

    fn next_packet(&mut self) -> Result<Option<Captured<'_>>, String> {
        let Some(&kept) = self.kept.get(self.number) else { return Ok(None) };
        self.number += 1;
        Ok(Some(Captured { at_ns: 0, wire_len: self.frame.len() as u32, data: &self.frame[..kept] }))
    }
}

/// Checks the report for a capture of the whole frame, and for one of its first `cut` bytes.
fn explained(frame: &[u8], parsed: Parsed, cut: usize) {
    let cut = cut.min(frame.len());
    let meant = match parsed {
        Parsed::Ip(packet) => Frame::Ip(packet),
        Parsed::NotIp => Frame::NotIp,
        Parsed::Malformed(why) => Frame::Malformed(why),
    };
    let (now, _) = sets();
    let mut number = 0;
    let mut capture = Twice { frame, kept: [frame.len(), cut], number: 0 };
    let read = explain(&Rules::default(), &mut capture, Path::new("frames"), *now, |explained| {
        number += 1;
        let unknown = number == 2 && explained.frame == Frame::Cut;
        assert!(unknown || explained.frame == meant, "cut at {cut}: {:?}, meant {meant:?}", explained.frame);
        ControlFlow::Continue(())
    });
    let (summary, broken) = read.expect("a capture");
    assert!(broken.is_none() && summary.all.packets == 2);
}

#[cfg(not(feature = "run"))]
fn main() {}
