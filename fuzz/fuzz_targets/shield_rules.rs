//! The shield's file of rules: any text is rules or an error with a place; rules can be compiled, decide by their tables as they say, can be
//! checked, and have an nftables form that no name breaks out of.
//!
//! A text that begins with `%` is not taken as it is: its bytes choose among the keys and values of a file of rules, most of which fit.

#![cfg_attr(feature = "run", no_main)]

use std::{path::Path, time::Duration};

use libfuzzer_sys::fuzz_target;
use rules::{
    RULES_MAX, Rules, RulesError, check,
    compile::{Counters, Now, lookup, tables},
    file::{self, RuleFile},
    flags, nft,
    packet::{Packet, Parsed},
    reference,
};
use shield::detect::{Counts, Detector, Window};
use testbed::random::{self, Random};

/// Frames that are sent through the tables of each set of rules.
const FRAMES: usize = 12;

fuzz_target!(|bytes: &[u8]| match (bytes, str::from_utf8(bytes)) {
    ([b'%', choices @ ..], _) => whole(&written(choices)),
    (_, Ok(text)) => whole(text),
    _ => {}
});

/// Keys of a rule, and values for each.
const KEYS: &[(&str, &[&str])] = &[
    ("action", &["'drop'", "'pass'", "'limit'", "'challenge'", "'shadow'"]),
    (
        "source",
        &["'198.18.0.0/15'", "['198.18.0.1', '2001:2::/32']", "'@x'", "['@y', '10.0.0.0/8', '::/0']", "'0.0.0.0/0'"],
    ),
    ("destination", &["'198.18.1.0/24'", "['0.0.0.0/1', 'fd00::/8']", "'@y'", "['@x', '255.255.255.255']", "'::1'"]),
    ("source-port", &["53", "[0, '1024-65535']", "['79-81', 80, 443]", "65535"]),
    ("destination-port", &["80", "['0-22', '8000-8010']", "[1, 2, 3]", "'0-65535'"]),
    (
        "protocol",
        &["'tcp'", "['udp', 132, 6]", "['icmp', 'tcp']", "['icmpv6', 'tcp', 'icmp']", "[0, 59, 255]", "'esp'"],
    ),
    ("tcp-flags", &["'syn !ack'", "'!syn'", "'fin urg psh'", "'rst'"]),
    ("icmp-type", &["8", "[0, 255]", "[128, 135]"]),
    ("length", &["40", "['0-60', '1500-65535']", "'28-41'"]),
    ("fragment", &["'no'", "'any'", "'first'", "'later'"]),
    ("dscp", &["0", "['ef', 1, 63]", "'cs1'"]),
    ("vlan", &["7", "[0, '100-4095']", "1"]),
    ("family", &["'ipv4'", "'ipv6'"]),
    ("shadow", &["true", "false"]),
    ("expires", &["2030-01-31T18:00:00Z", "2001-01-31T18:00:00+02:00"]),
    ("burst", &["1", "100000"]),
    ("per-source", &["true", "['ipv4/24', 'ipv6/56']", "['ipv4/1', 'ipv6/128']"]),
];

/// A file of rules: a pair of bytes for each key and its value; a key that the rule has already begins the next rule.
fn written(choices: &[u8]) -> String {
    let mut text = "protect = ['198.18.0.0/15', '198.18.1.0/24', '2001:2::/48']\n[sets.x]\nprefixes = ['198.18.0.0/16', \
                    '198.18.0.0/24', '198.18.0.128/25', '2001:2::/64']\n[sets.y]\nprefixes = ['0.0.0.0/0', '198.19.0.0/16']\n"
        .to_owned();
    let (mut has, mut limit) = (u32::MAX, false);
    for (number, pair) in choices.chunks_exact(2).enumerate() {
        let at = usize::from(pair[0]) % KEYS.len();
        let (key, values) = KEYS[at];
        // Only a limit has more about it.
        if ["burst", "per-source"].contains(&key) && !limit {
            continue;
        }
        if has & 1 << at != 0 {
            text += &format!("[[rule]]\nname = 'r{number}'\n");
            (has, limit) = (0, false);
            if key != "action" {
                text += ["action = 'drop'\n", "action = 'pass'\n"][usize::from(pair[1] & 1)];
                has = 1;
            }
        }
        has |= 1 << at;
        let value = values[usize::from(pair[1]) % values.len()];
        text += &format!("{key} = {value}\n");
        if value == "'limit'" {
            limit = true;
            text += &format!("rate = {}\n", ["5", "'1.5M/s'", "'5k/s'"][usize::from(pair[0] >> 5) % 3]);
        }
    }
    text
}

