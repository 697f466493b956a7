//! AF_XDP and the tap on real frames over veth.

mod world;

use std::{
    net::UdpSocket,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bpf::{TapStamp, XdpDrop, XdpMode, XdpPass};
use port::{Frame, PortError, Source, TapOptions, TapSource, XdpOptions, XdpSource, XdpWait};
use sys::{packet::Instruction, xsk::BusyPoll};
use testbed::{Wire, wait, wait_for};
use world::{RECEIVER, datagram, send, sink, wire};

const ADDRESS: &str = "198.18.0.2";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    wire_len: u32,
    data: Vec<u8>,
    timestamp_ns: u64,
    lost_before: u32,
}

fn read(source: &mut impl Source, wanted: usize) -> Vec<Kept> {
    world::read(source, wanted, |frame| {
        let Frame { timestamp_ns, wire_len, data, lost_before, .. } = frame;
        Kept { wire_len, data: data.to_vec(), timestamp_ns, lost_before }
    })
}

/// True if ip shows an XDP program on the receiving end.
fn shows_xdp(wire: &Wire) -> bool {
    wire.receiver.output(&format!("ip link show {RECEIVER}")).contains("prog/xdp")
}

fn delete_link(wire: &Wire) {
    wire.sender.output(&format!("ip link delete {}", wire.sender.interface()));
}

/// Frames of every length from the shortest to that of the MTU, in steps that are no multiple of anything.
fn all_lengths(longest: usize) -> Vec<Vec<u8>> {
    let lengths = (60..longest).step_by(7).chain([longest]);
    lengths.enumerate().map(|(n, len)| datagram(n as u32, len)).collect()
}

fn tap(wire: &Wire, options: &TapOptions, readers: usize) -> Vec<TapSource> {
    wire.receiver.run(|| TapSource::open(options, readers)).expect("a tap")
}

fn xdp(wire: &Wire, options: &XdpOptions, readers: usize) -> Vec<XdpSource> {
    wire.receiver.run(|| XdpSource::open(options, readers)).expect("AF_XDP sockets")
}

/// The frames of all sources together, in the order in which they were sent.
fn read_all(sources: &mut [impl Source], wanted: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = Vec::new();
    for source in sources {
        let left = wanted - all.len();
        all.extend(read(source, left).into_iter().map(|kept| kept.data));
    }
    all.sort_by_key(|frame| frame[42..46].to_vec());
    all
}

#[test]
fn every_frame_arrives_as_it_was_sent() {
    let Some(wire) = wire(1) else { return };
    let frames = all_lengths(1514);
    {
        let mut sources = tap(&wire, &TapOptions::new(RECEIVER), 8);
        assert_eq!(sources[0].mode(), XdpMode::Native);
        send(&mut sink(&wire, 0), &frames);
        assert_eq!(read_all(&mut sources, frames.len()), frames);
    }
    assert!(!shows_xdp(&wire), "the tap is still attached");
    let busy = XdpWait::Busy(BusyPoll { usecs: 20, budget: 64 });
    for wait in [XdpWait::Nap(Duration::from_micros(100)), XdpWait::Poll, busy] {
        let mut sources = xdp(&wire, &XdpOptions { wait, ..XdpOptions::new(RECEIVER) }, 1);
        assert_eq!(sources[0].mode(), XdpMode::Native);
        assert!(!sources[0].is_zero_copy(), "veth has no zero-copy mode");
        send(&mut sink(&wire, 0), &frames);
        assert_eq!(read_all(&mut sources, frames.len()), frames);
        let counts = sources[0].redirect_counts().expect("counts").expect("attached");
        assert_eq!((counts.redirected, counts.passed), (frames.len() as u64, 0));
    }
    assert!(!shows_xdp(&wire), "AF_XDP is still attached");
}

