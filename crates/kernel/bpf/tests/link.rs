//! The program of messages between nodes, frame by frame: what it delivers, answers, drops by which reason and leaves to the stack.

use std::collections::BTreeMap;

use bpf::{LinkAnswers, LinkCounts, LinkPort, LinkRing, LinkSettings, XdpMode};
use sys::tun::Tap;
use testbed::{
    messages::{FAR, PORT, data, frame, message, payload, read},
    privileged,
};
use wire::Sum;

/// Verdicts of include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

const ALL: [u8; 6] = [0xff; 6];
const PROBE: u8 = 1;

/// A port on a TAP device that is never up: a program that is attached somewhere is run by BPF_PROG_TEST_RUN without waiting for RCU.
struct Bed {
    port: LinkPort,
    mac: [u8; 6],
    _tap: Tap,
}

impl Bed {
    fn new(settings: LinkSettings) -> Option<Self> {
        privileged()?;
        let tap = Tap::create("eklink%d").unwrap();
        let port = LinkPort::attach(tap.name(), XdpMode::Native, settings).unwrap();
        Some(Self { port, mac: sys::link::mac(tap.name()).unwrap().unwrap(), _tap: tap })
    }

    fn give(&self, frame: &[u8]) -> u32 {
        self.port.try_frame(frame, frame.len(), 1).unwrap().0
    }

    /// Counters of `work`.
    fn counted(&self, work: impl FnOnce()) -> LinkCounts {
        let before = self.port.counts().unwrap();
        work();
        self.port.counts().unwrap().since(before)
    }
}

#[test]
fn each_frame_ends_as_its_counter_says() {
    let Some(mut bed) = Bed::new(LinkSettings::default()) else { return };
    let mut ring = bed.port.endpoint(PORT..=PORT, 1 << 16).unwrap();
    assert_eq!((bed.port.mode(), bed.port.answers()), (XdpMode::Native, LinkAnswers::Sent));
    let whole = data(&payload(100));
    let mut damaged = whole.clone();
    damaged[131] ^= 1;
    let mut long = data(&payload(100));
    long[2..4].copy_from_slice(&101u16.to_be_bytes());
    let mut giant = data(&[]);
    giant[2..4].copy_from_slice(&9001u16.to_be_bytes());
    giant.resize(9100, 0);
    let mut other = bed.mac;
    other[5] ^= 1;
    let to_us = |message: &[u8]| frame(bed.mac, &[], message);
    type Counter = fn(&LinkCounts) -> u64;
    let cases: [(&str, Vec<u8>, u32, Counter); 9] = [
        ("whole", to_us(&whole), XDP_DROP, |c| c.delivered),
        ("to all", frame(ALL, &[], &whole), XDP_DROP, |c| c.delivered),
        ("damaged", to_us(&damaged), XDP_DROP, |c| c.checksum),
        ("longer than the frame", to_us(&long), XDP_DROP, |c| c.too_short),
        ("longer than any", to_us(&giant), XDP_DROP, |c| c.too_long),
        ("kind 8", to_us(&message(1, 8, PORT, 5, &[])), XDP_DROP, |c| c.kind),
        ("nobody's port", to_us(&message(1, 0, PORT + 1, 5, &[])), XDP_PASS, |c| c.no_endpoint),
        ("to another node", frame(other, &[], &whole), XDP_PASS, |c| c.elsewhere),
        ("a probe of all nodes", frame(ALL, &[], &message(1, PROBE, 0, 0, &[])), XDP_PASS, |c| c.passed),
    ];
    for (what, frame, verdict, counter) in &cases {
        let counts = bed.counted(|| assert_eq!(bed.give(frame), *verdict, "{what}"));
        assert_eq!(counter(&counts), 1, "{what}: {counts:?}");
        let delivered = if counts.delivered == 1 { vec![(FAR, None, whole.clone())] } else { vec![] };
        assert_eq!(read(&mut ring), delivered, "{what}");
        assert_eq!(sum(&counts), 1, "{what}: {counts:?}");
    }
    // Another version is not judged: whoever has the port answers it.
    for version in [0, 2] {
        let mut strange = message(version, 9, PORT, 5, &payload(30));
        strange[30] ^= 1;
        let counts = bed.counted(|| assert_eq!(bed.give(&to_us(&strange)), XDP_DROP));
        assert_eq!((counts.delivered, sum(&counts)), (1, 1));
        assert_eq!(read(&mut ring), [(FAR, None, strange)]);
        let counts = bed.counted(|| assert_eq!(bed.give(&to_us(&message(version, 0, 0, 0, &[]))), XDP_PASS));
        assert_eq!((counts.no_endpoint, sum(&counts)), (1, 1), "the broker's");
    }
    // Of other EtherTypes nothing is counted.
    let mut foreign = to_us(&whole);
    foreign[12..14].copy_from_slice(&0x88B6u16.to_be_bytes());
    let counts = bed.counted(|| assert_eq!(bed.give(&foreign), XDP_PASS));
    assert_eq!(counts, LinkCounts::default());
}

