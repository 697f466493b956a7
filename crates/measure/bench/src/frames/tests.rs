//! Frames with the sender's signatures in, judged by `wire`'s parsers.

use std::collections::{BTreeMap, HashMap, HashSet};

use lab::boxes::Network;
use proptest::prelude::*;
use wire::{Ethernet, FrameSize, Ip, Mac, Transport};

use super::*;

const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 0xa]), Mac([2, 0, 0, 0, 0, 0xb])];

fn traffic(family: Family, flows: u32, both_ways: bool) -> Traffic {
    let (near, far) = (family.hosts_of_sender(), family.hosts_of_receiver());
    let target =
        |i: usize, sources, destinations| Target { mac: MACS[1 - i], source_mac: MACS[i], sources, destinations };
    Traffic { targets: [target(0, near, far), target(1, far, near)], flows, both_ways, mtu: 1500 }
}

/// The 16-bit words of `bytes`, summed up as they lie in memory and folded.
fn fold(words: impl Iterator<Item = u16>) -> u16 {
    let mut sum: u32 = words.map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|w| u16::from_ne_bytes([w[0], w[1]]))
}

/// The frame as the kernel program makes it of `entry`: signature, the checksum less its words (RFC 1624, equation 4), zeros behind.
fn sent(entry: &BenchEntry, signature: &[u8; SIGNATURE_BYTES], times: u8) -> Vec<u8> {
    let mut frame = entry.frame.clone();
    frame.resize(usize::from(entry.frame_len), 0);
    let at = usize::from(entry.signature_at);
    frame[at..at + SIGNATURE_BYTES].copy_from_slice(signature);
    if entry.checksum_at != 0 {
        let at = usize::from(entry.checksum_at);
        let base = u16::from_ne_bytes([frame[at], frame[at + 1]]);
        let less = !fold((0..times).flat_map(|_| words(signature)));
        frame[at..at + 2].copy_from_slice(&fold([base, less].into_iter()).to_ne_bytes());
    }
    frame
}

/// The datagram of fragments, as an unfragmented packet; all checks that reassembly makes are asserted.
fn reassembled(frames: &[Vec<u8>]) -> Vec<u8> {
    let parts: Vec<Ip<'_>> = frames.iter().map(|f| Ip::parse(Ethernet::parse(f).unwrap().payload()).unwrap()).collect();
    let id = parts[0].fragment().unwrap().id;
    let mut data = Vec::new();
    for (i, ip) in parts.iter().enumerate() {
        let fragment = ip.fragment().unwrap();
        assert!(ip.is_checksum_right() && !ip.is_cut_short());
        assert_eq!((fragment.id, fragment.offset as usize, fragment.more), (id, data.len(), i + 1 < parts.len()));
        assert!(!fragment.more || ip.payload().len() % 8 == 0);
        data.extend_from_slice(ip.payload());
    }
    let unit = Unit {
        destination: MACS[0],
        source: MACS[1],
        key: FlowKey {
            source: parts[0].source(),
            destination: parts[0].destination(),
            source_port: u16::from_be_bytes([data[0], data[1]]),
            destination_port: u16::from_be_bytes([data[2], data[3]]),
        },
        carrier: Carrier::Udp,
        traffic_class: 0,
        data_len: data.len() - 8,
        direction: 0,
        flow: 0,
    };
    let mut entries = Vec::new();
    unit.push((0, 1), &mut entries);
    let mut whole = entries[0].frame[14..usize::from(entries[0].signature_at) - 8].to_vec();
    whole.extend_from_slice(&data);
    whole
}

fn datagram(payload: u32, family: Family) -> FrameSpec {
    FrameSpec::Datagram { payload, fragments: fragments(payload, family) }
}

fn families() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

/// Signatures, those whose words add up to all ones (which no random one does) among them.
fn signatures() -> impl Strategy<Value = [u8; SIGNATURE_BYTES]> {
    prop_oneof![
        9 => any::<[u8; SIGNATURE_BYTES]>(),
        1 => Just([0u8; SIGNATURE_BYTES]),
        1 => Just([0xff; SIGNATURE_BYTES]),
    ]
}