#[test]
fn a_tap_keeps_the_right_bytes_at_every_length_that_it_copies_by_words() {
    let Some(wire) = wire(1) else { return };
    let frames: Vec<_> = (60..=300).enumerate().map(|(n, len)| datagram(n as u32, len)).collect();
    let mut sources = tap(&wire, &TapOptions::new(RECEIVER), 1);
    send(&mut sink(&wire, 0), &frames);
    assert_eq!(read_all(&mut sources, frames.len()), frames);
    drop(sources);
    // Kept lengths shorter than a word, at its edges and at those of the longest copy by words.
    for snaplen in [47, 48, 49, 63, 64, 65, 95, 96, 97, 255, 256, 257] {
        let mut sources = tap(&wire, &TapOptions { snaplen, ..TapOptions::new(RECEIVER) }, 1);
        send(&mut sink(&wire, 0), &frames);
        let kept = |frame: &Vec<u8>| frame[..frame.len().min(snaplen as usize)].to_vec();
        assert_eq!(read_all(&mut sources, frames.len()), frames.iter().map(kept).collect::<Vec<_>>(), "{snaplen}");
    }
}

#[test]
fn generic_mode_is_only_taken_when_requested_and_reported() {
    let Some(wire) = wire(1) else { return };
    let frames = all_lengths(1514);
    let mode = XdpMode::Generic;
    {
        let mut sources = tap(&wire, &TapOptions { mode, ..TapOptions::new(RECEIVER) }, 1);
        assert_eq!(sources[0].mode(), XdpMode::Generic);
        send(&mut sink(&wire, 0), &frames);
        assert_eq!(read_all(&mut sources, frames.len()), frames);
    }
    let mut sources = xdp(&wire, &XdpOptions { mode, ..XdpOptions::new(RECEIVER) }, 1);
    assert_eq!(sources[0].mode(), XdpMode::Generic);
    send(&mut sink(&wire, 0), &frames);
    assert_eq!(read_all(&mut sources, frames.len()), frames);
    // The loopback has no native mode: that is said, and nothing else is tried.
    let error = wire.receiver.run(|| TapSource::open(&TapOptions::new("lo"), 1)).expect_err("no native mode");
    assert!(matches!(error, PortError::Unsupported { .. }) && error.to_string().contains("generic mode"), "{error}");
}

#[test]
fn the_largest_frames_of_the_largest_mtu_arrive() {
    let Some(wire) = wire(1) else { return };
    for end in [&wire.sender, &wire.receiver] {
        end.link_set("mtu 3400");
    }
    let frames = all_lengths(3414);
    {
        let mut sources = xdp(&wire, &XdpOptions::new(RECEIVER), 1);
        send(&mut sink(&wire, 0), &frames);
        assert_eq!(read_all(&mut sources, frames.len()), frames);
    }
    let mut sources = tap(&wire, &TapOptions::new(RECEIVER), 8);
    send(&mut sink(&wire, 0), &frames);
    assert_eq!(read_all(&mut sources, frames.len()), frames);
}

#[test]
fn an_mtu_beyond_af_xdp_is_refused_and_the_tap_can_do_it() {
    let Some(wire) = wire(1) else { return };
    wire.sender.link_set("mtu 9000");
    wire.receiver.link_set("mtu 9000");
    let error = wire.receiver.run(|| XdpSource::open(&XdpOptions::new(RECEIVER), 1)).expect_err("too large");
    assert!(error.to_string().contains("MTU of 9000"), "{error}");
    let text = vec![0x5a; 8900];
    wire.sender.address("198.18.0.1/24");
    let socket = wire.sender.run(|| UdpSocket::bind("198.18.0.1:0").expect("a socket"));
    let mut sources = tap(&wire, &TapOptions::new(RECEIVER), 1);
    socket.send_to(&text, (ADDRESS, 4444)).expect("send");
    let jumbo = read(&mut sources[0], 3).into_iter().find(|kept| kept.wire_len == 8900 + 42).expect("the jumbo frame");
    assert_eq!(&jumbo.data[42..], text);
}