fn sum(counts: &LinkCounts) -> u64 {
    let LinkCounts { delivered, answered, no_endpoint, elsewhere, passed, full, too_short, too_long, checksum, kind } =
        *counts;
    delivered + answered + no_endpoint + elsewhere + passed + full + too_short + too_long + checksum + kind
}

#[test]
fn tags_are_reported_and_two_of_them_are_the_stacks() {
    let Some(mut bed) = Bed::new(LinkSettings::default()) else { return };
    let mut ring = bed.port.endpoint(PORT..=PORT, 1 << 16).unwrap();
    let whole = data(&payload(9));
    for (tag, vlan) in [([0x8100, 0x2123], Some(0x123)), ([0x88a8, 5], Some(5)), ([0x8100, 0x6000], None)] {
        assert_eq!(bed.give(&frame(bed.mac, &[tag], &whole)), XDP_DROP);
        assert_eq!(read(&mut ring), [(FAR, vlan, whole.clone())]);
    }
    let twice = frame(bed.mac, &[[0x88a8, 5], [0x8100, 6]], &whole);
    let counts = bed.counted(|| assert_eq!(bed.give(&twice), XDP_PASS));
    assert_eq!(counts, LinkCounts::default());
}

/// Every length of a frame up to its own: too short while anything is missing, the stack's while the EtherType is.
#[test]
fn frames_cut_at_every_byte_are_short() {
    let Some(mut bed) = Bed::new(LinkSettings::default()) else { return };
    let mut ring = bed.port.endpoint(PORT..=PORT, 1 << 16).unwrap();
    for tags in [&[][..], &[[0x8100, 7]]] {
        let whole = frame(bed.mac, tags, &data(&payload(70)));
        let header = 14 + 4 * tags.len();
        for len in 14..=whole.len() {
            let counts = bed.counted(|| {
                let verdict = bed.give(&whole[..len]);
                assert_eq!(verdict, if len < header { XDP_PASS } else { XDP_DROP }, "{len}");
            });
            let expected = match len {
                _ if len < header => LinkCounts::default(),
                _ if len < whole.len() => LinkCounts { too_short: 1, ..LinkCounts::default() },
                _ => LinkCounts { delivered: 1, ..LinkCounts::default() },
            };
            assert_eq!(counts, expected, "{len} of {}", whole.len());
        }
        assert_eq!(read(&mut ring).len(), 1);
    }
}

/// Payloads of many lengths, in one buffer and in several, whole and with any byte of the checksum's reach changed.
#[test]
fn frames_of_every_size_arrive_byte_by_byte() {
    let Some(mut bed) = Bed::new(LinkSettings::default()) else { return };
    let mut ring = bed.port.endpoint(PORT..=PORT, 1 << 20).unwrap();
    let lengths = (0..=520).chain((521..9000).step_by(97)).chain([1468, 1472, 2560, 4560, 4608, 8999, 9000]);
    for len in lengths {
        let whole = data(&payload(len));
        for tags in [&[][..], &[[0x8100, 7]]] {
            let frame = frame(bed.mac, tags, &whole);
            // The kernel's test run has 3,520 bytes or so in one buffer, and none of fewer than the Ethernet header.
            for first in
                [frame.len().min(3400), 14 + 4 * tags.len(), 40, 60, 1000].into_iter().filter(|f| *f <= frame.len())
            {
                let (verdict, _, _) = bed.port.try_frame(&frame, first, 1).unwrap();
                assert_eq!(verdict, XDP_DROP);
                let vlan = tags.first().map(|[_, id]| *id);
                assert!(read(&mut ring) == [(FAR, vlan, whole.clone())], "{len} bytes, {first} in the first buffer");
            }
        }
        let mut damaged = frame(bed.mac, &[], &whole);
        let at = 14 + 32.max(len * 5 % (len + 32));
        if at < 14 + whole.len() {
            damaged[at] ^= 0x40;
            let first = damaged.len().min(3400);
            let counts = bed.counted(|| assert_eq!(bed.port.try_frame(&damaged, first, 1).unwrap().0, XDP_DROP));
            assert_eq!(counts, LinkCounts { checksum: 1, ..LinkCounts::default() }, "{len}");
        }
    }
    assert_eq!(bed.port.counts().unwrap().full, 0);
}

