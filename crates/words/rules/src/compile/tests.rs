use std::net::IpAddr;

use super::*;
use crate::{
    packet::Packet,
    reference,
    rule::{Limit, Match, Place, Prefix, PrefixSet},
};

fn prefix(address: &str, len: u8) -> Prefix {
    Prefix { address: address.parse().unwrap(), len }
}

fn at(second: i64) -> Now {
    Now { wall: jiff::Timestamp::from_second(second).unwrap(), monotonic_ns: second as u64 * 1_000_000_000 }
}

fn packet(source: &str, destination: &str) -> Packet {
    let (source, destination): (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
    Packet {
        source,
        destination,
        ports: Some((1000, 80)),
        len: 40,
        vlan: None,
        protocol: 6,
        tcp_flags: Some(2),
        icmp_type: None,
        part: crate::packet::Part::Whole,
        dscp: 0,
        known: crate::known::Known::default(),
        ip_at: 14,
        transport_at: 34,
    }
}

fn rule(name: &str, when: Match, action: Action) -> Rule {
    Rule { name: name.into(), when, action, ..Rule::default() }
}

#[test]
fn sets_prefixes_and_protected_ones() {
    let mut rules = Rules::default();
    rules.sets.insert("bad".into(), PrefixSet { prefixes: vec![prefix("10.0.0.0", 8), prefix("2001:2::", 48)] }.into());
    let bad = vec![Place::Set("bad".into()), Place::Prefix(prefix("192.0.2.0", 24))];
    let friend = vec![Place::Prefix(prefix("10.1.0.0", 16))];
    rules.rules = vec![
        rule("friend", Match { source: friend, ..Match::default() }, Action::Pass),
        rule("bad", Match { source: bad, ..Match::default() }, Action::Drop),
    ];
    rules.protected = vec![prefix("198.18.0.0", 15), prefix("198.18.7.0", 24), prefix("198.18.7.0", 24)];
    let tables = tables(&rules, &mut Counters::new(), at(1)).unwrap();
    assert!(tables.destination.is_none() && tables.fields.iter().all(Option::is_none), "nobody asks for them");
    assert_eq!(tables.source.as_ref().unwrap().rows, [0, 2, 3], "the set and the prefix of one rule share a row");
    for (source, rule) in [("10.1.2.3", Some(0)), ("10.2.2.3", Some(1)), ("192.0.2.9", Some(1)), ("192.0.3.9", None)] {
        let packet = packet(source, "198.18.7.1");
        let found = lookup::decide(&tables, &packet, 1, |_, _| false);
        assert_eq!(found.rule, rule, "{source}");
        assert_eq!(found, reference::decide(&rules, &packet, at(1)));
    }
    for (destination, number) in [("198.18.7.1", Some(1)), ("198.19.7.1", Some(0)), ("198.20.7.1", None)] {
        let packet = packet("10.1.2.3", destination);
        assert_eq!(lookup::protected(&tables, &packet), number);
        assert_eq!(reference::protected(&rules, &packet), number);
    }
    let six = packet("2001:2::1", "2001:2::2");
    assert_eq!(lookup::decide(&tables, &six, 1, |_, _| false).rule, Some(1));
}

#[test]
fn limits_and_shadows_let_the_search_go_on() {
    let limit = Action::Limit(Limit { pps: 10, burst: 5, per_source: Some((24, 48)) });
    let mut rules = Rules::default();
    let mut shadow = rule("shadow", Match::default(), Action::Drop);
    shadow.shadow = true;
    rules.rules =
        vec![shadow, rule("limit", Match::default(), limit), rule("last", Match::default(), Action::Challenge)];
    let tables = tables(&rules, &mut Counters::new(), at(1)).unwrap();
    assert_eq!((tables.rules[1].pps, tables.rules[1].burst, tables.rules[1].per_source), (10, 5, Some((24, 48))));
    let packet = packet("10.0.0.1", "10.0.0.2");
    let within = lookup::decide(&tables, &packet, 1, |_, _| false);
    assert_eq!(
        (within.rule, within.outcome, &within.counted[..]),
        (Some(2), reference::Outcome::Challenge, &[0, 1, 2][..])
    );
    let beyond = lookup::decide(&tables, &packet, 1, |rule, _| rule == 1);
    assert_eq!((beyond.rule, beyond.outcome, &beyond.counted[..]), (Some(1), reference::Outcome::Drop, &[0, 1][..]));
    assert_eq!(beyond, reference::decide_with(&rules, &packet, at(1), |_, _| true));
}

#[test]
fn a_rule_ends_when_it_expires() {
    let mut rules = Rules::default();
    let mut ends = rule("ends", Match::default(), Action::Drop);
    ends.expires = Some(at(20).wall);
    rules.rules = vec![ends];
    let tables = tables(&rules, &mut Counters::new(), at(10)).unwrap();
    let packet = packet("10.0.0.1", "10.0.0.2");
    for (second, decides) in [(19, Some(0)), (20, None)] {
        assert_eq!(lookup::decide(&tables, &packet, at(second).monotonic_ns, |_, _| false).rule, decides);
        assert_eq!(reference::decide(&rules, &packet, at(second)).rule, decides);
    }
}

#[test]
fn rules_without_conditions_leave_no_bits_of_others() {
    let mut watch = rule("watch", Match::default(), Action::Drop);
    watch.shadow = true;
    for rules in [vec![], vec![watch.clone(); 2], vec![watch; 66]] {
        let rules = Rules { rules, ..Rules::default() };
        let tables = tables(&rules, &mut Counters::new(), at(1)).unwrap();
        let bits: u32 = tables.fields.iter().flatten().flat_map(|table| &table.rows).map(|row| row.count_ones()).sum();
        assert_eq!(bits as usize, rules.rules.len());
        let packet = packet("10.0.0.1", "10.0.0.2");
        assert_eq!(lookup::decide(&tables, &packet, 1, |_, _| false), reference::decide(&rules, &packet, at(1)));
    }
}

#[test]
fn what_cannot_be_compiled_is_reported() {
    let mut rules = Rules::default();
    let when = Match { destination: vec![Place::Set("none".into())], ..Match::default() };
    rules.rules = vec![rule("x", when, Action::Drop)];
    let refused = tables(&rules, &mut Counters::new(), at(1)).unwrap_err();
    assert!(refused.to_string().contains("rule \"x\" names the set \"none\""), "{refused}");
    rules.rules = vec![rule("y", Match::default(), Action::Drop); RULES_MAX + 1];
    assert!(matches!(tables(&rules, &mut Counters::new(), at(1)), Err(RulesError::TooManyRules { .. })));
}
