//! The shield's program by test runs: which rule decides, limits, what goes on across a reload, the heartbeat.

use std::{thread::sleep, time::Duration};

use bpf::filter::{Heartbeat, Shield, ShieldConfig, ShieldParsed, ShieldShared, Tested};
use model::clock::monotonic_ns;
use rules::tables::{Field, RuleAction, RuleEntry};
use testbed::{
    filter::{DROP, Frame, PASS, Tables, counting},
    privileged,
};

fn verdict(shield: &Shield, frame: &Frame) -> (u32, Option<usize>) {
    let Tested { action, rule, parsed, .. } = shield.test(&frame.bytes()).unwrap();
    assert_eq!(parsed, Some(ShieldParsed::Ip));
    (action, rule)
}

fn packets(shared: &ShieldShared, rules: usize) -> Vec<u64> {
    shared.counts().rules[..rules].iter().map(|r| r.packets).collect()
}

#[test]
fn the_first_rule_that_applies_decides() {
    let Some(()) = privileged() else { return };
    let mut tables = Tables::new(3);
    tables.rule(0, RuleAction::Drop).when(Field::DestinationPort, &[53]).when(Field::Kind, &[17]);
    tables.rule(1, RuleAction::Pass).when(Field::DestinationPort, &[53, 80]);
    tables.rule(2, RuleAction::Drop).when(Field::Detail, &[2]);
    let shared = ShieldShared::create().unwrap();
    let shield = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    let of = |frame: Frame| verdict(&shield, &frame);
    assert_eq!(of(Frame::udp(1, 53)), (DROP, Some(0)));
    assert_eq!(of(Frame::udp(1, 54)), (PASS, None));
    assert_eq!(of(Frame::tcp(1, 53, 2)), (PASS, Some(1)));
    assert_eq!(of(Frame::tcp(1, 81, 2)), (DROP, Some(2)));
    assert_eq!(of(Frame::tcp(1, 81, 18)), (PASS, None));
    assert_eq!(packets(&shared, 3), [1, 1, 1]);
    let counts = shared.counts();
    assert_eq!(counts.rules[0].bytes, Frame::udp(1, 53).bytes().len() as u64);
    let totals = counts.totals;
    assert_eq!((totals.passed, totals.dropped, totals.by_default), (3, 2, 2));
}

#[test]
fn every_field_is_looked_up() {
    let Some(()) = privileged() else { return };
    let mut tables = Tables::new(10);
    tables.rule(0, RuleAction::Drop).when(Field::SourcePort, &[7]);
    tables.rule(1, RuleAction::Drop).when(Field::DestinationPort, &[65_535]);
    tables.rule(2, RuleAction::Drop).when(Field::Kind, &[256 + 17]);
    tables.rule(3, RuleAction::Drop).when(Field::Detail, &[256 + 8, 512 + 128]);
    tables.rule(4, RuleAction::Drop).when(Field::Header, &[46]);
    tables.rule(5, RuleAction::Drop).when(Field::Header, &[64]);
    tables.rule(6, RuleAction::Drop).when(Field::Header, &[128]);
    tables.rule(7, RuleAction::Drop).when(Field::Vlan, &[4095]);
    tables.rule(8, RuleAction::Drop).when(Field::Vlan, &[4096]).when(Field::SourcePort, &[9]);
    tables.rule(9, RuleAction::Drop).when(Field::Length, &[28]).when(Field::SourcePort, &[10]);
    let shared = ShieldShared::create().unwrap();
    let shield = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    let udp = |from, to| Frame::udp(from, to);
    let tagged = vec![(0x88a8, 0xefff), (0x8100, 1)];
    let cases = [
        (udp(7, 1), Some(0)),
        (udp(1, 65_535), Some(1)),
        (Frame { six: true, ..udp(1, 1) }, Some(2)),
        (Frame::icmp(8), Some(3)),
        (Frame { six: true, protocol: 58, ..Frame::icmp(128) }, Some(3)),
        (Frame { six: true, ..Frame::icmp(8) }, None),
        (Frame { dscp: 46, ..Frame::icmp(9) }, Some(4)),
        (Frame { six: true, dscp: 46, ..Frame::icmp(9) }, Some(4)),
        (Frame { fragment: 0x2000, ..udp(1, 1) }, Some(5)),
        // A later fragment has no ports, whatever its bytes.
        (Frame { fragment: 0x2001, ..udp(7, 7) }, Some(6)),
        (Frame { tags: tagged, ..udp(9, 1) }, Some(7)),
        (udp(9, 1), Some(8)),
        (Frame { tags: vec![(0x8100, 5)], ..udp(9, 1) }, None),
        (Frame { padding: 40, ..udp(10, 1) }, Some(9)),
        (Frame { options: vec![1; 4], ..udp(10, 1) }, None),
    ];
    for (n, (frame, rule)) in cases.into_iter().enumerate() {
        assert_eq!(verdict(&shield, &frame).1, rule, "case {n}");
    }
}

