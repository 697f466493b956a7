//! The shield's program, by test runs.

mod shield_bed;

use bpf::shield::{Field, RuleAction, RuleEntry, Shield, ShieldConfig, ShieldParsed, ShieldShared, Tested};
use shield_bed::{Frame, Tables, privileged};

const DROP: u32 = 1;
const PASS: u32 = 2;

fn tell() -> ShieldConfig {
    ShieldConfig { tell: true, ..Default::default() }
}

#[test]
fn the_first_rule_that_applies_decides() {
    if !privileged() {
        return;
    }
    let mut tables = Tables::new(3);
    tables.rule(0, RuleAction::Drop).when(Field::DestinationPort, &[53]).when(Field::Kind, &[17]);
    tables.rule(1, RuleAction::Pass).when(Field::DestinationPort, &[53, 80]);
    tables.rule(2, RuleAction::Drop).when(Field::Detail, &[2]);
    let shared = ShieldShared::create().unwrap();
    let shield = Shield::load(&tables.build(), &tell(), &shared).unwrap();
    let verdict = |frame: Frame| {
        let Tested { action, rule, parsed, .. } = shield.test(&frame.bytes()).unwrap();
        assert_eq!(parsed, Some(ShieldParsed::Ip));
        (action, rule)
    };
    assert_eq!(verdict(Frame::udp(1, 53)), (DROP, Some(0)));
    assert_eq!(verdict(Frame::udp(1, 54)), (PASS, None));
    assert_eq!(verdict(Frame::tcp(1, 53, 2)), (PASS, Some(1)));
    assert_eq!(verdict(Frame::tcp(1, 81, 2)), (DROP, Some(2)));
    assert_eq!(verdict(Frame::tcp(1, 81, 18)), (PASS, None));
    let counts = shared.counts();
    let packets: Vec<u64> = counts.rules[..3].iter().map(|r| r.packets).collect();
    assert_eq!(packets, [1, 1, 1]);
    assert_eq!(counts.rules[0].bytes, Frame::udp(1, 53).bytes().len() as u64);
    let totals = counts.totals;
    assert_eq!((totals.passed, totals.dropped, totals.by_default), (3, 2, 2));
    let _ = RuleEntry::default();
}