proptest! {
    #[test]
    fn checksums_are_right_whatever_the_signature(family in families(), bytes in 84u32..=1518, signature in signatures(), flows in 1u32..50) {
        let traffic = traffic(family, flows, true);
        let mut entries = lay_out(&FrameSpec::Size { bytes }, &traffic).unwrap();
        prop_assert_eq!(entries.len(), 2 * flows as usize);
        entries.push(probe(&traffic, Direction::Backward).unwrap());
        for entry in &entries {
            let frame = sent(entry, &signature, entry.checksum_times);
            let ip = Ip::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
            prop_assert!(ip.is_checksum_right() && !ip.is_cut_short());
            prop_assert_eq!(ip.is_payload_checksum_right(), Some(true));
            let Ok(Transport::Udp(_, data)) = Transport::parse(&ip) else { panic!("UDP was asked for") };
            prop_assert_eq!(&data[..SIGNATURE_BYTES], &signature[..]);
            prop_assert_eq!((entry.checksum_times, entry.more, entry.id_at, entry.id6_at), (1, false, 0, 0));
        }
    }

    #[test]
    fn a_datagram_is_whole_again_whatever_its_length(family in families(), payload in 1473u32..=65_507, signature in signatures()) {
        let entries = lay_out(&datagram(payload, family), &traffic(family, 1, false)).unwrap();
        let frames: Vec<Vec<u8>> = entries.iter().map(|e| sent(e, &signature, entries[0].checksum_times)).collect();
        prop_assert!(frames.len() <= 64 && usize::from(entries[0].checksum_times) == frames.len());
        for (frame, entry) in frames.iter().zip(&entries) {
            prop_assert!(frame.len() <= 1514 && usize::from(entry.signature_at) + SIGNATURE_BYTES <= frame.len());
        }
        prop_assert!(entries.iter().filter(|e| e.more).all(|e| e.frame_len == entries[0].frame_len), "the receiver counts on it");
        let whole = reassembled(&frames);
        let ip = Ip::parse(&whole).unwrap();
        prop_assert_eq!(ip.is_payload_checksum_right(), Some(true));
        let Ok(Transport::Udp(header, data)) = Transport::parse(&ip) else { panic!("UDP was asked for") };
        prop_assert_eq!((data.len(), usize::from(header.len.get())), (payload as usize, payload as usize + 8));
    }
}

#[test]
fn a_checksum_that_comes_out_as_zero_is_not_sent_as_none() {
    let traffic = traffic(Family::V4, 1, false);
    let entry = &lay_out(&FrameSpec::Size { bytes: 64 }, &traffic).unwrap()[0];
    let at = usize::from(entry.checksum_at);
    // The signature's first word takes away just what there is.
    let mut signature = [0u8; SIGNATURE_BYTES];
    signature[..2].copy_from_slice(&entry.frame[at..at + 2]);
    let frame = sent(entry, &signature, 1);
    assert_eq!(frame[at..at + 2], [0xff, 0xff]);
    let ip = Ip::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
    assert_eq!(ip.is_payload_checksum_right(), Some(true));
}

#[test]
fn a_wrong_number_of_signatures_makes_a_wrong_checksum() {
    let entries = lay_out(&datagram(4096, Family::V4), &traffic(Family::V4, 1, false)).unwrap();
    let frames: Vec<_> = entries.iter().map(|e| sent(e, &[3; SIGNATURE_BYTES], 1)).collect();
    let whole = reassembled(&frames);
    assert_eq!(Ip::parse(&whole).unwrap().is_payload_checksum_right(), Some(false));
}

/// `rfc2544-sizes.csv`: the frame's bytes with FCS, or `fragmented`, and the UDP payload.
const SIZES: &str = include_str!("../../tests/data/rfc2544-sizes.csv");

