//! The counters of the stack against the programs that administrators read them with: `ip -s`, `ss`, `nft`, `tc -s`.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
};

use host::{
    Root,
    stack::{Counted, QdiscKey, Socket, SocketKind, StackCounters, StackReader, Verdict},
};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use testbed::{in_namespace_with_sys, nft, run};

/// Sends `count` datagrams to a port of the loopback.
fn send(count: usize, port: u16) {
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for _ in 0..count {
        // A refusal by ICMP for an earlier datagram, or by a rule, shows up here.
        let _ = sender.send_to(&[0; 100], ("127.0.0.1", port));
    }
}

fn find(counters: &StackCounters, kind: SocketKind, port: u16) -> &Socket {
    let ours = |s: &&Socket| s.kind == kind && s.local.is_some_and(|a| a.port() == port);
    counters.sockets.values().find(ours).expect("the socket is listed")
}

#[test]
fn losses_are_found_where_they_happen() {
    in_namespace_with_sys(|| {
        nft("table inet ekt {\n counter ekc {}\n chain in {\n type filter hook input priority 0; policy accept;\n \
             udp dport 7001 counter drop comment \"ek\"\n udp dport 7002 counter name ekc drop\n udp dport 7003 jump other\n }\n \
             chain other {\n counter drop\n }\n }");
        let slow = UdpSocket::bind("127.0.0.1:7010").expect("a port");
        let listener = TcpListener::bind("127.0.0.1:7011").expect("a port");
        let root = Root::live();
        let mut reader = StackReader::open();
        let before = reader.read(&root);
        for (count, port) in [(11, 7001), (12, 7002), (13, 7003), (14, 7004), (3000, 7010)] {
            send(count, port);
        }
        let after = reader.read(&root);
        assert!(after.unread.is_empty(), "{:?}", after.unread);
        let now = after.since(&before);

        let rules = now.rules.as_ref().expect("rules");
        let lost: Vec<(&str, Option<u64>, bool)> = rules
            .rules
            .values()
            .filter(|rule| rule.verdict == Verdict::Drop)
            .map(|rule| (rule.text.as_str(), rule.packets, rule.exact))
            .collect();
        assert_eq!(
            lost,
            [
                ("udp dport 7001 counter drop comment \"ek\"", Some(11), true),
                ("udp dport 7002 counter name \"ekc\" drop", Some(12), true),
                ("counter drop", Some(13), true),
            ]
        );
        let other = rules.rules.keys().find(|key| key.chain.chain == "other").expect("the called chain");
        assert_eq!(rules.hooks(&other.chain), ["input"]);

        let protocols = &now.protocols;
        assert_eq!(protocols.udp.no_ports, 14);
        assert!(protocols.udp.rcvbuf_errors > 2000, "{:?}", protocols.udp);
        assert_eq!(protocols.ip.in_receives, 11 + 12 + 13 + 14 + 3000 + 14, "and the answers by ICMP");

        let socket = find(&now, SocketKind::Udp, 7010);
        assert_eq!(socket.drops, protocols.udp.rcvbuf_errors);
        assert_eq!(socket.owner.as_ref().map(|o| o.pid), Some(std::process::id()));
        let ss = run("ss -unam");
        assert!(ss.contains(&format!(",d{})", find(&after, SocketKind::Udp, 7010).drops)), "{ss}");
        assert!(socket.receive_memory > 0 && socket.receive_memory <= socket.receive_buffer + 4096, "{socket:?}");
        let waiting = find(&now, SocketKind::TcpListener, 7011);
        assert_eq!((waiting.receive_queue, waiting.owner.is_some()), (0, true));
        // What waits in the queue counts as received only once it is read.
        assert_eq!(protocols.udp.in_datagrams, 0);
        slow.set_nonblocking(true).expect("a socket");
        let waited = (0..3000).take_while(|_| slow.recv(&mut [0; 100]).is_ok()).count() as u64;
        assert_eq!(waited + protocols.udp.rcvbuf_errors, 3000);
        assert_eq!(reader.read(&root).since(&after).protocols.udp.in_datagrams, waited);
        drop(listener);
    });
}

#[test]
fn interfaces_queues_and_taps() {
    in_namespace_with_sys(|| {
        run("ip link add ekst0 type veth peer name ekst1");
        run("ip link add ekstb type bridge");
        run("ip link set ekst1 master ekstb");
        for name in ["ekst0", "ekst1", "ekstb"] {
            fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").expect("IPv6 is there");
            run(&format!("ip link set {name} up"));
        }
        run("ip addr add 198.18.7.1/24 dev ekst0");
        run("ip neigh add 198.18.7.2 lladdr 02:00:00:00:00:02 dev ekst0");
        run("tc qdisc add dev ekst0 root handle 1: tbf rate 8kbit burst 1600 limit 3000");
        let tap: OwnedFd =
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, Some(SockProtocol::EthAll))
                .expect("a tap");
        let root = Root::live();
        let mut reader = StackReader::open();
        let before = reader.read(&root);
        let sender = UdpSocket::bind("198.18.7.1:0").expect("a port");
        for _ in 0..100 {
            let _ = sender.send_to(&[0; 458], "198.18.7.2:9"); // frames of 500 bytes
        }
        let after = reader.read(&root);
        assert!(after.unread.is_empty(), "{:?}", after.unread);
        let now = after.since(&before);

        let (&index, link) = now.links.iter().find(|(_, link)| link.name == "ekst0").expect("the interface");
        assert!(link.up && link.running && link.kind == "veth" && link.qdisc == "tbf", "{link:?}");
        let key = QdiscKey { ifindex: index, class: false, handle: 0x1_0000, parent: u32::MAX };
        let queue = now.qdiscs.get(&key).expect("the queue");
        assert!(key.is_root());
        assert_eq!(queue.drops + link.stats.tx_packets + u64::from(queue.queued_packets), 100, "{queue:?}");
        let shown = run("tc -s qdisc show dev ekst0");
        assert!(shown.contains(&format!("(dropped {},", after.qdiscs[&key].drops)), "{shown}");
        let shown = run("ip -s -s link show dev ekst0");
        let sent = after.links[&index].stats.tx_packets.to_string();
        assert!(shown.split_ascii_whitespace().any(|word| word == sent), "{shown}");

        let port = now.links.values().find(|link| link.name == "ekst1").expect("the port");
        assert!(port.bridge_port.is_some() && port.promiscuous, "{port:?}");
        assert_eq!(now.links[&port.master.expect("its bridge")].name, "ekstb");
        let nic = &now.nics[&index];
        assert_eq!(nic.driver, "veth");
        assert!(nic.losses.iter().all(|loss| loss.counted == Counted::InLink) && !nic.losses.is_empty(), "{nic:?}");
        assert!(nic.xdp.contains_key(&0));

        let taps: Vec<&Socket> = now.sockets.values().filter(|s| s.kind == SocketKind::Packet).collect();
        let [ours] = taps.as_slice() else { panic!("one tap: {taps:?}") };
        let facts = ours.packet.as_ref().expect("a tap");
        assert_eq!((facts.ethertype, facts.ring_version, facts.fanout), (3, None, None));
        assert_eq!(ours.owner.as_ref().map(|o| o.pid), Some(std::process::id()));
        assert!(tap.as_raw_fd() > 0);
    });
}

#[test]
fn the_namespace_of_the_machine_is_read() {
    let counters = StackReader::open().read(&Root::live());
    assert!(counters.protocols.all.len() > 100 && counters.links.values().any(|link| link.name == "lo"));
}