#[test]
fn rules_beyond_the_first_word_and_rules_that_do_not_decide() {
    let Some(()) = privileged() else { return };
    let count = 4096;
    let mut tables = Tables::new(count);
    for n in 0..count {
        tables.rule(n, RuleAction::Pass).when(Field::SourcePort, &[n]);
    }
    // All of these see port 4095: a shadow, an expired one, one that does not expire yet, a limit, all in other words.
    tables.rule(3, RuleAction::Drop).when(Field::SourcePort, &[3, 4095]).set(|r| r.shadow = true);
    tables.rule(100, RuleAction::Drop).when(Field::SourcePort, &[100, 4095]).set(|r| r.expires_ns = 1);
    let far = monotonic_ns() + 3_600_000_000_000;
    tables.rule(101, RuleAction::Drop).when(Field::SourcePort, &[101]).set(|r| r.expires_ns = far);
    tables.rule(200, RuleAction::Limit).when(Field::SourcePort, &[200, 4095]).set(|r| (r.pps, r.burst) = (1, 2));
    tables.rule(4095, RuleAction::Drop).when(Field::SourcePort, &[4095]);
    let shared = ShieldShared::create().unwrap();
    let shield = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    assert_eq!(verdict(&shield, &Frame::udp(64, 1)), (PASS, Some(64)));
    assert_eq!(verdict(&shield, &Frame::udp(4094, 1)), (PASS, Some(4094)));
    assert_eq!(verdict(&shield, &Frame::udp(101, 1)), (DROP, Some(101)));
    assert_eq!(verdict(&shield, &Frame::udp(100, 1)), (PASS, None), "expired");
    assert_eq!(verdict(&shield, &Frame::udp(3, 1)), (PASS, None), "shadow");
    for _ in 0..2 {
        assert_eq!(verdict(&shield, &Frame::udp(4095, 1)), (DROP, Some(4095)));
    }
    assert_eq!(verdict(&shield, &Frame::udp(4095, 1)), (DROP, Some(200)), "the limit's burst is over");
    let counts = shared.counts();
    let at = |n: usize| (counts.rules[n].packets, counts.rules[n].limited);
    assert_eq!((at(3), at(100), at(200), at(4095)), ((4, 0), (0, 0), (3, 1), (2, 0)));
    assert_eq!(counts.totals.limited, 1);
}

#[test]
fn limits_per_rule_and_per_source() {
    let Some(()) = privileged() else { return };
    let mut tables = Tables::new(3);
    let limit =
        |burst: u64, per_source| move |r: &mut RuleEntry| (r.pps, r.burst, r.per_source) = (20, burst, per_source);
    tables.rule(0, RuleAction::Limit).when(Field::SourcePort, &[1]).set(limit(3, None));
    tables.rule(1, RuleAction::Limit).when(Field::SourcePort, &[2]).set(limit(2, Some((24, 64))));
    tables
        .rule(2, RuleAction::Limit)
        .when(Field::SourcePort, &[3])
        .set(limit(1, Some((32, 128))))
        .set(|r| r.shadow = true);
    let shared = ShieldShared::create().unwrap();
    let shield = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    let passed = |frame: &Frame, times: usize| (0..times).filter(|_| verdict(&shield, frame).0 == PASS).count();
    assert_eq!(passed(&Frame::udp(1, 1), 10), 3);
    // 20 per second: after 110 ms there are two more.
    sleep(Duration::from_millis(110));
    assert!(passed(&Frame::udp(1, 1), 10) >= 2);
    let from = |last: [u8; 2]| {
        let mut frame = Frame::udp(2, 1);
        frame.source[2..4].copy_from_slice(&last);
        frame
    };
    for net in 0..50 {
        assert_eq!(passed(&from([net, 1]), 1), 1);
        assert_eq!(passed(&from([net, 200]), 5), 1, "the same /24");
    }
    let six = |byte: usize| {
        let mut frame = Frame { six: true, ..Frame::udp(2, 1) };
        frame.source[byte] ^= 0x55;
        frame
    };
    assert_eq!(passed(&six(8), 3), 2);
    assert_eq!(passed(&six(15), 3), 0, "the same /64");
    assert_eq!(passed(&six(7), 3), 2, "another");
    assert_eq!(passed(&Frame::udp(3, 1), 10), 10, "a shadow");
    assert!(shared.counts().rules[2].limited >= 8);
    assert_eq!(shared.counts().totals.evicted_sources, 0);
}