#[test]
fn payloads_are_those_of_the_table() {
    let traffic = traffic(Family::V4, 3, false);
    let rows: Vec<(&str, u32)> = SIZES
        .lines()
        .filter(|l| l.starts_with(|c: char| c.is_ascii_alphanumeric()) && !l.starts_with("frame"))
        .map(|l| l.split_once(',').map(|(frame, payload)| (frame, payload.parse().unwrap())).unwrap())
        .collect();
    assert_eq!(rows.len(), 12);
    for (frame, payload) in rows {
        let spec = match frame {
            "fragmented" => datagram(payload, Family::V4),
            bytes => FrameSpec::Size { bytes: bytes.parse().unwrap() },
        };
        let entries = lay_out(&spec, &traffic).unwrap();
        let per_unit = spec.frames_per_unit() as usize;
        assert_eq!(entries.len(), 3 * per_unit);
        let udp_len: usize = entries[..per_unit].iter().map(|e| usize::from(e.frame_len) - 34).sum();
        assert_eq!(udp_len, payload as usize + 8, "{spec}");
        if per_unit == 1 {
            assert_eq!(FrameSize::in_memory(usize::from(entries[0].frame_len)).to_string(), frame);
        }
        let all: u64 = entries[..per_unit].iter().map(|e| u64::from(e.frame_len) + 4).sum();
        assert_eq!(spec.frame_bytes(20), all as f64, "{spec}");
    }
}

#[test]
fn fragments_fill_the_mtu_and_the_last_one_has_room_for_a_signature() {
    let lens = |payload, family| {
        let entries = lay_out(&datagram(payload, family), &traffic(family, 1, false)).unwrap();
        entries.iter().map(|e| (e.frame_len, e.signature_at, e.id_at, e.id6_at, e.more)).collect::<Vec<_>>()
    };
    let v4 = [(1514, 42, 18, 0, true), (1514, 34, 18, 0, true), (1178, 34, 18, 0, false)];
    assert_eq!(lens(4096, Family::V4), v4);
    let v6 = [(1510, 70, 0, 58, true), (1510, 62, 0, 58, true), (1270, 62, 0, 58, false)];
    assert_eq!(lens(4096, Family::V6), v6);
    // One byte more than fits: the first fragment leaves 24 bytes to the second, which is padded to the least frame.
    assert_eq!(lens(1473, Family::V4), [(1490, 42, 18, 0, true), (60, 34, 18, 0, false)]);
    assert_eq!(lens(65_507, Family::V4).len(), 45);
    assert_eq!(lens(65_507, Family::V6).len(), 46);
}

/// Sequence numbers of each flow of each direction over `laps` passes, in their order.
fn numbers(entries: &[BenchEntry], laps: u32) -> BTreeMap<(u8, u32), Vec<u32>> {
    let mut seen: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for lap in 0..laps {
        for e in entries.iter().filter(|e| !e.more) {
            seen.entry((e.direction, e.flow)).or_default().push(lap * e.seq_step + e.seq_base);
        }
    }
    seen
}

#[test]
fn each_flow_counts_its_units_from_zero_without_a_gap() {
    let mix = imix(Family::V4);
    for (spec, flows, units) in [
        (FrameSpec::Size { bytes: 64 }, 7, 1),
        (mix.clone(), 1, 12),
        (mix.clone(), 12, 12),
        (mix.clone(), 5, 12),
        (datagram(8192, Family::V4), 4, 1),
    ] {
        let entries = lay_out(&spec, &traffic(Family::V4, flows, true)).unwrap();
        let seen = numbers(&entries, 3);
        assert_eq!(seen.len(), 2 * flows as usize);
        for (flow, numbers) in seen {
            assert_eq!(numbers, (0..3 * units).collect::<Vec<u32>>(), "{spec} {flow:?}");
        }
    }
    // Both directions take turns.
    let entries = lay_out(&mix, &traffic(Family::V4, 2, true)).unwrap();
    assert!(entries.iter().enumerate().all(|(i, e)| usize::from(e.direction) == i % 2));
}

#[test]
fn every_flow_meets_every_size_unless_there_are_very_many() {
    let sizes = |entries: &[BenchEntry]| {
        let mut of: HashMap<u32, Vec<u16>> = HashMap::new();
        entries.iter().for_each(|e| of.entry(e.flow).or_default().push(e.frame_len + 4));
        of
    };
    let few = sizes(&lay_out(&imix(Family::V4), &traffic(Family::V4, 24, false)).unwrap());
    for of_flow in few.values() {
        let count = |bytes| of_flow.iter().filter(|&&b| b == bytes).count();
        assert_eq!((count(64), count(594), count(1518)), (7, 4, 1));
    }
    let entries = lay_out(&imix(Family::V4), &traffic(Family::V4, 100_000, false)).unwrap();
    assert_eq!(entries.len(), 100_008);
    let bytes: u64 = entries.iter().map(|e| u64::from(e.frame_len) + 4).sum();
    assert_eq!(bytes as f64 / entries.len() as f64, imix(Family::V4).frame_bytes(20));
    for (flow, numbers) in numbers(&entries, 2) {
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<u32>>(), "{flow:?}");
    }
}