#[test]
fn the_snap_length_cuts_frames_and_leaves_their_length() {
    let Some(wire) = wire(1) else { return };
    let frames = all_lengths(1514);
    let check = |kept: Vec<Kept>| {
        assert_eq!(kept.len(), frames.len());
        for (kept, frame) in kept.iter().zip(&frames) {
            assert_eq!((kept.wire_len as usize, &kept.data[..]), (frame.len(), &frame[..frame.len().min(97)]));
        }
    };
    {
        let mut sources = tap(&wire, &TapOptions { snaplen: 97, ..TapOptions::new(RECEIVER) }, 1);
        send(&mut sink(&wire, 0), &frames);
        check(read(&mut sources[0], frames.len()));
    }
    let mut sources = xdp(&wire, &XdpOptions { snaplen: 97, ..XdpOptions::new(RECEIVER) }, 1);
    send(&mut sink(&wire, 0), &frames);
    check(read(&mut sources[0], frames.len()));
}

#[test]
fn frames_carry_the_time_of_their_arrival() {
    let Some(wire) = wire(1) else { return };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    for stamp in [TapStamp::PerPoll, TapStamp::PerFrame] {
        let mut sources = tap(&wire, &TapOptions { stamp, ..TapOptions::new(RECEIVER) }, 1);
        let mut sink = sink(&wire, 0);
        // Each frame has a poll of its own: its time lies between before and after.
        for n in 0..200 {
            let before = now();
            send(&mut sink, &[datagram(n, 60)]);
            let kept = read(&mut sources[0], 1).remove(0);
            let after = now();
            assert!((before..=after).contains(&kept.timestamp_ns), "{before} {} {after}", kept.timestamp_ns);
        }
    }
}

#[test]
fn every_queue_is_captured_by_however_many_readers() {
    let Some(wire) = wire(2) else { return };
    let frames: Vec<_> = (0..64).map(|n| datagram(n, 100)).collect();
    let (first, second) = frames.split_at(32);
    for readers in [1, 2, 7] {
        let mut sources = xdp(&wire, &XdpOptions::new(RECEIVER), readers);
        let queues: Vec<u32> = sources.iter().flat_map(|s| s.queues().to_vec()).collect();
        assert_eq!((sources.len(), queues), (readers.min(2), vec![0, 1]));
        send(&mut sink(&wire, 0), first);
        send(&mut sink(&wire, 1), second);
        assert_eq!(read_all(&mut sources, 64), frames);
    }
    let mut sources = tap(&wire, &TapOptions::new(RECEIVER), 2);
    send(&mut sink(&wire, 0), first);
    send(&mut sink(&wire, 1), second);
    assert_eq!(read_all(&mut sources, 64), frames);
}

