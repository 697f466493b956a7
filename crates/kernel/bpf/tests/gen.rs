//! The live-frame program, run packet by packet without sending: what it writes, in which order, and when.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    thread,
    time::Duration,
};

use bpf::{LivePace, LivePacket, LiveSender, RandomSources};
use testbed::privileged;
use wire::{Ethernet, FlowKey, FrameSize, IMIX, Ip, Kind, Mac, Template, Transport};

/// Verdicts of include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_REDIRECT: u32 = 4;

const UNPACED: LivePace = LivePace { pps: None, count: None, duration: Duration::from_secs(3600), nap: None };

fn frames(kind: Kind, sizes: &[FrameSize], ipv6: bool, n: u16) -> (Template, Vec<Vec<u8>>) {
    let t = Template { destination: Mac([2, 0, 0, 0, 0, 2]), source: Mac([2, 0, 0, 0, 0, 1]), tags: [None; 2], kind };
    let address = |last: u16| {
        if ipv6 {
            std::net::Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, last).into()
        } else {
            Ipv4Addr::from(0xc612_0000 + u32::from(last)).into()
        }
    };
    let frames = (0..n)
        .map(|i| {
            let flow =
                FlowKey { source: address(i), destination: address(999), source_port: 1024 + i, destination_port: 80 };
            t.build(&flow, sizes[usize::from(i) % sizes.len()].max(t.min_size(ipv6)), u32::from(i) << 16).unwrap()
        })
        .collect();
    (t, frames)
}

fn load(t: &Template, frames: &[Vec<u8>], ipv6: bool, pace: LivePace) -> LiveSender {
    let headers = t.headers_len(ipv6);
    let cycle: Vec<LivePacket<'_>> =
        frames.iter().map(|f| LivePacket { headers: &f[..headers], frame_len: f.len() }).collect();
    let longest = frames.iter().map(Vec::len).max().unwrap();
    let tcp = (t.kind != Kind::Udp).then(|| t.transport_offset(ipv6));
    LiveSender::load("lo", vec![0; longest], &cycle, tcp, pace).unwrap()
}

#[test]
fn packets_follow_the_cycle_with_right_checksums_and_counted_sequence_numbers() {
    let Some(()) = privileged() else { return };
    for (kind, ipv6) in [(Kind::TcpSyn, false), (Kind::TcpData, true), (Kind::Udp, false), (Kind::Udp, true)] {
        let (t, frames) = frames(kind, &[FrameSize::MIN], ipv6, 5);
        let sender = load(&t, &frames, ipv6, UNPACED);
        for i in 0..13u32 {
            let (verdict, frame) = sender.try_once().unwrap();
            assert_eq!(verdict, XDP_REDIRECT);
            let ip = Ip::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
            assert!(ip.is_checksum_right() && ip.is_payload_checksum_right() == Some(true), "{kind:?} {i}: {frame:x?}");
            let expected = &frames[i as usize % 5];
            if let Transport::Tcp(tcp, ..) = Transport::parse(&ip).unwrap() {
                assert_eq!(tcp.sequence.get() >> 16, i % 5);
                let at = t.transport_offset(ipv6);
                assert_eq!(u32::from(u16::from_ne_bytes([frame[at + 6], frame[at + 7]])), i);
                assert_eq!(
                    (&frame[..at + 6], &frame[at + 8..at + 16]),
                    (&expected[..at + 6], &expected[at + 8..at + 16])
                );
            } else {
                assert_eq!(&frame, expected);
            }
        }
        assert_eq!(sender.counts().sent, 13);
    }
}