#[test]
fn sources_beyond_the_tables_room_are_let_in_and_counted() {
    let Some(()) = privileged() else { return };
    let mut tables = Tables::new(1);
    tables.rule(0, RuleAction::Limit).set(|r| (r.pps, r.burst, r.per_source) = (1, 1, Some((32, 128))));
    let shared = ShieldShared::create().unwrap();
    let shield = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    let mut frame = Frame::udp(1, 1).bytes();
    for source in 0..100_000u32 {
        frame[26..30].copy_from_slice(&source.to_be_bytes());
        assert_eq!(shield.test(&frame).unwrap().action, PASS);
    }
    let evicted_sources = shared.counts().totals.evicted_sources;
    assert!(
        (1..50_000).contains(&evicted_sources),
        "{evicted_sources} of 100,000 sources found no room in 65,536 sets of 4"
    );
}

#[test]
fn counters_and_limits_go_on_when_rules_are_reloaded() {
    let Some(()) = privileged() else { return };
    let mut tables = Tables::new(2);
    tables.rule(0, RuleAction::Drop).when(Field::SourcePort, &[1]);
    tables.rule(1, RuleAction::Limit).when(Field::SourcePort, &[2]).set(|r| (r.pps, r.burst) = (1, 1000));
    let shared = ShieldShared::create().unwrap();
    let first = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    let passed = |shield: &Shield| (0..1000).filter(|_| verdict(shield, &Frame::udp(2, 1)).0 == PASS).count();
    assert_eq!(verdict(&first, &Frame::udp(1, 1)).0, DROP);
    assert_eq!(passed(&first), 1000);
    // The same rules in another order count where they did.
    let mut tables = Tables::new(2);
    tables.rule(0, RuleAction::Limit).when(Field::SourcePort, &[2]).set(|r| (r.pps, r.burst, r.counter) = (1, 1000, 1));
    tables.rule(1, RuleAction::Drop).when(Field::SourcePort, &[1]).set(|r| r.counter = 0);
    let second = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    // One comes back each second.
    assert!(passed(&second) < 100, "the burst was used up before");
    assert_eq!(verdict(&second, &Frame::udp(1, 1)), (DROP, Some(1)));
    assert_eq!(packets(&shared, 2), [2, 2000]);
    // A faster limit does not wait for a quarter of an hour until the slower one's burst would have come back.
    let mut tables = Tables::new(1);
    tables
        .rule(0, RuleAction::Limit)
        .when(Field::SourcePort, &[2])
        .set(|r| (r.pps, r.burst, r.counter) = (1000, 10, 1));
    let third = Shield::load(&tables.build(), &counting(), &shared).unwrap();
    verdict(&third, &Frame::udp(2, 1));
    sleep(Duration::from_millis(50));
    assert!(passed(&third) >= 10);
}

#[test]
fn when_the_heart_stops_it_fails_open_or_closed() {
    let Some(()) = privileged() else { return };
    let mut tables = Tables::new(2);
    tables.rule(0, RuleAction::Pass).when(Field::DestinationPort, &[22]).set(|r| r.management = true);
    tables.rule(1, RuleAction::Drop).when(Field::DestinationPort, &[80]);
    let (web, ssh, other) = (Frame::tcp(1, 80, 2), Frame::tcp(1, 22, 2), Frame::tcp(1, 443, 2));
    let mut arp = Frame::udp(1, 1).bytes();
    arp[12..14].copy_from_slice(&[8, 6]);
    for closed in [false, true] {
        let shared = ShieldShared::create().unwrap();
        let heartbeat = Some(Heartbeat { timeout: Duration::from_millis(300), closed });
        let config = ShieldConfig { heartbeat, ..counting() };
        let shield = Shield::load(&tables.build(), &config, &shared).unwrap();
        let actions = || {
            let frames = [web.bytes(), ssh.bytes(), other.bytes(), arp.clone()];
            frames.map(|frame| shield.test(&frame).unwrap().action)
        };
        shared.beat();
        assert_eq!(actions(), [DROP, PASS, PASS, PASS]);
        sleep(Duration::from_millis(400));
        let expected = if closed { [DROP, PASS, DROP, PASS] } else { [PASS; 4] };
        assert_eq!(actions(), expected, "closed: {closed}");
        let totals = shared.counts().totals;
        assert_eq!((totals.failed_open, totals.failed_closed), if closed { (0, 2) } else { (4, 0) });
        shared.beat();
        assert_eq!(actions(), [DROP, PASS, PASS, PASS]);
    }
}

#[test]
fn what_cannot_be_loaded_is_reported() {
    let Some(()) = privileged() else { return };
    let shared = ShieldShared::create().unwrap();
    let refused = |tables: &Tables| {
        Shield::load(&tables.build(), &ShieldConfig::default(), &shared).expect_err("refused").to_string()
    };
    let mut tables = Tables::new(1);
    tables.rule(0, RuleAction::Challenge);
    assert_eq!(refused(&tables), "a rule asks for SYN cookies, which are not set up");
    tables.rule(0, RuleAction::Limit);
    assert!(refused(&tables).contains("rule 0 limits to 0 packets/s"));
    tables.rule(0, RuleAction::Drop).set(|r| r.counter = 8192);
    assert!(refused(&tables).contains("there are 8192 counters"));
}
