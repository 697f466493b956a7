//! `evenkeel ledger` on boxes that lose a known number of packets in IP, UDP and netfilter.

use std::{
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use testbed::{
    alone,
    losses::{BOX, LOADS, Load, RECEIVER, Road, SENDER, road},
    text,
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// Builds a box, lets `lose` send packets that it loses while the ledger counts, and looks them up. `lose` gives back how
/// many were lost.
fn lab(tag: &str, [station, place, word]: [&str; 3], prepare: impl Fn(&Road), lose: impl Fn(&Road, Load) -> u64) {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, tag) else { return };
    for load in LOADS {
        let (found, lost) = road.measure(|| {
            prepare(&road);
            lose(&road, load)
        });
        found.holds(station, place, word, lost);
    }
}

/// A datagram with a changed byte of its IP header, and the header's checksum set right again.
fn with_ttl(road: &Road, ttl: u8) -> Vec<u8> {
    let mut frame = road.udp_frame(SENDER, RECEIVER, 9);
    frame[22] = ttl;
    frame[24..26].fill(0);
    let checksum = wire::Sum::new().bytes(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

#[test]
fn a_rule_that_drops_every_thousandth_packet() {
    // Each run begins at 0.
    let rule = "flush ruleset\ntable ip ekt {\n chain way {\n type filter hook forward priority 0;\n numgen inc mod 1000 0 counter drop\n }\n }\n";
    lab(
        "ekrule",
        ["netfilter", "numgen inc mod 1000 0", "counter"],
        |road| road.entry.nft(rule),
        |road, load| road.send_udp(RECEIVER, 9, load).div_ceil(1000),
    );
}

/// `shield plan` writes a rule once for each family, with one named counter for all of them.
#[test]
fn rules_that_share_a_named_counter() {
    lab(
        "ekname",
        ["netfilter", "syslog (counter r1)", "counter of the rule"],
        |road| {
            let rules = "[[rule]]\nname = \"syslog\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 514\n";
            let file = road.file("rules.toml", rules);
            let args = ["shield", "plan", road.entry.interface(), "--rules", &file];
            let plan = road.entry.run(|| std::process::Command::new(EVENKEEL).args(args).output());
            let plan = plan.expect("the program runs");
            road.entry.nft(&text(&plan.stdout));
        },
        |road, load| road.send_udp(BOX, 514, load),
    );
}

#[test]
fn a_rule_without_a_counter() {
    let rules =
        "flush ruleset\ntable ip ekt {\n chain way {\n type filter hook input priority 0;\n udp dport 7 drop\n }\n }\n";
    lab(
        "ekmute",
        ["netfilter", "", "NETFILTER_DROP"],
        |road| road.entry.nft(rules),
        |road, load| road.send_udp(BOX, 7, load),
    );
}

#[test]
fn a_port_without_a_socket() {
    lab("ekport", ["udp", "no socket", "NoPorts"], |_| {}, |road, load| road.send_udp(BOX, 7001, load));
}

#[test]
fn a_ttl_that_ends_here() {
    lab("ekttl", ["ip", "TTL", "IP_INHDR"], |_| {}, |road, load| road.send_frame(&with_ttl(road, 1), load));
}

#[test]
fn a_bad_checksum_of_the_ip_header() {
    lab(
        "ekipck",
        ["ip", "bad checksum", "InCsumErrors"],
        |_| {},
        |road, load| {
            let mut frame = road.udp_frame(SENDER, BOX, 9);
            frame[25] ^= 0x55;
            road.send_frame(&frame, load)
        },
    );
}

#[test]
fn a_bad_udp_checksum() {
    lab(
        "ekudck",
        ["udp", "bad UDP checksum", "InCsumErrors"],
        |_| {},
        |road, load| {
            let mut frame = road.udp_frame(SENDER, BOX, 7003);
            frame[41] ^= 0x55;
            let socket = road.entry.run(|| UdpSocket::bind((BOX, 7003))).expect("a port");
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
            let sent = AtomicBool::new(false);
            thread::scope(|scope| {
                // The checksum is looked at when the datagram is read.
                scope.spawn(|| {
                    while !sent.load(Ordering::Relaxed) {
                        assert!(socket.recv(&mut [0; 64]).is_err());
                    }
                });
                let before = road.entry.counter("UdpRcvbufErrors");
                let arrived = road.send_frame(&frame, load);
                thread::sleep(Duration::from_millis(50));
                sent.store(true, Ordering::Relaxed);
                // What found no room while the reader was behind has been lost for another reason.
                arrived - (road.entry.counter("UdpRcvbufErrors") - before)
            })
        },
    );
}

#[test]
fn a_martian_source() {
    lab(
        "ekmars",
        ["ip", "martian", "IP_"],
        |_| {},
        |road, load| road.send_frame(&road.udp_frame("127.0.0.1", BOX, 9), load),
    );
}

#[test]
fn a_source_that_the_reverse_path_refuses() {
    let prepare = |road: &Road| road.entry.set(&format!("net/ipv4/conf/{}/rp_filter", road.entry.interface()), "1");
    lab("ekrpf", ["ip", "rp_filter", "IPReversePathFilter"], prepare, |road, load| {
        road.send_frame(&road.udp_frame("203.0.113.5", BOX, 9), load)
    });
}