/// Datagrams that a socket of the stack gets within a moment.
fn heard(socket: &UdpSocket) -> usize {
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

#[test]
fn the_stack_hears_what_passes_and_not_what_is_consumed() {
    let Some(wire) = wire(1) else { return };
    let socket = wire.receiver.run(|| UdpSocket::bind((ADDRESS, 4444))).expect("a socket");
    let frames: Vec<_> = (0..50).map(|n| datagram(n, 100)).collect();
    for (consume, expected) in [(false, 50), (true, 0)] {
        let mut sources = tap(&wire, &TapOptions { consume, ..TapOptions::new(RECEIVER) }, 1);
        send(&mut sink(&wire, 0), &frames);
        assert_eq!(read(&mut sources[0], 50).len(), 50);
        assert_eq!(heard(&socket), expected, "consume: {consume}");
    }
    let mut sources = xdp(&wire, &XdpOptions::new(RECEIVER), 1);
    send(&mut sink(&wire, 0), &frames);
    assert_eq!((read(&mut sources[0], 50).len(), heard(&socket)), (50, 0));
}

/// `len > 500`, as libpcap writes it.
fn longer_than_500() -> Vec<Instruction> {
    vec![
        Instruction { code: 0x80, jt: 0, jf: 0, k: 0 },
        Instruction { code: 0x25, jt: 0, jf: 1, k: 500 },
        Instruction { code: 0x06, jt: 0, jf: 0, k: 65535 },
        Instruction { code: 0x06, jt: 0, jf: 0, k: 0 },
    ]
}

#[test]
fn what_the_filter_rejects_goes_to_the_stack() {
    let Some(wire) = wire(1) else { return };
    let socket = wire.receiver.run(|| UdpSocket::bind((ADDRESS, 4444))).expect("a socket");
    let frames: Vec<_> = (0..40).map(|n| datagram(n, if n % 4 == 0 { 900 } else { 100 })).collect();
    let wanted: Vec<_> = frames.iter().filter(|f| f.len() > 500).cloned().collect();
    {
        let options = TapOptions { filter: longer_than_500(), consume: true, ..TapOptions::new(RECEIVER) };
        let mut sources = tap(&wire, &options, 1);
        send(&mut sink(&wire, 0), &frames);
        assert_eq!(read_all(&mut sources, wanted.len()), wanted);
        assert_eq!(heard(&socket), 30);
    }
    let mut sources = xdp(&wire, &XdpOptions { filter: longer_than_500(), ..XdpOptions::new(RECEIVER) }, 1);
    send(&mut sink(&wire, 0), &frames);
    assert_eq!(read_all(&mut sources, wanted.len()), wanted);
    assert_eq!(heard(&socket), 30);
}

#[test]
fn another_program_is_named_and_left_alone() {
    let Some(wire) = wire(1) else { return };
    let _drop = wire.receiver.run(|| XdpDrop::attach(RECEIVER, XdpMode::Native)).expect("a program");
    let errors = [
        wire.receiver.run(|| TapSource::open(&TapOptions::new(RECEIVER), 1)).expect_err("occupied"),
        wire.receiver.run(|| XdpSource::open(&XdpOptions::new(RECEIVER), 1)).expect_err("occupied"),
    ];
    for error in errors {
        assert!(matches!(error, PortError::Unsupported { .. }), "{error:?}");
        assert!(error.to_string().contains("`xdp_drop`"), "{error}");
    }
    assert!(shows_xdp(&wire), "the other program was displaced");
}

#[test]
fn a_queue_with_another_socket_is_refused() {
    let Some(wire) = wire(2) else { return };
    let options = XdpOptions::new(RECEIVER);
    let _pass = wire.receiver.run(|| XdpPass::attach(RECEIVER, XdpMode::Native)).expect("a program");
    let _sink = wire.receiver.run(|| {
        port::XdpSink::open(&port::XdpSinkOptions {
            interface: RECEIVER.to_owned(),
            queue: 1,
            frames: 64,
            frame_bytes: 2048,
            copy: sys::xsk::CopyMode::Copy,
        })
    });
    let error = wire.receiver.run(|| XdpSource::open(&options, 1)).expect_err("taken");
    assert!(error.to_string().contains("queue 1 already has an AF_XDP socket"), "{error}");
}

#[test]
fn offered_is_delivered_and_dropped() {
    let Some(wire) = wire(1) else { return };
    let frames: Vec<_> = (0..6000).map(|n| datagram(n, 1514)).collect();
    let before = wire.receiver.received();
    {
        let mut sources = tap(&wire, &TapOptions { ring_bytes: 2 << 20, ..TapOptions::new(RECEIVER) }, 1);
        send(&mut sink(&wire, 0), &frames[..5000]);
        let mut kept = read(&mut sources[0], 5000);
        assert!(kept.len() < 5000, "2 MiB hold 5000 frames of 1514 bytes?");
        // Wherever the next frame arrives, it carries what was lost before it.
        send(&mut sink(&wire, 0), &frames[5000..5001]);
        let next = read(&mut sources[0], 1).remove(0);
        assert_eq!((next.lost_before as usize, &next.data), (5000 - kept.len(), &frames[5000]));
        kept.push(next);
        send(&mut sink(&wire, 0), &frames[5001..]);
        kept.extend(read(&mut sources[0], 999));
        let stats = sources[0].stats().expect("statistics");
        assert_eq!(stats.delivered, kept.len() as u64);
        assert_eq!(stats.delivered + stats.dropped, wire.receiver.received() - before);
    }
    let before = wire.receiver.received();
    let mut sources = xdp(&wire, &XdpOptions { frames: 64, ..XdpOptions::new(RECEIVER) }, 1);
    send(&mut sink(&wire, 0), &frames);
    let kept = read(&mut sources[0], frames.len());
    let stats = sources[0].stats().expect("statistics");
    assert!(stats.dropped > 0 && kept.len() as u64 == stats.delivered, "{stats:?}");
    assert_eq!(stats.delivered + stats.dropped, wire.receiver.received() - before);
    let counts = sources[0].redirect_counts().expect("counts").expect("attached");
    assert_eq!(counts.redirected, stats.delivered + stats.dropped);
}

#[test]
fn counting_counts_what_reading_reads() {
    let Some(wire) = wire(1) else { return };
    let frames: Vec<_> = (0..500).map(|n| datagram(n, 60)).collect();
    fn counted(mut source: impl Source) -> u64 {
        let mut sum = 0;
        wait("all of them", || {
            sum += source.count(Duration::from_millis(20)).expect("count").packets;
            sum >= 500
        });
        sum
    }
    let source = tap(&wire, &TapOptions::new(RECEIVER), 1).remove(0);
    send(&mut sink(&wire, 0), &frames);
    assert_eq!(counted(source), 500);
    let source = xdp(&wire, &XdpOptions::new(RECEIVER), 1).remove(0);
    send(&mut sink(&wire, 0), &frames);
    assert_eq!(counted(source), 500);
}

#[test]
fn an_interface_that_vanishes_is_an_error() {
    // It is down for a moment before it is gone.
    fn until_gone(source: &mut impl Source) -> PortError {
        wait_for("its end", || {
            source.receive(Duration::from_millis(50), |_| {}).err().filter(|e| !matches!(e, PortError::Down { .. }))
        })
    }
    let Some(wire) = wire(1) else { return };
    let mut source = tap(&wire, &TapOptions::new(RECEIVER), 1).remove(0);
    wire.receiver.link_set("down");
    let error = wait_for("an error", || source.receive(Duration::from_millis(50), |_| {}).err());
    assert!(matches!(error, PortError::Down { .. }), "{error}");
    wire.receiver.link_set("up");
    wait_for("it is up", || {
        source.receive(Duration::from_millis(50), |_| {}).is_ok_and(|_| !source.is_down()).then_some(())
    });
    delete_link(&wire);
    assert!(matches!(until_gone(&mut source), PortError::Vanished { .. }));
    for wait in [XdpWait::Nap(Duration::from_micros(100)), XdpWait::Poll] {
        for queues in [1, 2] {
            let Some(wire) = world::wire(queues) else { return };
            let mut source = xdp(&wire, &XdpOptions { wait, ..XdpOptions::new(RECEIVER) }, 1).remove(0);
            delete_link(&wire);
            assert!(matches!(until_gone(&mut source), PortError::Vanished { .. }));
        }
    }
}

#[test]
fn nothing_arrives_after_the_intake_is_closed() {
    let Some(wire) = wire(1) else { return };
    let frames = [datagram(1, 60), datagram(2, 60)];
    // Keeps NAPI running on the receiving end once the captures are off.
    let mut sources = tap(&wire, &TapOptions::new(RECEIVER), 1);
    send(&mut sink(&wire, 0), &frames[..1]);
    sources[0].close_intake().expect("close");
    assert!(!shows_xdp(&wire));
    send(&mut sink(&wire, 0), &frames[1..]);
    assert_eq!(read(&mut sources[0], 2).len(), 1);
    let mut sources = xdp(&wire, &XdpOptions::new(RECEIVER), 1);
    send(&mut sink(&wire, 0), &frames[..1]);
    sources[0].close_intake().expect("close");
    send(&mut sink(&wire, 0), &frames[1..]);
    assert_eq!(read(&mut sources[0], 2).len(), 1);
}
