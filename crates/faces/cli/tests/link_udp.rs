//! `evenkeel link serve --over udp`: two nodes on a wire, two behind a router, by IPv4 and IPv6.

use std::{fs, process::Command};

use testbed::{Bed, LinkNode, Tcpdump, ended, matching, refused};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A copy of a file from one to the other arrives whole, and probes are answered.
fn carry(bed: &Bed, [from, to]: [&LinkNode; 2], name: &str, folder: &str) {
    from.meets(name);
    to.meets("alpha");
    ended(&from.ask(&["ping", name, "-c", "3", "-i", "10ms"]), 0);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = bed.file("file", &bytes);
    ended(&from.ask(&["copy", &file, &format!("{name}:copied")]), 0);
    assert_eq!(fs::read(format!("{folder}/copied")).unwrap(), bytes);
}

fn folder(bed: &Bed) -> String {
    let folder = bed.path("in");
    fs::create_dir(&folder).unwrap();
    folder.to_str().unwrap().to_owned()
}

fn on_a_wire(tag: &str, addresses: [&str; 2], payload: u64) {
    let Some((bed, [left, right])) = Bed::pair(tag) else { return };
    left.address(addresses[0]);
    right.address(addresses[1]);
    let folder = folder(&bed);
    let witness = Tcpdump::start(&right, right.interface(), &bed.path("seen.pcap"), &[]);
    let a = LinkNode::start(EVENKEEL, &bed, &left, "alpha", &["--over", "udp"]);
    let b = LinkNode::start(
        EVENKEEL,
        &bed,
        &right,
        "beta",
        &["--over", "udp", "--receive", &folder, "--receive-free", "1M"],
    );
    carry(&bed, [&a, &b], "beta", &folder);
    let status = a.status();
    assert_eq!(status["payload_max"], payload);
    assert!(status["carrier"].as_str().unwrap().contains("UDP"), "{status}");
    assert!(status["address"].as_str().unwrap().ends_with(":885"), "{status}");
    let seen = witness.stop();
    assert!(matching(&seen, "udp.port == 885") > 2000);
    assert_eq!(matching(&seen, "eth.type == 0x88b5"), 0);
    assert!(matching(&seen, "udp.port == 885 && (ip.dsfield.ecn == 2 || ipv6.tclass.ecn == 2)") > 2000);
}

#[test]
fn nodes_on_a_wire_talk_behind_udp() {
    on_a_wire("lnkud4", ["10.9.0.1/24", "10.9.0.2/24"], 1440);
}

#[test]
fn nodes_on_a_wire_talk_behind_udp_by_ipv6() {
    on_a_wire("lnkud6", ["fd09::1/64", "fd09::2/64"], 1420);
}

#[test]
fn nodes_behind_a_router_talk_once_they_are_introduced() {
    let Some(bed) = Bed::new("lnkudr", &["left", "router", "right"]) else { return };
    let [left, near] = bed.join(["left", "router"], 1);
    let [right, far] = bed.join(["right", "router"], 1);
    left.address("10.9.1.2/24");
    near.address("10.9.1.1/24");
    right.address("10.9.2.2/24");
    far.address("10.9.2.1/24");
    bed.space("router").set("net.ipv4.ip_forward", "1");
    bed.space("left").output("ip route add default via 10.9.1.1");
    bed.space("right").output("ip route add default via 10.9.2.1");
    let folder = folder(&bed);
    let a = LinkNode::start(EVENKEEL, &bed, &left, "alpha", &["--over", "udp", "--peer", "10.9.2.2"]);
    let b = LinkNode::start(
        EVENKEEL,
        &bed,
        &right,
        "beta",
        &["--over", "udp", "--receive", &folder, "--receive-free", "1M", "--peer", "10.9.1.2"],
    );
    carry(&bed, [&a, &b], "beta", &folder);
    ended(&a.ask(&["ping", "10.9.2.2:885", "-c", "1"]), 0);
}

#[test]
fn wrong_wishes_are_named() {
    let Some((_bed, [left, _right])) = Bed::pair("lnkudw") else { return };
    let ask = |args: &[&str]| {
        let mut command = Command::new(EVENKEEL);
        left.run(|| command.args(["link", "serve", left.interface()]).args(args).output().unwrap())
    };
    refused(&ask(&["--peer", "10.9.0.2"]), 2, &["--peer 10.9.0.2", "--over udp"]);
    refused(&ask(&["--over", "udp", "--xdp-mode", "native"]), 2, &["--xdp-mode"]);
    refused(&ask(&["--over", "udp", "--group", "daemon"]), 2, &["--over udp", "--group"]);
    refused(&ask(&["--over", "udp", "--peer", "10.9.0.2", "--peer", "fd09::2"]), 2, &["one family"]);
    refused(&ask(&["--over", "udp", "--peer", "10.9.0.2"]), 3, &[left.interface(), "no IP address"]);
}
