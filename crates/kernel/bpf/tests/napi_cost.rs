//! The cost of NAPI instances, on the loopback of a network namespace of our own.

use std::net::UdpSocket;

use bpf::NapiCosts;

#[test]
fn packets_polls_and_time_of_the_backlog_are_seen() {
    const PACKETS: u64 = 2_000;
    let sum = |costs: &NapiCosts| {
        let all = costs.read().unwrap();
        let backlog = all.iter().filter(|c| c.ifindex == 0);
        backlog.fold((0, 0, 0), |s, c| (s.0 + c.packets, s.1 + c.ns, s.2 + c.polls))
    };
    testbed::in_namespace(move || {
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
        let (packets, ns, polls) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        assert!(packets >= PACKETS, "{packets} packets");
        assert!(polls > 0 && polls <= packets, "{polls} polls");
        // Not a speed: a packet cannot be handled in no time, nor can the sum exceed what two minutes hold.
        assert!(ns > packets && ns < 120_000_000_000, "{ns} ns for {packets} packets");
        eprintln!("{} ns per packet", ns / packets);
        assert_eq!(costs.untracked().unwrap(), 0);
    });
}
