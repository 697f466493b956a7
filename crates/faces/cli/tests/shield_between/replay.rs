//! A mix of everything that crosses an Ethernet goes through `evenkeel shield run --between A,B` in both directions while tcpdump listens
//! at both ends: what the rules pass arrives once and unchanged, byte for byte.
//!
//! `EVENKEEL_REPLAY_SECONDS=60 cargo test -p evenkeel --test shield_between replay -- --nocapture` has it go on for longer.

use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use sys::packet_tx::{TxLayout, TxRing};
use testbed::{DROP_9, End, Ip, Tcpdump, read_pcap};

use crate::bed;

/// What the rules drop ends so.
const DROPPED: &[u8] = b"to be dropped";
const MTU: usize = 1500;
/// Between two rounds of the mix in each direction.
const ROUND_PERIOD: Duration = Duration::from_millis(5);

/// The count of each frame of a capture file.
fn read(path: &Path) -> BTreeMap<Vec<u8>, usize> {
    let mut frames = BTreeMap::new();
    for (length, frame) in read_pcap(path) {
        assert_eq!(length as usize, frame.len(), "whole frames");
        *frames.entry(frame).or_default() += 1;
    }
    frames
}

fn ethernet(tags: &[(u16, u16)], ethertype: u16, payload: &[u8], to: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, [2, 0, 0, 0, 0, 0x77]].concat();
    for (tpid, tci) in tags {
        frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0xaa);
    frame
}

/// IPv4 with `options` words of no-operation options; `part` is the field of flags and fragment offset.
fn v4(protocol: u8, options: u8, part: u16, payload: &[u8]) -> Vec<u8> {
    let ip = Ip { id: 0x1234, fragment: part, ..Ip::new([192, 0, 2, 1], [192, 0, 2, 2], protocol) };
    ip.packet(&vec![1; 4 * usize::from(options)], payload)
}

/// IPv6; `next` is what follows its header.
fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let [from, to] = [1, 2].map(|host| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    Ip::new(from, to, next).packet(&[], payload)
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = [40_000u16, port, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    datagram.extend(payload);
    datagram
}

/// With `flags` and, by a word of no-operation options each, a longer header.
fn tcp(flags: u8, options: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = [40_000u16, 443].map(u16::to_be_bytes).concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 2, (5 + options) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(vec![1; 4 * usize::from(options)]);
    segment.extend(payload);
    segment
}

/// One of everything, told apart from other rounds by its number.
fn mix(round: u32, to: [u8; 6]) -> Vec<Vec<u8>> {
    const IP4: u16 = 0x0800;
    const IP6: u16 = 0x86dd;
    let n = round.to_be_bytes();
    let full = |len: usize| [&n[..], &vec![0x5a; len - 4]].concat();
    let dropped = [&n[..], DROPPED].concat();
    let many = [0xff; 6];
    let plain = |ethertype, payload: &[u8]| ethernet(&[], ethertype, payload, to);
    let tagged = |tags: &[(u16, u16)], payload: &[u8]| ethernet(tags, IP4, payload, to);
    let (q, ad) = (0x8100, 0x88a8);
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0x77, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0][..], &[192, 0, 2, 9], &n]
        .concat();
    let hop_by_hop = |next: u8, payload: &[u8]| [&[next, 0, 1, 4, 0, 0, 0, 0][..], payload].concat();
    let fragment6 = |offset: u16, payload: &[u8]| [&[17, 0][..], &offset.to_be_bytes(), &n, payload].concat();
    vec![
        plain(IP4, &v4(6, 0, 0x4000, &tcp(2, 5, &n))),
        plain(IP4, &v4(6, 0, 0x4000, &tcp(0x18, 3, &full(700)))),
        plain(IP4, &v4(6, 0, 0x4000, &tcp(0x10, 0, &full(MTU - 40)))),
        plain(IP4, &v4(17, 0, 0, &udp(53, &n))),
        plain(IP4, &v4(17, 4, 0, &udp(53, &n))),
        plain(IP4, &v4(1, 0, 0, &[&[8, 0, 0, 0, 0, 1, 0, 1][..], &n].concat())),
        plain(IP4, &v4(47, 0, 0, &full(64))),
        plain(IP4, &v4(17, 0, 0x2000, &udp(53, &full(1000)))),
        plain(IP4, &v4(17, 0, 126, &full(500))),
        plain(IP4, &v4(17, 0, 0, &udp(9, &dropped))),
        ethernet(&[], 0x0806, &arp, many),
        ethernet(&[], 0x88cc, &[&[2, 7, 4, 2, 0, 0, 0, 0, 0x77][..], &n].concat(), [1, 0x80, 0xc2, 0, 0, 0x0e]),
        ethernet(&[], IP4, &v4(17, 0, 0, &udp(5353, &n)), [1, 0, 0x5e, 0, 0, 0xfb]),
        tagged(&[(q, 5)], &v4(17, 0, 0, &udp(53, &n))),
        tagged(&[(q, 0xe000)], &v4(6, 0, 0, &tcp(0x10, 0, &n))),
        tagged(&[(q, 4095)], &v4(6, 0, 0, &tcp(0x10, 0, &full(MTU - 40)))),
        tagged(&[(q, 5)], &v4(17, 0, 0, &udp(9, &dropped))),
        tagged(&[(ad, 7), (q, 5)], &v4(6, 0, 0, &tcp(0x10, 0, &full(1000)))),
        tagged(&[(ad, 7), (q, 5)], &v4(17, 0, 0, &udp(9, &dropped))),
        tagged(&[(q, 7), (q, 5)], &v4(17, 0, 0, &udp(53, &n))),
        // More than two tags: malformed.
        tagged(&[(ad, 7), (q, 6), (q, 5)], &v4(17, 0, 0, &udp(9, &dropped))),
        plain(IP6, &v6(17, &udp(53, &n))),
        plain(IP6, &v6(6, &tcp(0x18, 3, &full(MTU - 72)))),
        plain(IP6, &v6(58, &[&[128, 0, 0, 0, 0, 1, 0, 1][..], &n].concat())),
        plain(IP6, &v6(0, &hop_by_hop(60, &hop_by_hop(6, &tcp(2, 5, &n))))),
        plain(IP6, &v6(0, &hop_by_hop(17, &udp(9, &dropped)))),
        plain(IP6, &v6(44, &fragment6(1, &udp(53, &full(800))))),
        plain(IP6, &v6(44, &fragment6(102 << 3, &full(300)))),
        ethernet(&[(q, 5)], IP6, &v6(17, &udp(53, &n)), to),
        plain(0x88b5, &full(MTU)),
        // Claims to be longer than it is.
        plain(IP4, &[&[0x45, 0, 5, 0][..], &v4(17, 0, 0, &udp(53, &dropped))[4..]].concat()),
    ]
}

