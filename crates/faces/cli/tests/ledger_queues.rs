//! `evenkeel ledger` on boxes whose queues are full: a socket's, a tap's ring, a qdisc's, a CPU's backlog.

use std::{net::UdpSocket, path::Path};

use sys::packet::{PacketSocket, RingLayout, RxRing};
use testbed::{
    Kept, alone,
    losses::{BOX, FLOOD, LOADS, RECEIVER, road},
    skip,
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

#[test]
fn a_socket_that_nobody_reads() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "eksock") else { return };
    for load in LOADS {
        let socket = road.entry.run(|| UdpSocket::bind((BOX, 7010))).expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        let read = |most: u64| (0..most).take_while(|_| socket.recv(&mut [0; 64]).is_ok()).count() as u64;
        let (found, arrived) = road.measure(|| {
            read(u64::MAX); // what an earlier try left
            road.send_udp(BOX, 7010, load)
        });
        let waited = read(arrived);
        found.holds("udp", "socket buffer full", &format!("[{}]", std::process::id()), arrived - waited);
    }
}

#[test]
fn a_ring_whose_reader_sleeps() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekring") else { return };
    for load in LOADS {
        let layout = RingLayout { block_bytes: 4096, blocks: 4, retire_ms: 60_000, rx_hash: false, node: None };
        let open = || RxRing::new(PacketSocket::open()?, layout);
        let ring = road.entry.run(open).expect("a ring");
        ring.socket().bind(road.entry.link.index).expect("the interface");
        let (found, arrived) = road.measure(|| {
            ring.socket().take_statistics().expect("its statistics"); // what an earlier try left
            road.send_udp(RECEIVER, 9, load)
        });
        let statistics = ring.socket().take_statistics().expect("its statistics");
        assert!(
            u64::from(statistics.packets) == arrived && u64::from(statistics.drops) > arrived / 2,
            "{statistics:?}"
        );
        found.holds("taps", "", &format!("[{}]", std::process::id()), statistics.drops.into());
    }
}

#[test]
fn a_token_bucket_that_is_full() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ektbf") else { return };
    let exit = road.exit.interface();
    road.entry.output(&format!("tc qdisc add dev {exit} root tbf rate 2mbit burst 2000 limit 20000"));
    let dropped = || {
        let text = road.entry.output(&format!("tc -s qdisc show dev {exit}"));
        let words = text.split_once("(dropped ").expect("tc tells losses").1;
        words.split(',').next().and_then(|n| n.parse::<u64>().ok()).expect("a number")
    };
    for load in LOADS {
        let (found, before) = road.measure(|| {
            let before = dropped();
            road.send_udp(RECEIVER, 9, load);
            before
        });
        found.holds("qdisc", exit, "", dropped() - before);
    }
}

#[test]
fn a_backlog_that_is_full() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekback") else { return };
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return skip("a backlog is filled from another CPU");
    }
    // Packets go to the other core, where they wait for each other.
    let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", road.entry.interface());
    let write = || std::fs::write(Path::new(&path), "2");
    road.entry.run(write).expect("RPS can be set");
    // Each packet is looked at so often there that it takes longer than sending one.
    let looks: String = (0..500).map(|i| format!("  ip saddr 10.0.{}.{} drop\n", i / 250, i % 250)).collect();
    road.entry
        .nft(&format!("table ip ekt {{\n chain way {{\n  type filter hook prerouting priority 0;\n{looks} }}\n }}\n"));
    // A veth that finds no room at its peer counts the frame as its own loss.
    let refused = || {
        let path = format!("/sys/class/net/{}/statistics/tx_dropped", road.from.interface());
        road.from.read(&path).trim().parse::<u64>().expect("a number")
    };
    let _short = Kept::set(Path::new("/proc/sys/net/core/netdev_max_backlog"), "16");
    let (found, lost) = road.measure(|| {
        let before = refused();
        road.send_udp(RECEIVER, 9, FLOOD);
        refused() - before
    });
    found.holds("softnet", "backlog", "CPU_BACKLOG", lost);
}
