//! Packets without an Ethernet header, as a tun hands them over: the kernel program, tested and attached, nftables and the interpreter decide alike.

use bpf::{
    XdpMode,
    filter::{Shield, ShieldConfig, ShieldLink, ShieldParsed, ShieldShared},
};
use rules::{
    Rules,
    compile::{self, Counters, Now},
    nft,
    packet::{Packet, Parsed},
    reference::{self, Decision, Outcome},
};
use testbed::{
    Bed, Tun,
    random::{Random, Shape, hurt, rules, spec},
    wait,
};

const RULE_SETS: u64 = 12;
const PACKET_COUNT: usize = 400;
const TUN: &str = "ektun0";
fn decide(rules: &Rules, packet: &[u8], now: Now) -> Decision {
    match Packet::parse_ip(packet) {
        Parsed::Ip(packet) => reference::decide(rules, &packet, now),
        Parsed::NotIp => Decision::undecided(Outcome::Pass),
        Parsed::Malformed(_) => Decision::undecided(rules.malformed.into()),
    }
}

/// Packets that all see alike. See [`nft`] for what they see differently.
fn packets(random: &mut Random, rules: &Rules) -> Vec<Vec<u8>> {
    let one = |random: &mut Random| {
        let mut spec = spec(random, rules);
        spec.tags.clear();
        spec.extensions.retain(|header| *header != 51);
        spec.bytes().split_off(14)
    };
    (0..PACKET_COUNT).map(|_| one(random)).collect()
}

/// Runs the program on each packet, and on damaged ones.
fn tested(rules: &Rules, now: Now, random: &mut Random, packets: &[Vec<u8>]) {
    let tables = compile::tables(rules, &mut Counters::new(), now).expect("tables");
    let shared = ShieldShared::create().expect("maps");
    let config = ShieldConfig { report: true, bare_ip: true, ..ShieldConfig::default() };
    let shield = Shield::load(&tables, &config, &shared).expect("a program");
    let damaged = packets.iter().map(|packet| {
        let mut packet = packet.clone();
        hurt(random, &mut packet);
        packet
    });
    let damaged: Vec<_> = damaged.filter(|packet| packet.len() >= 14).collect();
    for packet in packets.iter().chain(&damaged) {
        let (meant, found) = (decide(rules, packet, now), shield.test(packet).expect("a run"));
        let parsed = match Packet::parse_ip(packet) {
            Parsed::Ip(_) => ShieldParsed::Ip,
            Parsed::NotIp => ShieldParsed::NotIp,
            Parsed::Malformed(_) => ShieldParsed::Malformed,
        };
        let action = if meant.outcome == Outcome::Pass { 2 } else { 1 };
        let result = (found.parsed, found.action, found.rule);
        assert_eq!(result, (Some(parsed), action, meant.rule), "{packet:02x?}\n{rules:#?}");
    }
}

#[test]
fn a_tun_is_filtered_as_nftables_and_the_rules_say() {
    let Some(bed) = Bed::new("bareip", &["a"]) else { return };
    let space = bed.space("a");
    let mut tun = Tun::build(&space, TUN);
    let now = Now::read();
    let shape = Shape { challenges: false, known: false, ..Shape::default() };
    let (mut dropped, mut by_rule) = (0, 0);
    for seed in 0..RULE_SETS {
        let mut random = Random(700 + seed);
        let rules = rules(&mut random, shape, now.wall);
        let packets = packets(&mut random, &rules);
        let meant: Vec<_> = packets.iter().map(|packet| decide(&rules, packet, now)).collect();
        let mut counts = vec![0; rules.rules.len()];
        meant.iter().flat_map(|decision| &decision.counted).for_each(|&rule| counts[rule] += 1);
        let drops = meant.iter().filter(|decision| decision.outcome == Outcome::Drop).count() as u64;

        space.run(|| tested(&rules, now, &mut random, &packets));

        let shared = ShieldShared::create().expect("maps");
        let link = space.run(|| {
            let mut link = ShieldLink::take(TUN, XdpMode::Generic).expect("the hook");
            let tables = compile::tables(&rules, &mut Counters::new(), now).expect("tables");
            let config = ShieldConfig { bare_ip: true, slots: vec![link.maps()], ..ShieldConfig::default() };
            link.put(&Shield::load(&tables, &config, &shared).expect("a program")).expect("the place");
            link
        });
        tun.write(&packets);
        let seen = || shared.counts().totals.passed + shared.counts().totals.dropped;
        wait("all packets are judged", || seen() == PACKET_COUNT as u64);
        let found = shared.counts();
        assert_eq!((found.totals.dropped, found.totals.not_ip, found.totals.malformed), (drops, 0, 0), "{rules:#?}");
        let of_rules: Vec<u64> = found.rules.iter().take(counts.len()).map(|count| count.packets).collect();
        assert_eq!(of_rules, counts, "the attached program; {rules:#?}");
        drop(link);

        space.nft(&nft::script(&rules, TUN, now).expect("a script"));
        tun.write(&packets);
        let listed = || -> Vec<u64> {
            let text = space.output("nft -j list counters");
            let listed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let all = listed["nftables"].as_array().expect("a list").iter().map(|object| &object["counter"]);
            let all: Vec<_> = all.collect();
            let of = |name: String| {
                all.iter().filter(|c| c["name"] == name.as_str()).filter_map(|c| c["packets"].as_u64()).sum()
            };
            (0..counts.len()).map(|number| of(nft::counter(number))).collect()
        };
        wait("nftables has counted", || listed().iter().sum::<u64>() >= counts.iter().sum());
        assert_eq!(listed(), counts, "nftables; {rules:#?}");
        space.nft("flush ruleset");
        dropped += drops;
        by_rule += meant.iter().filter(|decision| decision.rule.is_some()).count();
    }
    let all = RULE_SETS * PACKET_COUNT as u64;
    assert!(dropped > all / 10 && dropped < all * 9 / 10 && by_rule as u64 > all / 4, "{dropped}, {by_rule} of {all}");
}
