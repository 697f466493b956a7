//! The kernel's counters of protected prefixes match the traffic.

use std::{collections::BTreeMap, net::Ipv4Addr};

use bpf::filter::{Shield, ShieldConfig, ShieldShared, Watch, WatchReading, WatchSample};
use model::PrefixCounts;
use rules::{
    Prefix, Rules,
    compile::{self, Counters, Now},
    packet::{Packet, Parsed, Part},
    reference,
};
use shield::detect::mix::Kind;
use testbed::random::{self, Random, Shape, Spec};

/// A program that watches.
struct Watched {
    rules: Rules,
    watch: Watch,
    shield: Shield,
}

impl Watched {
    fn load(rules: Rules, now: Now) -> Self {
        let tables = compile::tables(&rules, &mut Counters::new(), now).unwrap();
        let watch = Watch::create(rules.protected.len()).unwrap();
        let config = ShieldConfig { report: true, watch: Some(watch.config().clone()), ..Default::default() };
        let shield = Shield::load(&tables, &config, &ShieldShared::create().unwrap()).unwrap();
        Self { rules, watch, shield }
    }
}

fn net(address: [u8; 4], len: u8) -> Prefix {
    Prefix { address: Ipv4Addr::from(address).into(), len }
}

fn udp(source: u32, ports: (u16, u16)) -> Vec<u8> {
    Spec {
        tags: vec![],
        source: Ipv4Addr::from_bits(source).into(),
        destination: Ipv4Addr::new(198, 18, 0, 1).into(),
        protocol: 17,
        ports,
        tcp_flags: 0,
        icmp_type: 0,
        part: Part::Whole,
        dscp: 0,
        option_words: 0,
        extensions: vec![],
        payload: 18,
        padding: 0,
    }
    .bytes()
}

#[test]
fn counters_and_samples_are_what_came() {
    let Some(()) = testbed::privileged() else { return };
    let mut random = Random(5);
    let now = Now::read();
    let mut rules = random::rules(&mut random, Shape::default(), now.wall);
    // All of both families, and some addresses that the frames have.
    rules.protected = vec![net([0, 0, 0, 0], 0), Prefix { address: "::".parse().unwrap(), len: 0 }];
    for i in 0..6 {
        let address = random::address(&mut random, i % 2 == 0);
        let prefix = Prefix { address, len: if address.is_ipv4() { 32 } else { 128 } };
        if !rules.protected.contains(&prefix) {
            rules.protected.push(prefix);
        }
    }
    let mut watched = Watched::load(rules, now);
    let mut meant = vec![PrefixCounts::default(); watched.rules.protected.len()];
    for _ in 0..5 {
        let mut packets: BTreeMap<String, i32> = BTreeMap::new();
        for _ in 0..400 {
            let frame = random::frame(&mut random, &watched.rules);
            watched.shield.test(&frame).unwrap();
            let Parsed::Ip(packet) = Packet::parse(&frame) else { continue };
            let Some(number) = reference::protected(&watched.rules, &packet) else { continue };
            count(&mut meant[number], &packet, frame.len());
            *packets.entry(key_of(number, &packet)).or_default() += 1;
        }
        let reading = watched.watch.read();
        for (counts, meant) in reading.counts.iter().zip(&mut meant) {
            (meant.new_flows, meant.sources) = (counts.new_flows, counts.sources);
            assert!(counts.new_flows <= counts.packets);
        }
        assert_eq!(reading.counts, meant);
        for sample in &reading.samples {
            *packets.entry(key_of(sample.prefix, &shield::detect::packet_of(sample))).or_default() -= 1;
        }
        packets.retain(|_, left| *left != 0);
        assert!(packets.is_empty(), "each packet is one sample while they are few: {packets:#?}");
    }
    assert!(meant.iter().filter(|m| m.packets > 0).count() > 2, "several prefixes were met");
}

fn key_of(number: usize, packet: &Packet) -> String {
    format!("{number} {:?}", Packet { ip_at: 0, transport_at: 0, ..*packet })
}

fn count(counts: &mut PrefixCounts, packet: &Packet, frame_len: usize) {
    counts.packets += 1;
    counts.bytes += frame_len as u64;
    counts.fragments += u64::from(packet.part != Part::Whole);
    *match Kind::of(packet) {
        Kind::Syn => &mut counts.syn,
        Kind::SynAck => &mut counts.syn_ack,
        Kind::Tcp => &mut counts.tcp,
        Kind::Udp => &mut counts.udp,
        Kind::Icmp => &mut counts.icmp,
        Kind::Other => &mut counts.other,
    } += 1;
}