fn whole(text: &str) {
    if let Some(Err(RulesError::Rules(problems))) = text.lines().next().map(flags::rule) {
        assert!(problems.iter().all(|problem| problem.line > 0 && problem.column > 0));
    }
    // Sets in files are not what this is about: there are none.
    let file = match file::parse_in(text, "fuzz", Path::new("/nonexistent")) {
        Ok(file) => file,
        Err(RulesError::Rules(problems)) => {
            let lines = text.split('\n').count();
            assert!(problems.iter().all(|p| p.line > 0 && p.column > 0 && p.line <= lines), "{problems:?}");
            return;
        }
        Err(_) => return,
    };
    let now = Now::read();
    for finding in check::check(&file, &[], now) {
        assert!(!finding.what.is_empty() && !finding.instead.is_empty());
    }
    plan(&file.rules, now);
    watched(&file);
    let Ok(tables) = tables(&file.rules, &mut Counters::new(), now) else { return };
    let mut random = Random(text.len() as u64);
    for number in 0..FRAMES {
        // Made to fulfil one of the rules, mostly.
        let mut frame = random::frame(&mut random, &file.rules);
        if number % 4 == 3 {
            random::hurt(&mut random, &mut frame);
        }
        let exceeds = |rule: usize, packet: &Packet| (rule + usize::from(packet.len)).is_multiple_of(3);
        let found = lookup::decide_frame(&tables, &frame, now.monotonic_ns, exceeds);
        let meant = match Packet::parse(&frame) {
            Parsed::Ip(packet) => {
                assert_eq!(lookup::protected(&tables, &packet), reference::protected(&file.rules, &packet));
                reference::decide_with(&file.rules, &packet, now, exceeds)
            }
            _ => reference::decide_frame(&file.rules, &frame, now),
        };
        assert_eq!(found, meant, "{frame:02x?}\n{:#?}", file.rules);
    }
}

/// An attack on all that is protected comes and goes: each rule against it can be compiled.
fn watched(file: &RuleFile) {
    let protected = &file.rules.protected;
    let mut detector = Detector::new(file.detection.clone(), protected);
    let time = Duration::from_millis(file.detection.every_ms);
    let much = Counts { packets: 1 << 40, bytes: 1 << 46, udp: 1 << 40, sources: 9.0, ..Counts::default() };
    for look in 0u32..12 {
        let counts = if look < 8 { much } else { Counts::default() };
        let window = Window { time, prefixes: vec![counts; protected.len()], ..Window::default() };
        detector.step(&window, time * look, jiff::Timestamp::UNIX_EPOCH);
        let rules = Rules { rules: detector.rules(), ..Rules::default() };
        assert!(rules.rules.len() > RULES_MAX || tables(&rules, &mut Counters::new(), Now::read()).is_ok());
    }
}

/// In the script each string ends on its line, and each brace that opens closes.
fn plan(rules: &Rules, now: Now) {
    let Ok(script) = nft::script(rules, "eth0", now) else { return };
    let mut depth = 0i64;
    for line in script.lines() {
        assert!(line.matches('"').count().is_multiple_of(2) && !line.contains(|c: char| c.is_control()), "{line}");
        for unquoted in line.split('"').step_by(2) {
            depth += unquoted.matches('{').count() as i64 - unquoted.matches('}').count() as i64;
        }
        assert!(depth >= 0, "{line}");
    }
    assert_eq!(depth, 0, "{script}");
}

#[cfg(not(feature = "run"))]
fn main() {}
