//! Messages between nodes on a veth pair: delivered, answered, beside the other programs of a chain, and without a lost wake-up.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use bpf::{
    LinkAnswers, LinkPort, LinkRing, LinkSettings, RoutePort, RouteSlots, RouteTables, Tap, TapPlace, TapSettings,
    TapStamp, XdpDrop, XdpMode, XdpPass,
    filter::{Shield, ShieldConfig, ShieldLink, ShieldShared},
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rules::tables::RuleAction;
use sys::{
    packet::{Batch, PacketSocket},
    packet_batch::PacketBatch,
};
use testbed::{
    Bed, End, WAIT_TIMEOUT,
    filter::Tables,
    messages::{ETHERTYPE, PORT, Read, data, frame, message, payload, read},
    wait, wait_for,
};

/// The longest frame of these tests.
const FRAME_BYTES_MAX: usize = 9100;

fn sender(end: &End) -> PacketBatch {
    end.run(|| PacketBatch::open(end.link.index, FRAME_BYTES_MAX, 8 << 20).unwrap())
}

fn give(sender: &mut PacketBatch, frame: &[u8]) {
    assert!(sender.push(frame));
    assert_eq!(sender.flush().unwrap(), 0);
}

fn port(end: &End, mode: XdpMode) -> LinkPort {
    end.run(|| LinkPort::attach(end.interface(), mode, LinkSettings::default()).unwrap())
}

fn hears(end: &End) -> PacketSocket {
    end.run(|| PacketSocket::open_for(ETHERTYPE).unwrap())
}

/// The next frame that a socket hears.
fn heard(socket: &PacketSocket) -> Vec<u8> {
    let mut batch = Batch::new(1, FRAME_BYTES_MAX);
    wait_for("a frame is heard", || match batch.receive(socket).unwrap() {
        0 => None,
        n => batch.packets(n).next().map(|packet| packet.data.to_vec()),
    })
}

fn delivered(ring: &mut LinkRing, frames: usize) -> Vec<Read> {
    let mut all = Vec::new();
    wait("all are delivered", || {
        all.extend(read(ring));
        all.len() >= frames
    });
    all
}

#[test]
fn frames_come_over_a_wire_in_both_modes() {
    for (tag, mode, mtu) in
        [("lwn", XdpMode::Native, 9032), ("lwg", XdpMode::Generic, 9032), ("lws", XdpMode::Native, 1500)]
    {
        let Some((_bed, [a, b])) = Bed::pair(tag) else { return };
        a.link_set(&format!("mtu {mtu}"));
        b.link_set(&format!("mtu {mtu}"));
        let mut port = port(&b, mode);
        assert_eq!(port.mode(), mode);
        let mut ring = port.endpoint(PORT..=PORT, 1 << 20).unwrap();
        let mut sender = sender(&a);
        let lengths: Vec<usize> = [0, 1, 13, 64, 500, 1400, 1468, 2000, 3500, 4100, 8999, 9000]
            .into_iter()
            .filter(|len| len + 32 <= mtu)
            .collect();
        for &len in &lengths {
            let mut sent = frame(b.link.mac.0, &[], &data(&payload(len)));
            sent[6..12].copy_from_slice(&a.link.mac.0);
            give(&mut sender, &sent);
        }
        let expected: Vec<Read> = lengths.iter().map(|&len| (a.link.mac.0, None, data(&payload(len)))).collect();
        assert_eq!(delivered(&mut ring, lengths.len()), expected, "{mode} {mtu}");
        // What nobody has goes up to a socket.
        let socket = hears(&b);
        let nobodys = frame(b.link.mac.0, &[], &message(1, 3, PORT + 1, 0, &payload(8)));
        give(&mut sender, &nobodys);
        assert_eq!(heard(&socket), nobodys);
        let counts = port.counts().unwrap();
        assert_eq!((counts.delivered, counts.no_endpoint), (lengths.len() as u64, 1), "{counts:?}");
        port.remove(PORT..=PORT);
        let late = frame(b.link.mac.0, &[], &data(&payload(3)));
        give(&mut sender, &late);
        assert_eq!(heard(&socket), late);
    }
}

#[test]
fn a_probe_of_the_node_comes_back() {
    for (tag, mode, answers) in
        [("lpn", XdpMode::Native, LinkAnswers::IfPeerRunsXdp), ("lpg", XdpMode::Generic, LinkAnswers::Sent)]
    {
        let Some((_bed, [a, b])) = Bed::pair(tag) else { return };
        let _program = a.run(|| XdpPass::attach(a.interface(), XdpMode::Native).unwrap());
        let port = port(&b, mode);
        assert_eq!(port.answers(), answers);
        let (socket, mut sender) = (hears(&a), sender(&a));
        let mut probe = frame(b.link.mac.0, &[], &message(1, 1, 0, 0, &payload(64)));
        probe[6..12].copy_from_slice(&a.link.mac.0);
        give(&mut sender, &probe);
        // The first one that is heard may be the probe itself, on its way out.
        let answer = wait_for("an answer", || Some(heard(&socket)).filter(|frame| frame[14] == 0x12));
        assert_eq!((&answer[..6], &answer[6..12], &answer[46..]), (&a.link.mac.0[..], &b.link.mac.0[..], &probe[46..]));
        assert_eq!(wire::Sum::new().bytes(&answer[14..]).finish(), 0);
        assert_eq!(port.counts().unwrap().answered, 1);
    }
}

