//! The same file replayed to every backend and to tcpdump.

mod common;

use std::{path::Path, time::Duration};

use capture::{
    open::Tuning,
    plan::{Backend, FANOUT_NAMES},
    run::{Limits, Sink, run},
};
use common::{Packet, capture, limits, mixture, read_pcapng, sources};
use sys::packet::FanoutAlgorithm;
use testbed::{Tcpdump, Wire, read_pcap, wait, write_pcap};

/// A tcpdump that writes everything it sees.
fn tcpdump(wire: &Wire, file: &Path) -> Tcpdump {
    Tcpdump::start_with(&wire.receiver, file, &["-i", wire.receiver.interface(), "-B", "65536", "-U"])
}

/// Its packets, once its file holds as much as `sent`: what it has not written when it is stopped, it throws away.
fn packets(tcpdump: Tcpdump, file: &Path, sent: &[Packet]) -> Vec<Packet> {
    // The sizes of the headers of file and packet, pcap-savefile(5).
    let expected = 24 + sent.iter().map(|(_, bytes)| 16 + bytes.len() as u64).sum::<u64>();
    wait("all packets in tcpdump's file", || file.metadata().is_ok_and(|file| file.len() >= expected));
    read_pcap(&tcpdump.stop())
}

fn sorted(mut packets: Vec<Packet>) -> Vec<Packet> {
    packets.sort();
    packets
}

#[test]
fn every_backend_captures_what_tcpdump_captures() {
    let Some(wire) = Wire::new("replay") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    let sent = mixture(100_000);
    write_pcap(&file, &sent);
    let sent: Vec<Packet> = sorted(sent.into_iter().map(|p| (p.len() as u32, p)).collect());
    for backend in Backend::ALL {
        let ours = dir.path().join(format!("{backend}.pcapng"));
        // AF_XDP takes the packets before tcpdump's socket can see them.
        let theirs = dir.path().join(format!("{backend}.tcpdump.pcap"));
        let tcpdump = (backend != Backend::Xdp).then(|| tcpdump(&wire, &theirs));
        let tuning = Tuning::default();
        let members = if backend.is_fanout() { 3 } else { 1 };
        let make = || sources(wire.receiver.interface(), backend, members, &tuning, "");
        let (report, _) = capture(&wire, make, &ours, limits(), |_| {
            wire.sender.replay(&file, 40_000);
            // What is on its way reaches a ring in less than its retire time-out; the rest the end of the capture collects.
            std::thread::sleep(Duration::from_millis(300));
        });
        assert!(report.failure.is_none(), "{backend}: {:?}", report.failure);
        assert_eq!((report.packets(), report.dropped()), (sent.len() as u64, 0), "{backend}");
        let ours = read_pcapng(&ours);
        if let Some(tcpdump) = tcpdump {
            let theirs = sorted(packets(tcpdump, &theirs, &sent));
            assert!(theirs == sent, "{backend}: tcpdump has {} packets, and not those that were sent", theirs.len());
        }
        assert!(sorted(ours) == sent, "{backend}: the file has something else than was sent");
    }
}

/// Two readers of the same traffic, one of which gets its packets only every 0.3 to 0.6 s.
#[test]
fn a_ring_whose_last_block_still_fills_is_as_fast_as_a_socket() {
    let Some(wire) = Wire::new("rate") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    write_pcap(&file, mixture(45_000));
    let tuning = Tuning { retire_ms: 300, block_bytes: 16 << 20, blocks: Some(2), ..Tuning::default() };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let rate = |backend| {
        let limits =
            Limits { duration: Some(Duration::from_millis(950)), held_back: Duration::from_secs(1), ..limits() };
        let sources = wire.receiver.run(|| sources(wire.receiver.interface(), backend, 1, &tuning, ""));
        run(sources, Sink::Count, limits, &stop, |_| ())
    };
    let (socket, ring) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| wire.sender.replay(&file, 20_000));
        std::thread::sleep(Duration::from_millis(500));
        let socket = scope.spawn(|| rate(Backend::Packet));
        let ring = rate(Backend::Ring);
        let socket = socket.join().unwrap();
        sender.join().unwrap();
        (socket, ring)
    });
    assert!(ring.readers[0].in_time < ring.packets(), "a block was still filling: {ring:?}");
    let ratio = ring.packets_per_second() / socket.packets_per_second();
    assert!((0.85..1.15).contains(&ratio), "{ratio}: {ring:?} {socket:?}");
}

#[test]
fn every_fanout_algorithm_delivers_every_packet_once() {
    let Some(wire) = Wire::new("fanout") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    let sent = mixture(10_000);
    write_pcap(&file, &sent);
    let sent: Vec<Packet> = sorted(sent.into_iter().map(|p| (p.len() as u32, p)).collect());
    for backend in [Backend::PacketFanout, Backend::RingFanout] {
        for (name, algorithm) in FANOUT_NAMES {
            let ours = dir.path().join(format!("{backend}-{name}.pcapng"));
            let mut tuning = Tuning::default();
            tuning.fanout.algorithm = algorithm;
            tuning.fanout.defrag = algorithm == FanoutAlgorithm::Hash;
            let make = || sources(wire.receiver.interface(), backend, 4, &tuning, "");
            let (report, _) = capture(&wire, make, &ours, limits(), |_| wire.sender.replay(&file, 40_000));
            assert!(report.failure.is_none(), "{backend} {name}: {:?}", report.failure);
            assert!(sorted(read_pcapng(&ours)) == sent, "{backend} {name}: {} packets", report.packets());
            let busy = report.readers.iter().filter(|r| r.packets > 0).count();
            let spread = matches!(name, "hash" | "lb" | "rnd" | "cbpf" | "ebpf");
            assert!(!spread || busy == 4, "{backend} {name}: {:?}", report.readers);
        }
    }
}

#[test]
fn a_filter_sees_tags_as_tcpdump_does() {
    let Some(wire) = Wire::new("filter") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    let sent = mixture(2_000);
    write_pcap(&file, &sent);
    for filter in ["vlan 100 and udp", "tcp port 80 and not vlan", "ip6", "len > 1000"] {
        let output = std::process::Command::new("tcpdump").arg("-nr").arg(&file).arg(filter).output().expect("tcpdump");
        let expected = String::from_utf8(output.stdout).unwrap().lines().count() as u64;
        assert!(expected > 0, "{filter}");
        for backend in [Backend::Packet, Backend::Ring, Backend::Xdp, Backend::Tap] {
            let ours = dir.path().join("ours.pcapng");
            let make = || sources(wire.receiver.interface(), backend, 1, &Tuning::default(), filter);
            let (report, _) = capture(&wire, make, &ours, limits(), |_| wire.sender.replay(&file, 20_000));
            assert_eq!(report.packets(), expected, "{backend} `{filter}`");
        }
    }
}