#[test]
fn a_million_flows_are_a_million_pairs_of_ends_and_nobodys_broadcast() {
    for (family, flows) in [(Family::V4, 1_000_000), (Family::V6, 100_000)] {
        let traffic = traffic(family, flows, false);
        for (keys, target) in flows::of(&traffic).unwrap().iter().zip(&traffic.targets) {
            assert_eq!(keys.iter().collect::<HashSet<_>>().len(), flows as usize);
            let (sources, destinations) =
                (flows::prefix(target.sources).unwrap(), flows::prefix(target.destinations).unwrap());
            assert!(keys.iter().all(|k| sources.contains(k.source) && destinations.contains(k.destination)));
            assert!(keys.iter().all(|k| k.destination_port == 7 && k.source_port >= 1024));
            let last = "198.19.255.255".parse::<std::net::IpAddr>().unwrap();
            assert!(keys.iter().all(|k| k.destination != last && k.source != last));
        }
    }
    // One flow is RFC 2544's.
    assert_eq!(flows::of(&traffic(Family::V4, 1, false)).unwrap()[0][0].source_port, 0xc020);
    // Two hosts have ports enough for the rest.
    let mut between_hosts = traffic(Family::V4, 60_000, false);
    let host = |a: [u8; 4]| Network::host(a.into());
    (between_hosts.targets[0].sources, between_hosts.targets[0].destinations) =
        (host([198, 18, 0, 2]), host([198, 19, 0, 2]));
    assert_eq!(flows::of(&between_hosts).unwrap()[0].len(), 60_000);
    between_hosts.flows = 100_000;
    assert!(flows::of(&between_hosts).unwrap_err().to_string().contains("make only 64512"));
}

#[test]
fn what_cannot_be_sent_is_refused_with_the_reason() {
    let refused = |spec: &FrameSpec, t: &Traffic| lay_out(spec, t).unwrap_err().to_string();
    let one = traffic(Family::V4, 1, false);
    let size = |bytes| FrameSpec::Size { bytes };
    assert!(refused(&size(64), &traffic(Family::V4, 0, false)).starts_with("0 flows are not possible"));
    assert!(refused(&size(64), &traffic(Family::V4, 1_000_001, false)).starts_with("1000001 flows"));
    assert!(refused(&size(64), &traffic(Family::V6, 1, false)).ends_with("so ask for 84"));
    assert!(refused(&size(1519), &one).contains("take an MTU of 1501 bytes, and the least on the way is 1500"));
    assert!(refused(&datagram(4096, Family::V4), &Traffic { mtu: 1400, ..one.clone() }).contains("MTU of 1500"));
    assert!(refused(&FrameSpec::Datagram { payload: 4096, fragments: 2 }, &one).contains("takes 3 fragments"));
    assert!(refused(&datagram(65_507, Family::V4), &traffic(Family::V4, 100_000, true)).contains("fewer flows"));
    let mut mixed = one.clone();
    mixed.targets[1] = traffic(Family::V6, 1, false).targets[1];
    assert!(refused(&size(64), &mixed).contains("not of one IP version"));
    assert!(
        refused(&FrameSpec::Replay { file: "/nowhere.pcap".into(), packets: 1, bytes: 64 }, &one)
            .contains("/nowhere.pcap")
    );
}

/// Writes frames into a capture file.
fn file(frames: &[Vec<u8>]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
    testbed::write_pcap(file.path(), frames);
    file
}