#[test]
fn every_byte_of_a_frame_is_under_its_checksum() {
    let Some(mut bed) = Bed::new(LinkSettings::default()) else { return };
    let mut ring = bed.port.endpoint(0..=u16::MAX, 1 << 16).unwrap();
    let whole = frame(bed.mac, &[], &data(&payload(61)));
    for at in 14..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        let counts = bed.counted(|| assert_eq!(bed.give(&damaged), XDP_DROP, "{at}"));
        // With another version it is not judged here.
        assert_eq!(counts.delivered, u64::from(at == 14), "{at}: {counts:?}");
        assert_eq!(sum(&counts), 1, "{at}: {counts:?}");
    }
    assert_eq!(read(&mut ring).len(), 1);
}

/// Whoever switches it off gets what a damaged cable makes.
#[test]
fn the_checksum_can_be_left_to_the_reader() {
    let Some(mut bed) = Bed::new(LinkSettings { checked: false, ..LinkSettings::default() }) else { return };
    let mut ring = bed.port.endpoint(PORT..=PORT, 1 << 16).unwrap();
    let mut damaged = data(&payload(61));
    damaged[50] ^= 1;
    assert_eq!(bed.give(&frame(bed.mac, &[], &damaged)), XDP_DROP);
    assert_eq!(read(&mut ring), [(FAR, None, damaged)]);
}

#[test]
fn a_probe_of_the_node_is_turned_round() {
    let Some(bed) = Bed::new(LinkSettings::default()) else { return };
    for (tags, len) in [(&[][..], 0), (&[], 64), (&[[0x8100, 0x2007]], 33)] {
        let probe = message(1, PROBE, 0, 0, &payload(len));
        let sent = frame(bed.mac, tags, &probe);
        let (verdict, answer, _) = bed.port.try_frame(&sent, sent.len(), 1).unwrap();
        assert_eq!(verdict, XDP_TX);
        let mut expected = probe.clone();
        expected[0] = 0x12;
        expected[4..8].copy_from_slice(&[0, 0, 0, 7]);
        expected[30..32].fill(0);
        let checksum = Sum::new().bytes(&expected).finish();
        expected[30..32].copy_from_slice(&checksum.to_be_bytes());
        let mut whole = frame(FAR, tags, &expected);
        whole[6..12].copy_from_slice(&bed.mac);
        assert_eq!(answer, whole);
    }
    assert_eq!(bed.port.counts().unwrap().answered, 3);
    // Of a port, of a connection, or of another kind it is the endpoint's.
    for (kind, port, connection) in [(PROBE, 1, 0), (PROBE, 0, 1), (0, 0, 0), (2, 0, 0)] {
        let other = frame(bed.mac, &[], &message(1, kind, port, connection, &[]));
        let counts = bed.counted(|| assert_eq!(bed.give(&other), XDP_PASS));
        assert_eq!(counts.no_endpoint, 1, "{counts:?}");
    }
    // A damaged one is not answered, nor one from a group's address.
    let mut damaged = frame(bed.mac, &[], &message(1, PROBE, 0, 0, &[]));
    damaged[20] ^= 1;
    damaged[21] ^= 2;
    assert_eq!(bed.counted(|| assert_eq!(bed.give(&damaged), XDP_DROP)).checksum, 1);
    let mut from_all = frame(bed.mac, &[], &message(1, PROBE, 0, 0, &[]));
    from_all[6..12].copy_from_slice(&ALL);
    assert_eq!(bed.counted(|| assert_eq!(bed.give(&from_all), XDP_PASS)).passed, 1);
    // Where the header begins in another buffer, the stack has it.
    let sent = frame(bed.mac, &[], &message(1, PROBE, 0, 0, &payload(64)));
    assert_eq!(bed.port.try_frame(&sent, 40, 1).unwrap().0, XDP_PASS);
}