#[test]
fn threads_count_as_the_kernel_program_does() {
    let Some(()) = testbed::privileged() else { return };
    let mut random = Random(6);
    let rules = Rules {
        protected: vec![net([0, 0, 0, 0], 0), Prefix { address: "::".parse().unwrap(), len: 0 }],
        ..Rules::default()
    };
    let mut kernel = Watched::load(rules, Now::read());
    let mut threads = Watch::create_for(2, 3).unwrap();
    let writers: Vec<_> = (0..3).map(|n| threads.config().writer(n).unwrap()).collect();
    assert!(threads.config().writer(4).is_err(), "there are four at most");
    for round in 0..3 {
        for n in 0..400 {
            let frame = match n % 2 {
                0 => random::frame(&mut random, &kernel.rules),
                // Sources that come again, each in a flow of its own.
                _ => udp(0x0a00_0000 + n % 64, (n as u16, 80)),
            };
            kernel.shield.test(&frame).unwrap();
            let Parsed::Ip(packet) = Packet::parse(&frame) else { continue };
            let prefix = reference::protected(&kernel.rules, &packet).unwrap();
            writers[n as usize % 3].count(&shield::detect::sample_of(&packet, prefix), frame.len());
        }
        let [inside, outside] = [kernel.watch.read(), threads.read()];
        for (mut inside, outside) in inside.counts.into_iter().zip(outside.counts) {
            // Who has seen a flow depends on the CPU.
            assert!(outside.new_flows > outside.packets / 4 && outside.new_flows <= outside.packets, "{outside:?}");
            inside.new_flows = outside.new_flows;
            // Two estimates of the same number, by hashes of their own.
            let distance = (inside.sources - outside.sources).abs();
            assert!(distance < 0.3 * inside.sources.max(10.0), "{inside:?} and {outside:?}");
            inside.sources = outside.sources;
            assert_eq!(inside, outside, "round {round}");
        }
        let key_of = |samples: &[WatchSample]| {
            let mut all: Vec<_> = samples.iter().map(|s| format!("{s:?}")).collect();
            all.sort();
            all
        };
        assert_eq!(key_of(&inside.samples), key_of(&outside.samples), "each packet is one sample while they are few");
    }
    // Beyond what is watched.
    let Parsed::Ip(packet) = Packet::parse(&udp(1, (2, 3))) else { panic!() };
    writers[0].count(&shield::detect::sample_of(&packet, 7), 60);
    assert!(threads.read().samples.is_empty());
}

#[test]
fn sources_are_estimated_for_each_reading_by_itself() {
    let Some(()) = testbed::privileged() else { return };
    let rules = Rules { protected: vec![net([198, 18, 0, 0], 24), net([198, 19, 0, 0], 24)], ..Rules::default() };
    let mut watched = Watched::load(rules, Now::read());
    let mut random = Random(9);
    for sources in [2000, 40, 0, 1, 0, 0] {
        for _ in 0..sources {
            let frame = udp(random.draw() as u32, (53, 1000));
            watched.shield.test(&frame).unwrap();
            watched.shield.test(&frame).unwrap();
        }
        let WatchReading { counts, .. } = watched.watch.read();
        let error = (counts[0].sources - f64::from(sources)).abs();
        // Four standard errors.
        assert!(error <= 4.0 * 0.045 * f64::from(sources).max(1.0), "{sources} sources: {}", counts[0].sources);
        assert_eq!(counts[1], PrefixCounts::default());
    }
}

#[test]
fn a_flow_is_new_once_on_each_cpu() {
    let Some(()) = testbed::privileged() else { return };
    let rules = Rules { protected: vec![net([198, 18, 0, 0], 24)], ..Rules::default() };
    let mut watched = Watched::load(rules, Now::read());
    let frame = udp(0x0a00_0001, (1000, 2000));
    (0..50).for_each(|_| _ = watched.shield.test(&frame).unwrap());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let flows = watched.watch.read().counts[0].new_flows;
    assert!((1..=cpus).contains(&flows), "{flows}");
    (0..50).for_each(|port| _ = watched.shield.test(&udp(0x0a00_0001, (port, 2000))).unwrap());
    assert!(watched.watch.read().counts[0].new_flows >= flows + 50);
}

#[test]
fn a_sample_is_one_in_so_many_when_much_comes() {
    let Some(()) = testbed::privileged() else { return };
    let rules = Rules { protected: vec![net([198, 18, 0, 0], 24)], ..Rules::default() };
    let mut watched = Watched::load(rules, Now::read());
    let frame = udp(0x0a00_0001, (1000, 2000));
    watched.shield.time(&frame, 200_000).unwrap();
    assert!(watched.watch.read().samples.len() >= 1024, "the last 1,024 of the CPU that ran it");
    watched.shield.time(&frame, 200_000).unwrap();
    // The other CPU's share may differ from that of the first time.
    let samples = watched.watch.read().samples.len();
    assert!((1..=2048).contains(&samples), "{samples}");
    let counts = watched.watch.read().counts[0];
    assert_eq!((counts.packets, counts.udp), (400_000, 400_000));
}