fn packet(kind: wire::Kind, ends: [&str; 2], ports: (u16, u16), bytes: usize) -> Vec<u8> {
    let t = wire::Template { destination: MACS[0], source: MACS[1], tags: [None; 2], kind };
    let [source, destination] = ends.map(|a| a.parse().unwrap());
    let key = FlowKey { source, destination, source_port: ports.0, destination_port: ports.1 };
    t.build(&key, FrameSize::with_fcs(bytes), 77).unwrap()
}

#[test]
fn a_capture_file_keeps_what_a_box_looks_at() {
    use wire::Kind::{TcpSyn, Udp};
    let (a, b, c) = ("10.0.0.1", "10.0.0.2", "192.0.2.9");
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    let mut fragment = packet(Udp, [a, b], (1, 2), 100);
    fragment[20] = 0x20;
    let frames = [
        packet(Udp, [a, b], (5000, 6000), 218),
        packet(Udp, [b, a], (6000, 5000), 300),
        arp,
        packet(TcpSyn, [a, c], (5000, 80), 64),
        packet(Udp, [a, b], (5000, 6000), 219),
        packet(Udp, ["2001:db8::1", "2001:db8::2"], (1, 2), 128),
        fragment,
        // As a capture before segmentation has it.
        packet(Udp, [c, a], (53, 5000), 4000),
    ];
    let file = file(&frames);
    let replay = Replay::read(file.path(), &traffic(Family::V4, 1, true)).unwrap();
    let left_out = replay::LeftOut { not_ip: 1, other_version: 1, fragments: 1, other_protocol: 0 };
    assert_eq!((replay.left_out, replay.grown, replay.cut, replay.flows), (left_out, 1, 1, [3, 1]));
    assert_eq!(replay.notes().len(), 5);
    let of: Vec<_> =
        replay.entries.iter().map(|e| (e.direction, e.flow, e.seq_base, e.seq_step, e.frame_len)).collect();
    let expected = [(0, 0, 0, 2, 214), (1, 0, 0, 1, 296), (0, 1, 0, 1, 72), (0, 0, 1, 2, 215), (0, 2, 0, 1, 1514)];
    assert_eq!(of, expected);
    let FrameSpec::Replay { packets, bytes, .. } = replay.spec() else { panic!("a replay") };
    assert_eq!((packets, bytes), (5, 214 + 296 + 72 + 215 + 1514 + 5 * 4));
    for (entry, kept) in replay.entries.iter().zip([(5000, 6000), (6000, 5000), (5000, 80), (5000, 6000), (53, 5000)]) {
        let frame = sent(entry, &[0x5a; SIGNATURE_BYTES], 1);
        let ip = Ip::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
        assert_eq!(ip.is_payload_checksum_right(), Some(true));
        assert_eq!(Transport::parse(&ip).unwrap().ports(), Some(kept));
    }
    // One way only: answers go along, each as a flow of its own.
    let one_way = Replay::read(file.path(), &traffic(Family::V4, 1, false)).unwrap();
    assert_eq!(one_way.flows, [4, 0]);
    let v6 = Replay::read(file.path(), &traffic(Family::V6, 1, true)).unwrap();
    assert_eq!((v6.entries.len(), v6.left_out.other_version), (1, 6));
}

#[test]
fn a_file_that_changed_or_has_nothing_to_send_is_refused() {
    let one_way = traffic(Family::V4, 1, false);
    let good = file(&[packet(wire::Kind::Udp, ["10.0.0.1", "10.0.0.2"], (1, 2), 128)]);
    let spec = Replay::read(good.path(), &one_way).unwrap().spec();
    assert_eq!(lay_out(&spec, &one_way).unwrap().len(), 1);
    let more = file(&vec![packet(wire::Kind::Udp, ["10.0.0.1", "10.0.0.2"], (1, 2), 128); 2]);
    std::fs::copy(more.path(), good.path()).unwrap();
    let refused = lay_out(&spec, &one_way).unwrap_err().to_string();
    assert!(refused.contains("is not what it was: 1 packets of 128 bytes were expected"), "{refused}");
    let v6 = file(&[packet(wire::Kind::Udp, ["2001:db8::1", "2001:db8::2"], (1, 2), 128)]);
    let refused = Replay::read(v6.path(), &one_way).unwrap_err().to_string();
    assert!(refused.contains("has no packet that can be sent: UDP or TCP over IPv4"), "{refused}");
}
