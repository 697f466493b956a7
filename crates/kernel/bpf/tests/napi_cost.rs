//! The cost of NAPI instances, on the loopback of a network namespace of our own.

use std::{net::UdpSocket, process::Command, thread};

use bpf::NapiCosts;
use nix::sched::{CloneFlags, unshare};

/// Whether this may run; says why not, and fails in CI.
fn privileged() -> bool {
    let root = nix::unistd::geteuid().is_root();
    assert!(root || std::env::var_os("CI").is_none(), "this test takes root, and CI must not skip it");
    if !root {
        eprintln!("skipped: this test takes root");
    }
    root
}

#[test]
fn packets_polls_and_time_of_the_backlog_are_seen() {
    if !privileged() {
        return;
    }
    const PACKETS: u64 = 2_000;
    let sum = |costs: &NapiCosts| {
        let all = costs.read().unwrap();
        let backlog = all.iter().filter(|c| c.ifindex == 0);
        backlog.fold((0, 0, 0), |s, c| (s.0 + c.packets, s.1 + c.ns, s.2 + c.polls))
    };
    // A namespace belongs to a thread and goes with it.
    let (before, after, costs) = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let costs = NapiCosts::attach().unwrap();
        let before = sum(&costs);
        for _ in 0..PACKETS {
            sender.send(&[0; 18]).unwrap();
            receiver.recv(&mut [0; 64]).unwrap();
        }
        let after = sum(&costs);
        (before, after, costs)
    })
    .join()
    .unwrap();
    let (packets, ns, polls) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    assert!(packets >= PACKETS, "{packets} packets");
    assert!(polls > 0 && polls <= packets, "{polls} polls");
    // Not a speed: a packet cannot be handled in no time, nor can the sum exceed what two minutes hold.
    assert!(ns > packets && ns < 120_000_000_000, "{ns} ns for {packets} packets");
    eprintln!("{} ns per packet", ns / packets);
    assert_eq!(costs.untracked().unwrap(), 0);
}