/// Whether the rules drop it: padding may follow the mark.
fn is_dropped(frame: &[u8]) -> bool {
    frame.windows(DROPPED.len()).any(|bytes| bytes == DROPPED)
}

/// Sends rounds of the mix; how many frames that makes.
fn send(end: &End, to: [u8; 6], time: Duration) -> usize {
    let layout = TxLayout { slots: 64, frame_max: MTU + 18, qdisc_bypass: false };
    let mut ring = end.run(|| TxRing::open(end.link.index, layout).expect("a ring"));
    let (begun, mut round, mut sent) = (Instant::now(), 0, 0);
    while begun.elapsed() < time {
        for frame in mix(round, to) {
            assert!(ring.push(&frame).expect("a frame that fits"), "there is room");
            sent += 1;
        }
        ring.flush(true).expect("sent");
        round += 1;
        thread::sleep(ROUND_PERIOD);
    }
    sent
}

/// What came is what was sent, without what the rules drop.
fn compare(what: &str, sent: &BTreeMap<Vec<u8>, usize>, came: &BTreeMap<Vec<u8>, usize>) {
    let expected: BTreeMap<_, _> = sent.iter().filter(|(frame, _)| !is_dropped(frame)).collect();
    let lost: Vec<_> = expected.iter().filter(|(frame, count)| came.get(**frame) != Some(count)).collect();
    let odd: Vec<_> = came.keys().filter(|frame| !expected.contains_key(frame)).collect();
    let hex = |frame: Option<&Vec<u8>>| frame.map(|f| f.iter().map(|b| format!("{b:02x}")).collect::<String>());
    assert!(
        lost.is_empty() && odd.is_empty(),
        "{what}: {} of {} frames lost, such as {:?}; {} came that nobody sent, such as {:?}",
        lost.len(),
        expected.len(),
        hex(lost.first().map(|(frame, _)| **frame)),
        odd.len(),
        hex(odd.first().copied()),
    );
}

fn replay(tag: &str, more: &[&str]) {
    let Some(mut bed) = bed(tag) else { return };
    let seconds = std::env::var("EVENKEEL_REPLAY_SECONDS").map_or(2.0, |text| text.parse().expect("seconds"));
    let time = Duration::from_secs_f64(seconds);
    bed.protect(DROP_9, more);
    let taps = [&bed.client, &bed.server].map(|end| {
        ["out", "in"].map(|direction| {
            let file = bed.path(&format!("{}-{direction}.pcap", end.interface()));
            Tcpdump::start(end, end.interface(), &file, &["-Q", direction])
        })
    });
    let sent = thread::scope(|scope| {
        let there = scope.spawn(|| send(&bed.client, bed.server.link.mac.0, time));
        let back = scope.spawn(|| send(&bed.server, [2, 0, 0, 0, 0, 0x55], time));
        [there.join().expect("sent"), back.join().expect("sent")]
    });
    // What waits in rings.
    thread::sleep(Duration::from_millis(1500));
    let [[client_out, client_in], [server_out, server_in]] = taps.map(|taps| taps.map(|tap| read(&tap.stop())));
    let counted = |frames: &BTreeMap<_, usize>| frames.values().sum::<usize>();
    assert!(
        counted(&client_out) >= sent[0] && counted(&server_out) >= sent[1],
        "tcpdump has seen what was sent: {sent:?}"
    );
    eprintln!("{} frames there and {} back in {seconds} s, {more:?}", counted(&client_out), counted(&server_out));
    assert!(client_out.keys().any(|frame| is_dropped(frame)));
    eprintln!("{}", bed.log());
    compare("there", &client_out, &server_in);
    compare("back", &server_out, &client_in);
    bed.stop();
}

#[test]
fn a_mix_crosses_by_xdp_without_loss() {
    replay("ekbra", &[]);
}

#[test]
fn a_mix_crosses_by_generic_xdp_without_loss() {
    replay("ekbrb", &["--xdp-mode", "generic"]);
}

#[test]
fn a_mix_crosses_by_packet_rings_without_loss() {
    replay("ekbrc", &["--backend", "ring"]);
    replay("ekbrd", &["--backend", "ring", "--threads", "2"]);
}
