use std::{collections::BTreeMap, net::IpAddr, ops::RangeInclusive};

use jiff::{SignedDuration, Timestamp};
use rules::{Action, Fragment, Limit, Match, Place, Prefix, PrefixSet, Rule, Rules, TcpFlags, Verdict};

use super::{DSCP, FLAGS, ICMP_TYPES, LENGTHS, PORTS, PROTOCOLS, Random, VLANS, address};

/// Conditions that random rules may have.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// 0 to this many.
    pub rules: usize,
    /// Conditions on the VLAN id.
    pub vlan: bool,
    /// Rules that have expired or will.
    pub expiring: bool,
    /// Limits, far above the rate of any test.
    pub limits: bool,
    /// SYN cookies.
    pub challenges: bool,
    /// Conditions on what the machine knows.
    pub known: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { rules: 30, vlan: true, expiring: true, limits: true, challenges: true, known: true }
    }
}

/// Rules; those that end do so an hour from `now`.
pub fn rules(random: &mut Random, shape: Shape, now: Timestamp) -> Rules {
    let verdict = |random: &mut Random| random.pick(&[Verdict::Pass, Verdict::Drop]);
    let mut sets = BTreeMap::new();
    for n in 0..random.below(4) {
        let mut prefixes: Vec<Prefix> = (0..random.below(20)).map(|_| prefix(random)).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        sets.insert(format!("set{n}"), PrefixSet { prefixes }.into());
    }
    let names: Vec<&String> = sets.keys().collect();
    let mut rules: Vec<Rule> =
        (0..random.below(shape.rules + 1)).map(|n| rule(random, shape, n, &names, now)).collect();
    rules.sort_by_key(|rule| !rule.management);
    let (default, malformed) = (verdict(random), verdict(random));
    let protected = (0..random.below(4)).map(|_| prefix(random)).collect();
    Rules { rules, default, malformed, sets, protected }
}

fn rule(random: &mut Random, shape: Shape, number: usize, sets: &[&String], now: Timestamp) -> Rule {
    let action = match random.below(10) {
        0..4 => Action::Drop,
        4 if shape.limits => {
            let per_source = random.percent(50).then_some((24, 56));
            Action::Limit(Limit { pps: 100_000_000, burst: 100_000_000, per_source })
        }
        5 if shape.challenges => Action::Challenge,
        _ => Action::Pass,
    };
    let expires = (shape.expiring && random.percent(10)).then(|| {
        let hour = SignedDuration::from_hours(random.pick(&[-1, 1]));
        now + hour
    });
    Rule {
        name: format!("r{number}"),
        when: conditions(random, shape, sets),
        action,
        shadow: random.percent(10),
        expires,
        management: number < 2 && random.percent(30),
        yields: action == Action::Challenge && random.percent(50),
        line: None,
    }
}

/// Each condition by chance; those that go together (ports and a protocol that has them) more often than not.
fn conditions(random: &mut Random, shape: Shape, sets: &[&String]) -> Match {
    let mut when = Match::default();
    let ask = |random: &mut Random| random.percent(15);
    if ask(random) {
        when.family = Some(random.pick(&[4, 6]));
    }
    for places in [&mut when.source, &mut when.destination] {
        if random.percent(35) {
            *places = (0..=random.below(3)).map(|_| place(random, sets)).collect();
        }
    }
    for ports in [&mut when.source_port, &mut when.destination_port] {
        if random.percent(20) {
            *ports = ranges(random, PORTS);
        }
    }
    if random.percent(30) {
        when.protocol = random.some(PROTOCOLS);
    }
    if ask(random) {
        let (mask, value) = (random.pick(FLAGS), random.pick(FLAGS));
        when.tcp_flags = Some(TcpFlags { mask, value: value & mask });
    }
    if shape.known && random.percent(15) {
        let answer = |random: &mut Random| random.pick(&[None, Some(false), Some(false), Some(true)]);
        (when.known.connection, when.known.listener) = (answer(random), answer(random));
    }
    if random.percent(8) {
        when.icmp_type = random.some(ICMP_TYPES);
    }
    if ask(random) {
        when.length = ranges(random, LENGTHS);
    }
    if random.percent(10) {
        when.fragment = Some(random.pick(&[Fragment::No, Fragment::Any, Fragment::First, Fragment::Later]));
    }
    if random.percent(8) {
        when.dscp = random.some(DSCP);
    }
    if shape.vlan && random.percent(8) {
        when.vlan = random.some(VLANS);
    }
    when
}

fn ranges(random: &mut Random, of: &[u16]) -> Vec<RangeInclusive<u16>> {
    let range = |random: &mut Random| {
        let (a, b) = (random.pick(of), random.pick(of));
        if random.percent(50) { a..=a } else { a.min(b)..=a.max(b) }
    };
    (0..=random.below(3)).map(|_| range(random)).collect()
}

fn place(random: &mut Random, sets: &[&String]) -> Place {
    if !sets.is_empty() && random.percent(40) {
        return Place::Set(sets[random.below(sets.len())].clone());
    }
    Place::Prefix(prefix(random))
}

/// A prefix around a pool's address, long more often than short.
fn prefix(random: &mut Random) -> Prefix {
    let v4 = random.percent(50);
    match address(random, v4) {
        IpAddr::V4(address) => {
            let len = random.pick(&[0, 1, 8, 15, 16, 20, 23, 24, 24, 25, 31, 32, 32]);
            let kept = address.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            Prefix { address: IpAddr::V4(kept.into()), len }
        }
        IpAddr::V6(address) => {
            let len = random.pick(&[0, 3, 16, 31, 32, 33, 48, 49, 64, 64, 65, 112, 127, 128, 128]);
            let kept = address.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            Prefix { address: IpAddr::V6(kept.into()), len }
        }
    }
}