#[test]
fn drawn_sources_stay_in_their_prefix_and_checksums_follow() {
    let Some(()) = privileged() else { return };
    for (kind, ipv6, bits, networks) in [
        (Kind::TcpSyn, false, 16, false),
        (Kind::Udp, false, 32, false),
        (Kind::TcpData, true, 8, false),
        (Kind::Udp, true, 0, false),
        (Kind::TcpSyn, true, 16, true),
    ] {
        let (t, frames) = frames(kind, &[FrameSize::MIN], ipv6, 2);
        let headers = t.headers_len(ipv6);
        let cycle: Vec<_> = frames.iter().map(|f| LivePacket { headers: &f[..headers], frame_len: f.len() }).collect();
        let transport_offset = t.transport_offset(ipv6);
        let random = RandomSources { ip_offset: t.ip_offset(), transport_offset, bits, networks, seed: 7 };
        let tcp = (kind != Kind::Udp).then_some(random.transport_offset);
        let sender = LiveSender::load_with("lo", frames[0].clone(), &cycle, tcp, Some(random), UNPACED).unwrap();
        let (mut sources, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for i in 0..300 {
            let (verdict, frame) = sender.try_once().unwrap();
            assert_eq!(verdict, XDP_REDIRECT);
            let ip = Ip::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
            assert!(ip.is_checksum_right() && ip.is_payload_checksum_right() == Some(true), "{kind:?} {i}: {frame:x?}");
            let of_table = Ip::parse(Ethernet::parse(&frames[i % 2]).unwrap().payload()).unwrap();
            let number = |address| match address {
                IpAddr::V4(a) => u128::from(u32::from(a)),
                IpAddr::V6(a) => u128::from(a),
            };
            // What is drawn ends at the /64, or with the address; all before and behind it is as it was.
            let drawn = ((1u128 << bits) - 1) << if networks { 64 } else { 0 };
            assert_eq!(number(ip.source()) & !drawn, number(of_table.source()) & !drawn);
            assert_eq!(ip.destination(), of_table.destination());
            sources.insert(ip.source());
            let port = Transport::parse(&ip).unwrap().ports().unwrap().0;
            assert!(port >= 1024);
            ports.insert(port);
        }
        // Of 300 draws in 2^16, one or two may come twice.
        assert!(ports.len() > 290, "{}", ports.len());
        let expected = match bits {
            0 => 2..=2,
            8 => 100..=256,
            _ => 290..=300,
        };
        assert!(expected.contains(&sources.len()), "{kind:?} {bits}: {}", sources.len());
    }
    let (t, frames) = frames(Kind::Udp, &[FrameSize::MIN], false, 1);
    let cycle = [LivePacket { headers: &frames[0][..42], frame_len: 60 }];
    let beyond = RandomSources { ip_offset: t.ip_offset(), transport_offset: 38, bits: 8, networks: false, seed: 0 };
    let error = LiveSender::load_with("lo", frames[0].clone(), &cycle, None, Some(beyond), UNPACED).unwrap_err();
    assert!(error.to_string().contains("the transport header at 38"), "{error}");
}

#[test]
fn sizes_follow_the_mix() {
    let Some(()) = privileged() else { return };
    let (t, frames) = frames(Kind::Udp, &IMIX, false, 24);
    let sender = load(&t, &frames, false, UNPACED);
    for i in 0..30 {
        let (verdict, frame) = sender.try_once().unwrap();
        assert_eq!((verdict, frame.len()), (XDP_REDIRECT, IMIX[i % 12].bytes_in_memory()));
        assert_eq!(frame, frames[i % 24]);
    }
}

#[test]
fn count_and_stop_end_the_sending() {
    let Some(()) = privileged() else { return };
    let (t, frames) = frames(Kind::TcpSyn, &[FrameSize::MIN], false, 1);
    let counted = load(&t, &frames, false, LivePace { count: Some(70), ..UNPACED });
    let verdicts: Vec<u32> = (0..80).map(|_| counted.try_once().unwrap().0).collect();
    assert!(verdicts[..70].iter().all(|&v| v == XDP_REDIRECT) && verdicts[70..].iter().all(|&v| v == XDP_DROP));
    let counts = counted.counts();
    assert_eq!((counts.sent, counts.fillers, counts.done), (70, 10, true));

    let stopped = load(&t, &frames, false, UNPACED);
    stopped.stop();
    assert_eq!((stopped.try_once().unwrap().0, stopped.counts().done), (XDP_DROP, true));
}

/// A packet per second, of which each look at the clock may make good at most 0.134 s: so there is one packet in the first twelve
/// looks that are at least 0.1 s apart, however slow the machine is, if program and handle agree on the unit of the rate.
#[test]
fn the_achieved_rate_follows_the_knob() {
    let Some(()) = privileged() else { return };
    let (t, frames) = frames(Kind::TcpSyn, &[FrameSize::MIN], false, 1);
    let sender = load(&t, &frames, false, LivePace { pps: Some(1.0), ..UNPACED });
    assert_eq!(sender.try_once().unwrap().0, XDP_REDIRECT, "the first packet is due at once");
    let mut sent = 0;
    for _ in 0..12 {
        thread::sleep(Duration::from_millis(100));
        sent += u32::from(sender.try_once().unwrap().0 == XDP_REDIRECT);
    }
    assert_eq!(sent, 1);
}

/// Ten million packets are due when the clock is looked at again, and none of them is sent once the time is over. Without timing: what went and
/// what was given up are together the whole schedule.
#[test]
fn a_sender_that_is_late_gives_up_the_rest_at_its_end() {
    let Some(()) = privileged() else { return };
    let (t, frames) = frames(Kind::TcpSyn, &[FrameSize::MIN], false, 1);
    let (pps, duration) = (5e7, Duration::from_millis(400));
    let sender = load(&t, &frames, false, LivePace { pps: Some(pps), duration, ..UNPACED });
    let mut sent = u64::from(sender.try_once().unwrap().0 == XDP_REDIRECT);
    thread::sleep(Duration::from_millis(200));
    for _ in 0..64 {
        sent += u64::from(sender.try_once().unwrap().0 == XDP_REDIRECT);
    }
    thread::sleep(Duration::from_millis(250));
    assert_eq!(sender.try_once().unwrap().0, XDP_DROP, "the time is over");
    let counts = sender.counts();
    assert_eq!((counts.sent, counts.done), (sent, true));
    assert!(counts.elapsed_ns >= 400_000_000, "{counts:?}");
    let schedule_ns = sent as f64 * 1e9 / pps + counts.given_up_ns as f64;
    assert!((schedule_ns - 400e6).abs() < 1e3, "{schedule_ns} ns of the schedule, {counts:?}");
}

/// Of a count, no more is given up than was left of it.
#[test]
fn the_rest_of_a_count_is_all_that_is_given_up() {
    let Some(()) = privileged() else { return };
    let (t, frames) = frames(Kind::TcpSyn, &[FrameSize::MIN], false, 1);
    let pace = LivePace { pps: Some(1e6), count: Some(11), duration: Duration::from_millis(50), nap: None };
    let sender = load(&t, &frames, false, pace);
    assert_eq!(sender.try_once().unwrap().0, XDP_REDIRECT);
    thread::sleep(Duration::from_millis(60));
    assert_eq!(sender.try_once().unwrap().0, XDP_DROP);
    let counts = sender.counts();
    assert_eq!((counts.sent, counts.done), (1, true));
    assert!(counts.given_up_ns.abs_diff(10_000) < 10 && counts.elapsed_ns >= 50_000_000, "{counts:?}");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let Some(()) = privileged() else { return };
    let headers = [0u8; 54];
    let packet = LivePacket { headers: &headers, frame_len: 60 };
    let long = LivePacket { headers: &headers, frame_len: 61 };
    let refused = |cycle: &[LivePacket<'_>], frame: usize, pace| {
        LiveSender::load("lo", vec![0; frame], cycle, Some(34), pace).unwrap_err().to_string()
    };
    assert_eq!(refused(&[], 60, UNPACED), "a cycle of no packets cannot be sent");
    assert!(refused(&[packet, long], 60, UNPACED).starts_with("packet 1 of the cycle"));
    assert!(refused(&[packet], 4000, UNPACED).contains("3072"));
    assert!(refused(&[packet], 60, LivePace { pps: Some(6e7), ..UNPACED }).contains("50000000"));
    let none = LiveSender::load("ek-none", vec![0; 60], &[packet], None, UNPACED).unwrap_err().to_string();
    assert!(none.contains("`ek-none`"), "{none}");
}