/// The sender waits until each frame is read, and sends the next one while the reader is about to sleep: whichever of both is first, the reader
/// wakes up.
#[test]
fn no_wake_up_is_lost() {
    const FRAME_COUNT: u64 = 30_000;
    let Some((_bed, [a, b])) = Bed::pair("lwk") else { return };
    let mut port = port(&b, XdpMode::Native);
    let mut ring = port.endpoint(PORT..=PORT, 1 << 16).unwrap();
    let (mut sender, seen) = (sender(&a), AtomicU64::new(0));
    let to = b.link.mac.0;
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    epoll.add(&ring, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0)).unwrap();
    let patience = EpollTimeout::try_from(WAIT_TIMEOUT).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FRAME_COUNT {
                while seen.load(Ordering::Acquire) < number {
                    thread::yield_now();
                }
                give(&mut sender, &frame(to, &[], &data(&number.to_be_bytes())));
            }
        });
        while seen.load(Ordering::Relaxed) < FRAME_COUNT {
            // About as long as a frame takes, so that either is first.
            for _ in 0..seen.load(Ordering::Relaxed) * 7 % 509 {
                std::hint::spin_loop();
            }
            // By its edge it tells of wake-ups alone; poll(2) looks at the ring itself, before and after.
            let woke = !ring.sleep() || epoll.wait(&mut [EpollEvent::empty()], patience).unwrap() > 0;
            ring.awake();
            let count = ring.consume(|_, _, _| {}) as u64;
            if !woke {
                // Ends the sender, too.
                seen.store(u64::MAX, Ordering::Release);
                assert!(count == 0, "frames came, and the reader slept on");
                panic!("nothing came");
            }
            seen.fetch_add(count, Ordering::Release);
        }
    });
    assert_eq!(port.counts().unwrap().delivered, FRAME_COUNT);
    // Nobody sleeps: nobody is woken, and what came is there.
    give(&mut sender, &frame(to, &[], &data(&[])));
    assert_eq!(delivered(&mut ring, 1).len(), 1);
}

/// A reader that slept while its ring filled up is awake, and takes what is there.
#[test]
fn a_ring_that_fills_while_its_reader_wakes_goes_on() {
    let Some((_bed, [a, b])) = Bed::pair("lwf") else { return };
    let mut port = port(&b, XdpMode::Native);
    let mut ring = port.endpoint(PORT..=PORT, 4096).unwrap();
    let mut sender = sender(&a);
    for turn in 1..=50u64 {
        assert!(ring.sleep(), "nothing is there");
        for _ in 0..40 {
            assert!(sender.push(&frame(b.link.mac.0, &[], &data(&payload(64)))));
        }
        sender.flush().unwrap();
        wait("all are counted", || {
            let counts = port.counts().unwrap();
            counts.delivered + counts.full == 40 * turn
        });
        assert!(!ring.sleep(), "frames are there");
        assert!(ring.wait(Some(Duration::ZERO)).unwrap());
        assert_eq!(read(&mut ring).len(), 31);
    }
}

#[test]
fn all_programs_of_a_chain_go_together() {
    let Some((_bed, [a, b])) = Bed::pair("lwc") else { return };
    b.run(|| {
        let settings = TapSettings {
            place: TapPlace::Before,
            snaplen: 64,
            ring_bytes: 2 << 20,
            consume: false,
            stamp: TapStamp::PerFrame,
            numa_node: None,
        };
        let mut tap = Tap::load(b.interface(), XdpMode::Native, settings, None).unwrap();
        tap.attach().unwrap();
        let mut readers = tap.take_readers();
        let (mut shield, shared) =
            (ShieldLink::take(b.interface(), XdpMode::Native).unwrap(), ShieldShared::create().unwrap());
        let mut tables = Tables::new(1);
        tables.rule(0, RuleAction::Pass);
        let config = ShieldConfig { slots: vec![shield.maps()], ..ShieldConfig::default() };
        shield.put(&Shield::load(&tables.build(), &config, &shared).unwrap()).unwrap();
        let routes = RouteTables::create(RouteSlots::all(64)).unwrap();
        let mut route = RoutePort::load(&routes, 0, b.interface(), b.link.mac.0, XdpMode::Native, true).unwrap();
        route.put().unwrap();
        let mut port = LinkPort::attach(b.interface(), XdpMode::Native, LinkSettings::default()).unwrap();
        let mut ring = port.endpoint(PORT..=PORT, 1 << 16).unwrap();
        let end = XdpDrop::attach(b.interface(), XdpMode::Native).unwrap();
        let ended = || end.counts().unwrap().frames;
        let before = ended();

        let mut sender = sender(&a);
        let ours = frame(b.link.mac.0, &[], &data(&payload(64)));
        let mut foreign = ours.clone();
        foreign[12..14].copy_from_slice(&0x88B6u16.to_be_bytes());
        let nobodys = frame(b.link.mac.0, &[], &message(1, 0, PORT + 1, 0, &[]));
        for frame in [&ours, &foreign, &nobodys].into_iter().cycle().take(30) {
            give(&mut sender, frame);
        }
        assert_eq!(delivered(&mut ring, 10).len(), 10);
        wait("what is not delivered goes on", || ended() >= before + 20);
        let mut tapped = 0;
        wait("the capture sees all", || {
            for reader in &mut readers {
                reader.read(usize::MAX, |frame| tapped += u64::from(frame.data[12..14] == ETHERTYPE.to_be_bytes()));
            }
            tapped == 20
        });
        // Its place is free when it goes, and the others stay.
        drop(port);
        give(&mut sender, &ours);
        wait("it goes past the empty place", || ended() >= before + 21);
        assert!(read(&mut ring).is_empty());
        let again = LinkPort::attach(b.interface(), XdpMode::Native, LinkSettings::default()).unwrap();
        assert!(again.slot().is_alive());
    });
}