#[test]
fn a_full_ring_counts_and_goes_on_when_it_is_read() {
    let Some(mut bed) = Bed::new(LinkSettings::default()) else { return };
    let mut ring = bed.port.endpoint(PORT..=PORT, 4096).unwrap();
    assert_eq!(ring.bytes(), 4096);
    let whole = data(&payload(64));
    let sent = frame(bed.mac, &[], &whole);
    for turn in 1..=5 {
        let counts = bed.counted(|| (0..40).for_each(|_| assert_eq!(bed.give(&sent), XDP_DROP)));
        // The kernel never fills the last byte.
        assert_eq!((counts.delivered, counts.full), (31, 9));
        assert_eq!((ring.filled(), ring.full()), (31 * 128, 9 * turn));
        let read = read(&mut ring);
        assert_eq!(read.len(), 31);
        assert!(read.iter().all(|(from, vlan, frame)| *from == FAR && vlan.is_none() && *frame == whole));
        assert_eq!(ring.filled(), 0);
    }
    // Larger than the ring at all.
    let jumbo = frame(bed.mac, &[], &data(&payload(8000)));
    let counts = bed.counted(|| assert_eq!(bed.port.try_frame(&jumbo, 3000, 1).unwrap().0, XDP_DROP));
    assert_eq!(counts.full, 1);
}

#[test]
fn endpoints_see_their_own_frames_alone() {
    let Some(mut bed) = Bed::new(LinkSettings::default()) else { return };
    let mut rings: BTreeMap<u16, LinkRing> = BTreeMap::new();
    rings.insert(100, bed.port.endpoint(100..=163, 1 << 16).unwrap());
    rings.insert(164, bed.port.endpoint(164..=164, 1 << 16).unwrap());
    assert!(bed.port.endpoint(163..=170, 4096).is_err(), "a port has one ring");
    let to = |port: u16| bed.give(&frame(bed.mac, &[], &message(1, 0, port, 1, &port.to_be_bytes())));
    for port in 90..180 {
        assert_eq!(to(port), if (100..=164).contains(&port) { XDP_DROP } else { XDP_PASS }, "{port}");
    }
    let ports = |ring: &mut LinkRing| -> Vec<u16> {
        read(ring).iter().map(|(_, _, frame)| u16::from_be_bytes([frame[6], frame[7]])).collect()
    };
    assert_eq!(ports(rings.get_mut(&100).unwrap()), (100..=163).collect::<Vec<_>>());
    assert_eq!(ports(rings.get_mut(&164).unwrap()), [164]);
    bed.port.remove(100..=163);
    let to = |port: u16| bed.give(&frame(bed.mac, &[], &message(1, 0, port, 1, &[])));
    assert_eq!((to(100), to(163), to(164)), (XDP_PASS, XDP_PASS, XDP_DROP));
    assert_eq!(ports(rings.get_mut(&100).unwrap()), [0u16; 0]);
    // The descriptors are the ring: another process reads on where this one stopped.
    let ring = rings.remove(&164).unwrap();
    let handed = ring.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
    drop(ring);
    let mut taken_on = LinkRing::of(handed).unwrap();
    assert_eq!(taken_on.bytes(), 1 << 16);
    assert_eq!(ports(&mut taken_on), [164]);
    // Of a range, what is there is removed; what is not is passed over.
    bed.port.remove(0..=u16::MAX);
    let to = |port: u16| bed.give(&frame(bed.mac, &[], &message(1, 0, port, 1, &[])));
    assert_eq!((to(100), to(163), to(164), to(165)), (XDP_PASS, XDP_PASS, XDP_PASS, XDP_PASS));
    // What was removed can be taken again.
    let mut again = bed.port.endpoint(163..=163, 4096).unwrap();
    assert_eq!(bed.give(&frame(bed.mac, &[], &message(1, 0, 163, 1, &[]))), XDP_DROP);
    assert_eq!(ports(&mut again), [163]);
}
