//! The bench's receiver, frame by frame: what it counts as what, what it sends back, and that no frame, however short, misleads it.

use std::{collections::HashSet, net::IpAddr};

use bpf::{BenchDelays, BenchReceiver, BenchRxConfig, BenchRxCounts, Echo, XdpMode};
use nix::{
    sched::{CpuSet, sched_getcpu, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use proptest::{prelude::*, test_runner::TestRunner};
use sys::tun::Tap;
use testbed::privileged;
use wire::{Ethernet, FlowKey, FrameSize, Ip, Kind, Mac, Sum, Template};

/// Verdicts of include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

const TAG: u16 = 0x1234;
const PROBE: u32 = u32::MAX;
/// Bytes of a signature, src/send/bench_sig.h.
const SIGNATURE: usize = 18;

const NEAR: Mac = Mac([2, 0, 0, 0, 0, 1]);
const FAR: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// A receiver on a TAP device that is never up: a program that is attached somewhere is run by BPF_PROG_TEST_RUN without waiting for RCU.
struct Bench {
    receiver: BenchReceiver,
    _tap: Tap,
}

impl Bench {
    /// From here on the calling thread stays on its CPU: neighbours are those that come to one CPU.
    fn new(config: BenchRxConfig) -> Self {
        let mut here = CpuSet::new();
        here.set(sched_getcpu().unwrap()).unwrap();
        sched_setaffinity(Pid::from_raw(0), &here).unwrap();
        let tap = Tap::create("ekbrx%d").unwrap();
        let config = BenchRxConfig { tag: TAG, ..config };
        Self { receiver: BenchReceiver::attach(tap.name(), XdpMode::Native, &config).unwrap(), _tap: tap }
    }

    fn give(&self, frame: &[u8]) -> u32 {
        self.receiver.try_frame(frame).unwrap().0
    }

    fn counts(&self) -> BenchRxCounts {
        self.receiver.counts().unwrap()
    }
}

#[derive(Debug, Clone, Copy)]
struct Signature {
    tag: u16,
    flow: u32,
    seq: u32,
    stamp_ns: u64,
}

impl Signature {
    fn bytes(self) -> Vec<u8> {
        [&self.tag.to_ne_bytes()[..], &self.flow.to_ne_bytes(), &self.seq.to_ne_bytes(), &self.stamp_ns.to_ne_bytes()]
            .concat()
    }
}

fn ours(flow: u32, seq: u32) -> Signature {
    Signature { tag: TAG, flow, seq, stamp_ns: 0 }
}

fn addresses(ipv6: bool) -> (IpAddr, IpAddr) {
    let of = |v4: &str, v6: &str| if ipv6 { v6.parse().unwrap() } else { v4.parse().unwrap() };
    (of("198.18.128.7", "2001:2:0:100::7"), of("198.19.128.9", "2001:2:0:200::9"))
}

/// A whole frame with its signature and right checksums, and where the signature is.
fn frame(kind: Kind, ipv6: bool, signature: Signature) -> (Vec<u8>, usize) {
    let template = Template { destination: FAR, source: NEAR, tags: [None; 2], kind };
    let (source, destination) = addresses(ipv6);
    let flow = FlowKey { source, destination, source_port: 1024, destination_port: 7 };
    let (transport, at) = (template.transport_offset(ipv6), template.headers_len(ipv6));
    let mut frame = template.build(&flow, FrameSize::in_memory((at + SIGNATURE).max(60)), 0).unwrap();
    frame[at..at + SIGNATURE].copy_from_slice(&signature.bytes());
    let (field, protocol) = if kind == Kind::Udp { (transport + 6, 17) } else { (transport + 16, 6) };
    frame[field..field + 2].fill(0);
    let segment = &frame[transport..];
    let sum = Sum::new().pseudo_header(source, destination, protocol, segment.len() as u32).bytes(segment).finish();
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    (frame, at)
}

fn udp(signature: Signature) -> Vec<u8> {
    frame(Kind::Udp, false, signature).0
}

/// Fragment `place` of `of`, each with `bytes` of payload (a multiple of 8) but the last with 40.
fn fragment(ipv6: bool, place: u32, of: u32, bytes: u32, signature: Signature) -> Vec<u8> {
    let (whole, _) = frame(Kind::Udp, ipv6, signature);
    let (more, offset) = (u16::from(place + 1 < of), (place * bytes) as u16);
    let len = if more == 1 { bytes } else { 40 } as usize;
    let mut frame = whole[..if ipv6 { 54 } else { 34 }].to_vec();
    if ipv6 {
        frame[20] = 44;
        frame[18..20].copy_from_slice(&(len as u16 + 8).to_be_bytes());
        frame.extend([17, 0]);
        frame.extend((offset | more).to_be_bytes());
        frame.extend([0, 0, 0, 9]);
    } else {
        frame[16..18].copy_from_slice(&(len as u16 + 20).to_be_bytes());
        frame[20..22].copy_from_slice(&((offset / 8) | (more << 13)).to_be_bytes());
    }
    let start = frame.len();
    if place == 0 {
        frame.extend([4, 0, 0, 7, 0, 0, 0, 0]);
    }
    frame.extend(signature.bytes());
    frame.resize(start + len, 0);
    frame
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

#[test]
fn units_are_found_behind_every_header_and_nothing_shorter_is_taken_for_one() {
    let Some(()) = privileged() else { return };
    let (plain, _) = frame(Kind::Udp, false, ours(0, 0));
    let with_options = |at: usize, words: usize, frame: &[u8], first: usize, byte: u8| {
        let mut long = frame.to_vec();
        long[first] = byte;
        long.splice(at..at, vec![1u8; words * 4]);
        long
    };
    let ip_options = with_options(34, 10, &plain, 14, 0x4f);
    let (tcp, at) = frame(Kind::TcpData, false, ours(0, 0));
    let tcp_options = with_options(54, 3, &tcp, 46, 0x80);
    let (tcp6, at6) = frame(Kind::TcpData, true, ours(0, 0));
    let (udp6, at_udp6) = frame(Kind::Udp, true, ours(0, 0));
    for (what, frame, at) in [
        ("UDP", plain, 42),
        ("UDP, IP options", ip_options, 82),
        ("TCP", tcp, at),
        ("TCP with options", tcp_options, at + 12),
        ("TCP, IPv6", tcp6, at6),
        ("UDP, IPv6", udp6, at_udp6),
    ] {
        let bench = Bench::new(BenchRxConfig::default());
        // BPF_PROG_TEST_RUN takes no less than an Ethernet header.
        for len in 14..at + SIGNATURE {
            assert_eq!(bench.give(&frame[..len]), XDP_PASS, "{what}, {len} bytes");
        }
        let stray = (at + SIGNATURE - 14) as u64;
        assert_eq!(bench.counts(), BenchRxCounts { stray, ..Default::default() }, "{what}");
        assert_eq!(bench.give(&frame), XDP_DROP, "{what}");
        assert_eq!(bench.counts(), BenchRxCounts { stray, frames: 1, units: 1, ..Default::default() }, "{what}");
    }
}

#[test]
fn what_is_not_of_the_trial_goes_to_the_stack() {
    let Some(()) = privileged() else { return };
    let bench = Bench::new(BenchRxConfig { flows: 3, ..Default::default() });
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = udp(ours(0, 0));
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut tagged = udp(ours(0, 0));
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let strays = [
        changed(12, &[0x08, 0x06]),
        changed(14, &[0x65]),
        changed(14, &[0x44]),
        changed(23, &[1]),
        changed(23, &[47]),
        tagged,
        udp(Signature { tag: TAG ^ 2, ..ours(0, 0) }),
        udp(ours(3, 0)),
        udp(ours(PROBE - 1, 0)),
        fragment(false, 0, 2, 1480, ours(0, 0)),
        fragment(true, 1, 2, 1448, ours(0, 0)),
        vec![0xff; 1514],
        vec![0; 60],
    ];
    for (i, frame) in strays.iter().enumerate() {
        assert_eq!(bench.give(frame), XDP_PASS, "stray {i}");
    }
    assert_eq!(bench.counts(), BenchRxCounts { stray: strays.len() as u64, ..Default::default() });
    assert_eq!(bench.give(&udp(ours(2, 0))), XDP_DROP);
    assert_eq!(bench.give(&udp(Signature { tag: TAG ^ 1, ..ours(2, 1) })), XDP_DROP);
    let expected = BenchRxCounts { stray: strays.len() as u64, frames: 1, units: 1, looped: 1, ..Default::default() };
    assert_eq!(bench.counts(), expected);
}

#[test]
fn what_is_left_of_the_trial_before_is_distinguished_from_strays() {
    let Some(()) = privileged() else { return };
    let bench = Bench::new(BenchRxConfig::default());
    let of = |tag| udp(Signature { tag, ..ours(0, 0) });
    // Nothing was before the first trial.
    assert_eq!(bench.give(&of(TAG ^ 6)), XDP_PASS);
    bench.receiver.rearm(TAG ^ 6).unwrap();
    for left in [of(TAG), of(TAG ^ 1), udp(Signature { tag: TAG, ..ours(PROBE, 0) })] {
        assert_eq!(bench.give(&left), XDP_DROP);
    }
    assert_eq!((bench.give(&of(TAG ^ 6)), bench.give(&of(TAG ^ 8))), (XDP_DROP, XDP_PASS));
    let expected = BenchRxCounts { leftover: 3, stray: 1, units: 1, frames: 1, ..Default::default() };
    assert_eq!(bench.counts(), expected);
    // A receiver that is put in the place of another is told.
    let other = Bench::new(BenchRxConfig { before: Some(TAG ^ 6), ..Default::default() });
    assert_eq!(other.give(&of(TAG ^ 7)), XDP_DROP);
    assert_eq!(other.counts(), BenchRxCounts { leftover: 1, ..Default::default() });
}

#[test]
fn flows_do_not_disturb_each_other_and_a_trial_does_not_see_the_one_before() {
    let Some(()) = privileged() else { return };
    let bench = Bench::new(BenchRxConfig { flows: 5, ..Default::default() });
    for (tag, rounds) in [(TAG, 4), (0x7776, 7)] {
        if tag != TAG {
            bench.receiver.rearm(tag).unwrap();
            assert_eq!(bench.counts(), BenchRxCounts::default());
        }
        for seq in 0..rounds {
            for flow in [3, 0, 4, 1, 2] {
                assert_eq!(bench.give(&udp(Signature { tag, ..ours(flow, seq) })), XDP_DROP);
            }
        }
        let units = u64::from(rounds) * 5;
        assert_eq!(bench.counts(), BenchRxCounts { frames: units, units, ..Default::default() });
    }
    assert_eq!(bench.give(&udp(ours(0, 9))), XDP_DROP, "of the trial before");
}

/// A sequence by RFC 4737 and a window of 64: units, duplicated, reordered, stale.
fn by_the_book(arrivals: &[u32]) -> (u64, u64, u64, u64) {
    let (mut seen, mut next, mut counts) = (HashSet::new(), 0u32, (0, 0, 0, 0));
    for &seq in arrivals {
        if seq < next && next - seq > 64 {
            counts.3 += 1;
        } else if !seen.insert(seq) {
            counts.1 += 1;
        } else {
            counts.0 += 1;
            counts.2 += u64::from(seq < next);
            next = next.max(seq + 1);
        }
    }
    counts
}

#[test]
fn duplicates_reordering_and_what_is_too_late_are_distinguished_in_any_order() {
    let Some(()) = privileged() else { return };
    let bench = Bench::new(BenchRxConfig::default());
    let step = prop_oneof![4 => Just(1i64), 3 => -3i64..4, 1 => -70i64..70, 1 => 60i64..140];
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    let book = |arrivals: &[u32]| {
        bench.receiver.rearm(TAG).unwrap();
        for &seq in arrivals {
            assert_eq!(bench.give(&udp(ours(0, seq))), XDP_DROP);
        }
        let c = bench.counts();
        assert_eq!(c.frames, arrivals.len() as u64);
        ((c.units, c.duplicated, c.reordered, c.stale), by_the_book(arrivals))
    };
    for edge in [&[63, 0, 0][..], &[64, 0, 1, 0], &[65, 1, 0], &[0, 64, 0, 128, 64, 65], &[0, 1, 1000, 936, 937, 999]] {
        let (seen, expected) = book(edge);
        assert_eq!(seen, expected, "{edge:?}");
    }
    runner
        .run(&prop::collection::vec(step, 1..120), |steps| {
            let mut at = 100i64;
            let arrivals: Vec<u32> = steps
                .iter()
                .map(|step| {
                    at = (at + step).max(0);
                    at as u32
                })
                .collect();
            let (seen, expected) = book(&arrivals);
            prop_assert_eq!(seen, expected, "{:?}", arrivals);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_datagram_counts_when_all_its_fragments_came_in_whatever_order() {
    let Some(()) = privileged() else { return };
    for (ipv6, bytes) in [(false, 1480), (true, 1448)] {
        for fragments in [2, 3, 46, 64] {
            let bench = Bench::new(BenchRxConfig { flows: 2, fragments, ..Default::default() });
            // Neither a fragment more than expected, nor a piece of another length, is part of it.
            let piece =
                |place, seq| fragment(ipv6, place, fragments, bytes.min(65528 / fragments / 8 * 8), ours(1, seq));
            for place in 0..fragments {
                assert_eq!(bench.counts().units, 0);
                assert_eq!(bench.give(&piece(place, 0)), XDP_DROP, "{place} of {fragments}");
            }
            for place in (0..fragments).rev() {
                bench.give(&piece(place, 1));
            }
            let n = u64::from(fragments);
            assert_eq!(bench.counts(), BenchRxCounts { frames: 2 * n, units: 2, ..Default::default() });
            // The next is incomplete, the one after it comes in between two others, and one comes twice.
            for place in 1..fragments {
                bench.give(&piece(place, 2));
            }
            for place in 0..fragments {
                bench.give(&piece(place, 3));
                bench.give(&piece(place, 4));
            }
            for place in 0..fragments {
                bench.give(&piece(place, 4));
            }
            let counts = bench.counts();
            assert_eq!((counts.units, counts.incomplete, counts.duplicated), (4, 1, 1), "{fragments} {ipv6}");
            // What is missing comes after all; the datagram is a reordered one.
            bench.give(&piece(0, 2));
            let counts = bench.counts();
            assert_eq!((counts.units, counts.incomplete, counts.reordered, counts.stray), (5, 0, 1, 0));
            // Somebody has put the datagram together.
            bench.give(&frame(Kind::Udp, ipv6, ours(1, 5)).0);
            assert_eq!(bench.counts().units, 6);
        }
    }
}

#[test]
fn a_fragment_cut_at_any_length_or_out_of_place_is_a_stray() {
    let Some(()) = privileged() else { return };
    for ipv6 in [false, true] {
        let bench = Bench::new(BenchRxConfig { fragments: 3, ..Default::default() });
        let headers = if ipv6 { 62 } else { 34 };
        for (place, end) in [(0, headers + 8 + SIGNATURE), (1, headers + SIGNATURE), (2, headers + SIGNATURE)] {
            let whole = fragment(ipv6, place, 3, 1448, ours(0, 0));
            for len in 14..end {
                assert_eq!(bench.give(&whole[..len]), XDP_PASS, "{place}, {len} bytes");
            }
        }
        assert_eq!(bench.give(&fragment(ipv6, 3, 5, 1448, ours(0, 0))), XDP_PASS, "the fourth of three");
        let mut empty = fragment(ipv6, 1, 3, 1448, ours(0, 0));
        let (len, no_payload) = if ipv6 { (18..20, 8u16) } else { (16..18, 20) };
        empty[len].copy_from_slice(&no_payload.to_be_bytes());
        assert_eq!(bench.give(&empty), XDP_PASS, "a fragment without payload");
        assert_eq!((bench.counts().frames, bench.counts().incomplete), (0, 0));
    }
}

#[test]
fn probes_go_back_with_right_checksums_and_their_round_trips_are_kept() {
    let Some(()) = privileged() else { return };
    let far = Bench::new(BenchRxConfig { echo: Some(Echo { source: FAR, destination: NEAR }), ..Default::default() });
    let silent = Bench::new(BenchRxConfig::default());
    for (kind, ipv6) in [(Kind::Udp, false), (Kind::Udp, true), (Kind::TcpData, false), (Kind::TcpData, true)] {
        // The near port waits for the other direction.
        let near = Bench::new(BenchRxConfig::default());
        near.receiver.rearm(TAG ^ 1).unwrap();
        for seq in [0, 1, 3, 3, 1023] {
            let (sent, at) = frame(kind, ipv6, Signature { stamp_ns: now_ns(), ..ours(PROBE, seq) });
            let (verdict, back) = far.receiver.try_frame(&sent).unwrap();
            assert_eq!(verdict, XDP_REDIRECT);
            assert_eq!((&back[..12], &back[at..]), (&[NEAR.0, FAR.0].concat()[..], &sent[at..]));
            let (was, is) = (Ethernet::parse(&sent).unwrap().payload().to_vec(), Ethernet::parse(&back).unwrap());
            let (was, is) = (Ip::parse(&was).unwrap(), Ip::parse(is.payload()).unwrap());
            assert_eq!((was.source(), was.destination()), (is.destination(), is.source()));
            assert!(is.is_checksum_right() && is.is_payload_checksum_right() == Some(true), "{kind:?} {back:x?}");
            let ports = at - if kind == Kind::Udp { 8 } else { 20 };
            assert_eq!((&back[ports..ports + 2], &back[ports + 2..ports + 4]), (&[0, 7][..], &[4, 0][..]));
            assert_eq!(near.give(&back), XDP_DROP);
            assert_eq!(silent.give(&sent), XDP_DROP, "a probe ends where nobody sends it back");
        }
        let counts = near.counts();
        assert_eq!(counts, BenchRxCounts { probes_returned: 4, ..Default::default() }, "one of them came twice");
        // The last is beyond the first thousand.
        let round_trips = near.receiver.round_trips();
        assert_eq!(round_trips.len(), 3);
        assert!(round_trips.iter().all(|&ns| ns > 0 && ns < 60_000_000_000), "{round_trips:?}");
    }
    assert_eq!(far.counts(), BenchRxCounts { probes_echoed: 20, ..Default::default() });
    assert_eq!(silent.counts(), BenchRxCounts::default());
}

#[test]
fn delays_land_in_the_bucket_that_holds_them() {
    let Some(()) = privileged() else { return };
    let bench = Bench::new(BenchRxConfig { silence: true, ..Default::default() });
    let buckets = bench.receiver.delays().unwrap().buckets.len();
    for i in 1..buckets {
        assert!(BenchDelays::bucket_ns(i - 1) < BenchDelays::bucket_ns(i));
    }
    assert_eq!(
        (BenchDelays::bucket_ns(63), BenchDelays::bucket_ns(128), BenchDelays::bucket_ns(buckets)),
        (63, 128, 1 << 34)
    );
    // The last is beyond the last bucket. No stamp is of a time before the machine started: a guest that has just booted waits.
    let longest = BenchDelays::bucket_ns(buckets) + 1;
    std::thread::sleep(std::time::Duration::from_nanos((longest + 1).saturating_sub(now_ns())));
    let delays = [0u64, 300, 70_000, 2_000_000, 2_000_000, 1 << 33, longest];
    let mut slack = 0;
    for (seq, &delay) in delays.iter().enumerate() {
        let before = now_ns();
        bench.give(&udp(Signature { stamp_ns: before - delay, ..ours(0, seq as u32) }));
        slack = slack.max(now_ns() - before);
    }
    // Neither without a stamp nor a second time.
    bench.give(&udp(ours(0, delays.len() as u32)));
    bench.give(&udp(Signature { stamp_ns: 1, ..ours(0, 0) }));
    let seen = bench.receiver.delays().unwrap();
    assert_eq!((seen.samples, seen.buckets.iter().sum::<u64>()), (delays.len() as u64, delays.len() as u64));
    let sum: u64 = delays.iter().sum();
    assert!((sum..=sum + slack * delays.len() as u64).contains(&seen.sum_ns));
    assert!(seen.min_ns <= slack && (longest..=longest + slack).contains(&seen.max_ns));
    for delay in [2_000_000, 1 << 33] {
        let held = seen.buckets.iter().enumerate().any(|(i, &n)| {
            n > 0 && BenchDelays::bucket_ns(i) <= delay + slack && BenchDelays::bucket_ns(i + 1) > delay
        });
        assert!(held, "{delay}");
    }
    assert_eq!(seen.buckets.last(), Some(&1), "beyond the longest");
    assert_eq!(bench.receiver.ipdv().unwrap().samples, delays.len() as u64 - 1);
    assert!(bench.receiver.jitter_ns().unwrap().is_some());
    assert!(bench.counts().longest_silence_ns.is_some_and(|ns| ns > 0));
    bench.receiver.rearm(TAG).unwrap();
    assert_eq!((bench.receiver.delays().unwrap().samples, bench.receiver.jitter_ns().unwrap()), (0, None));
    assert_eq!(bench.counts().longest_silence_ns, None);
}

/// RFC 3550, section 6.4.1, on delays whose differences dwarf the time that a run of the program takes.
#[test]
fn jitter_follows_rfc_3550() {
    let Some(()) = privileged() else { return };
    const SECOND: u64 = 1_000_000_000;
    let bench = Bench::new(BenchRxConfig::default());
    assert_eq!(bench.receiver.jitter_ns().unwrap(), None);
    let start = now_ns();
    let (mut expected, mut last) = (0.0f64, None::<u64>);
    for (seq, delay) in [1000, 3000, 2000, 9000, 1000, 1000, 5000].map(|d| d * SECOND / 1000).into_iter().enumerate() {
        bench.give(&udp(Signature { stamp_ns: now_ns() - delay, ..ours(0, seq as u32) }));
        if let Some(last) = last {
            expected += (delay.abs_diff(last) as f64 - expected) / 16.0;
        }
        last = Some(delay);
    }
    let slack = (now_ns() - start) as f64;
    let jitter = bench.receiver.jitter_ns().unwrap().unwrap();
    assert!((jitter - expected).abs() <= slack + 1.0, "{jitter} is not {expected}");
}

#[test]
fn the_last_gap_has_its_time() {
    let Some(()) = privileged() else { return };
    let bench = Bench::new(BenchRxConfig { gap_times: true, ..Default::default() });
    bench.give(&udp(ours(0, 0)));
    assert_eq!(bench.counts().last_gap_ns, None);
    let before = now_ns();
    bench.give(&udp(ours(0, 2)));
    let after = now_ns();
    bench.give(&udp(ours(0, 3)));
    bench.give(&udp(ours(0, 1)));
    assert!((before..=after).contains(&bench.counts().last_gap_ns.unwrap()));
}

#[test]
fn the_clock_has_a_price() {
    let Some(()) = privileged() else { return };
    let cost = bpf::bench_rx::clock().unwrap();
    eprintln!("{cost:?}");
    assert!(cost.cost_ns > 0.0 && cost.resolution_ns >= 1.0, "{cost:?}");
}

#[test]
fn what_cannot_be_distinguished_is_refused() {
    let Some(()) = privileged() else { return };
    let refused = |config: BenchRxConfig| BenchReceiver::load(&config).unwrap_err().to_string();
    for config in [
        BenchRxConfig { flows: 0, ..Default::default() },
        BenchRxConfig { flows: (1 << 24) + 1, ..Default::default() },
        BenchRxConfig { fragments: 0, ..Default::default() },
        BenchRxConfig { fragments: 65, ..Default::default() },
        BenchRxConfig { flows: 1 << 23, fragments: 2, ..Default::default() },
    ] {
        let printed = refused(config);
        assert!(
            printed.contains(&format!("not {} flows of {} fragments", config.flows, config.fragments)),
            "{printed}"
        );
    }
    let none = BenchReceiver::attach("ek-none", XdpMode::Native, &BenchRxConfig::default()).unwrap_err().to_string();
    assert!(none.contains("`ek-none`"), "{none}");
}
