//! Looking up in the tables decides as the rules say, on random rules and packets.

use rules::{
    Action, Match, Place, Prefix, Rule, Rules,
    compile::{self, Counters, Now, lookup},
    packet::{Packet, Parsed},
    reference,
};
use testbed::random::{self, Random, Shape};

fn same(seed: u64, shape: Shape, frames: usize, hit: &mut [usize; 2]) {
    let mut random = Random(seed);
    let now = Now::read();
    let rules = random::rules(&mut random, shape, now.wall);
    let tables = compile::tables(&rules, &mut Counters::new(), now).unwrap();
    for _ in 0..frames {
        let mut frame = random::frame(&mut random, &rules);
        if random.percent(20) {
            random::hurt(&mut random, &mut frame);
        }
        // Limits are exceeded by some packets, the same ones for both.
        let exceeds = |rule: usize, packet: &Packet| (rule + usize::from(packet.len)).is_multiple_of(3);
        let found = lookup::decide_frame(&tables, &frame, now.monotonic_ns, exceeds);
        let meant = match Packet::parse(&frame) {
            Parsed::Ip(packet) => {
                assert_eq!(lookup::protected(&tables, &packet), reference::protected(&rules, &packet), "seed {seed}");
                reference::decide_with(&rules, &packet, now, exceeds)
            }
            _ => reference::decide_frame(&rules, &frame, now),
        };
        assert_eq!(found, meant, "seed {seed}, frame {frame:02x?}, rules {rules:#?}");
        hit[usize::from(found.rule.is_some())] += 1;
    }
}

#[test]
fn tables_decide_as_the_rules_say() {
    let mut hit = [0; 2];
    for seed in 0..150 {
        same(seed, Shape::default(), 200, &mut hit);
    }
    assert!(hit.iter().all(|n| *n > 5_000), "no rule, some rule: {hit:?}");
}

#[test]
fn rows_of_several_words() {
    let mut hit = [0; 2];
    for seed in 1000..1020 {
        same(seed, Shape { rules: 700, ..Shape::default() }, 200, &mut hit);
    }
}

/// 4096 rules, each with conditions of its own on most fields.
#[test]
fn as_many_rules_as_there_may_be() {
    let rule = |n: u16| Rule {
        name: format!("r{n}"),
        when: Match {
            source: vec![Place::Prefix(Prefix {
                address: std::net::Ipv4Addr::new(10, (n >> 8) as u8, n as u8, 0).into(),
                len: 24,
            })],
            destination_port: vec![n * 16..=(n * 16).saturating_add(20)],
            length: vec![n..=2 * n],
            ..Match::default()
        },
        action: Action::Drop,
        ..Rule::default()
    };
    let rules = Rules { rules: (0..4096).map(rule).collect(), ..Rules::default() };
    let now = Now::read();
    let tables = compile::tables(&rules, &mut Counters::new(), now).unwrap();
    let mut random = Random(7);
    let mut decided = 0;
    for _ in 0..500 {
        let frame = random::frame(&mut random, &rules);
        let found = lookup::decide_frame(&tables, &frame, now.monotonic_ns, |_, _| false);
        decided += usize::from(found.rule.is_some());
        assert_eq!(found, reference::decide_frame(&rules, &frame, now), "{frame:02x?}");
    }
    assert!(decided > 50, "{decided}");
}
