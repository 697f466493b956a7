use super::*;
use crate::file;

fn session(peer: &str) -> Session {
    Session { peer: peer.parse().unwrap(), peer_port: 50_000, local: "203.0.113.1".parse().unwrap(), local_port: 22 }
}

fn findings(text: &str, sessions: &[Session]) -> Vec<(Weight, Kind)> {
    let file = file::parse_in(text, "rules.toml", std::path::Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    check(&file, sessions, Now::read()).into_iter().map(|finding| (finding.weight, finding.kind)).collect()
}

/// Rules `a`, `b`, .. from their conditions and actions.
fn rules(bodies: &[&str]) -> String {
    let mut text =
        "[sets.s]\nprefixes = [\"10.0.0.0/9\", \"10.128.0.0/9\"]\n[sets.empty]\nprefixes = [\"192.0.2.1\"]\n"
            .to_owned();
    for (n, body) in bodies.iter().enumerate() {
        text += &format!("[[rule]]\nname = \"{}\"\n{body}\n", char::from(b'a' + n as u8));
    }
    text
}

/// True if `b` never applies behind `a`.
fn void(a: &str, b: &str) -> bool {
    let text = rules(&[a, b, "source = \"@s\"\nsource-port = 1\naction = \"limit\"\nrate = 1"]);
    let file = file::parse(&text, "rules.toml").unwrap();
    let line = file.rules[1].line;
    let found = order(&file, Now::read());
    found.iter().any(|found| found.weight == Weight::Warning && found.kind == Kind::NeverApplies && found.line == line)
}

#[test]
fn a_rule_behind_one_that_decides_all_of_it_never_applies() {
    let drop = |conditions: &str| format!("action = \"drop\"\n{conditions}");
    let pairs = [
        ("", "source = \"192.0.2.1\"", true),
        ("source = \"192.0.2.0/24\"", "source = \"192.0.2.1\"", true),
        ("source = \"192.0.2.1\"", "source = \"192.0.2.0/24\"", false),
        ("source = \"@s\"", "source = \"10.0.0.0/8\"", true),
        ("source = \"192.0.2.0/24\"", "destination = \"192.0.2.1\"", false),
        ("protocol = \"tcp\"", "tcp-flags = \"syn\"", true),
        ("protocol = \"tcp\"", "destination-port = 80", false),
        ("protocol = [\"tcp\", \"udp\"]", "protocol = \"udp\"\ndestination-port = 53", true),
        ("destination-port = \"0-65535\"", "protocol = \"tcp\"", false),
        ("destination-port = [\"1-10\", \"11-20\"]", "destination-port = \"5-15\"", true),
        ("tcp-flags = \"syn\"", "tcp-flags = \"syn !ack\"", true),
        ("tcp-flags = \"syn !ack\"", "tcp-flags = \"syn\"", false),
        ("fragment = \"any\"", "fragment = \"later\"", true),
        ("fragment = \"first\"", "fragment = \"any\"", false),
        ("family = \"ipv4\"", "source = \"192.0.2.1\"", true),
        ("family = \"ipv6\"", "source = \"192.0.2.1\"", false),
        ("source = \"0.0.0.0/0\"", "source = \"::/0\"", false),
        ("length = \"0-100\"", "length = 50\nvlan = 3", true),
        ("dscp = \"ef\"", "dscp = [\"ef\", 1]", false),
    ];
    for (a, b, expected) in pairs {
        assert_eq!(void(&drop(a), &drop(b)), expected, "{a:?} before {b:?}");
    }
    let all = "action = \"drop\"";
    assert!(!void("action = \"drop\"\nshadow = true", all), "a shadow rule decides nothing");
    assert!(!void("action = \"limit\"\nrate = 5", all), "a limit leaves the rest to others");
    assert!(!void("action = \"drop\"\nexpires = 2099-01-01T00:00:00Z", all), "it will expire");
    assert!(void(
        "action = \"drop\"\nexpires = 2099-01-01T00:00:00Z",
        "action = \"pass\"\nexpires = 2098-01-01T00:00:00Z"
    ));
}

#[test]
fn rules_that_only_the_order_decides_between_are_reported() {
    let source = "action = \"pass\"\nsource = \"@s\"";
    let port = "action = \"drop\"\ndestination-port = 80";
    let finds = |bodies: &[&str]| findings(&rules(bodies), &[]).contains(&(Weight::Note, Kind::Overlap));
    assert!(finds(&[source, port]));
    assert!(!finds(&[source, "action = \"pass\"\ndestination-port = 80"]), "both pass");
    assert!(
        !finds(&["action = \"pass\"\nsource = \"10.0.0.1\"", "action = \"drop\"\nsource = \"@s\""]),
        "an exception"
    );
    assert!(!finds(&[source, "action = \"drop\"\nsource = \"192.0.2.1\"\ndestination-port = 80"]), "they never meet");
}

#[test]
fn a_set_of_all_addresses_is_warned_of() {
    let with = |set: &str| {
        findings(
            &format!("[sets.s]\nprefixes = [{set}]\n[[rule]]\nname = \"a\"\naction = \"drop\"\nsource = \"@s\"\n"),
            &[],
        )
    };
    for all in ["\"0.0.0.0/0\"", "\"192.0.2.1\", \"::/0\"", "\"::ffff:0.0.0.0/96\""] {
        assert!(with(all).contains(&(Weight::Warning, Kind::HoldsAll)), "{all}");
    }
    assert!(!with("\"0.0.0.0/1\"").iter().any(|(_, kind)| *kind == Kind::HoldsAll));
}

#[test]
fn sets_that_nobody_uses_and_rules_that_have_expired_are_reported() {
    let found = findings(&rules(&["action = \"drop\"\nsource = \"192.0.2.1\"\nexpires = 2001-01-01T00:00:00Z"]), &[]);
    assert!(found.contains(&(Weight::Warning, Kind::UnusedSet)), "{found:?}");
    assert!(found.contains(&(Weight::Note, Kind::Expired)), "{found:?}");
}

#[test]
fn a_rule_that_cuts_off_the_session_is_harm_unless_the_allow_list_saves_it() {
    let drop = rules(&["action = \"drop\"\nsource = \"@s\"\nprotocol = \"tcp\""]);
    let harm = |text: &str, peer: &str| {
        findings(text, &[session(peer)]).into_iter().find(|(_, kind)| *kind == Kind::CutsOff).map(|(weight, _)| weight)
    };
    assert_eq!(harm(&drop, "10.1.2.3"), Some(Weight::Note));
    assert_eq!(harm(&drop, "192.0.2.3"), None);
    let unguarded = format!("{drop}\n[management]\nsession = false\n");
    assert_eq!(harm(&unguarded, "10.1.2.3"), Some(Weight::Harm));
    let named = format!("{drop}\n[management]\nsession = false\nfrom = [\"10.1.0.0/16\"]\n");
    assert_eq!(harm(&named, "10.1.2.3"), Some(Weight::Note));
    assert_eq!(harm("default = \"drop\"\n[management]\nsession = false\n", "10.1.2.3"), Some(Weight::Harm));
    let syn =
        rules(&["action = \"drop\"\nsource = \"@s\"\ntcp-flags = \"syn !ack\""]) + "[management]\nsession = false\n";
    let found = findings(&syn, &[session("10.1.2.3")]);
    assert!(found.contains(&(Weight::Harm, Kind::CutsOff)), "a SYN is dropped: {found:?}");
}

#[test]
fn a_default_of_drop_shows_the_answers_that_it_drops() {
    let finds = |text: &str| findings(text, &[]).contains(&(Weight::Note, Kind::DropsAnswers));
    assert!(finds("default = \"drop\"\n"));
    assert!(!finds("default = \"drop\"\n[[rule]]\nname = \"a\"\naction = \"pass\"\ntcp-flags = \"ack\"\n"));
}

#[test]
fn a_challenge_must_see_what_brings_the_cookie_back() {
    let warned = |flags: &str| {
        let rule = format!("[[rule]]\nname = \"a\"\naction = \"challenge\"\nprotocol = \"tcp\"\n{flags}\n");
        findings(&rule, &[]).contains(&(Weight::Warning, Kind::ChallengesSynOnly))
    };
    assert!(warned("tcp-flags = \"syn !ack\"") && warned("tcp-flags = \"syn\""));
    assert!(!warned("") && !warned("tcp-flags = \"!rst\""));
}

#[test]
fn rules_that_no_packet_fulfils_are_reported() {
    let warned = |body: &str| {
        let found = findings(&rules(&[&format!("action = \"drop\"\n{body}")]), &[]);
        found.contains(&(Weight::Warning, Kind::AppliesToNothing))
    };
    for body in [
        "fragment = \"later\"\ndestination-port = 53",
        "fragment = \"later\"\ntcp-flags = \"syn\"",
        "fragment = \"later\"\nicmp-type = 8",
        "source = \"192.0.2.1\"\ndestination = \"2001:db8::1\"",
        "source = \"@s\"\ndestination = [\"2001:db8::1\", \"2001:db8::2\"]",
        "length = [\"0-19\", 7]",
        "family = \"ipv6\"\nlength = 39",
    ] {
        assert!(warned(body), "{body}");
    }
    for body in [
        "fragment = \"any\"\ndestination-port = 53",
        "fragment = \"later\"\nprotocol = \"udp\"",
        "source = [\"192.0.2.1\", \"2001:db8::1\"]\ndestination = \"2001:db8::1\"",
        "source = \"@s\"\nlength = [\"0-19\", 20]",
    ] {
        assert!(!warned(body), "{body}");
    }
}

#[test]
fn detection_that_cannot_work_is_reported() {
    let finds = |text: &str| findings(text, &[]).into_iter().map(|(_, kind)| kind).collect::<Vec<_>>();
    let of = |key: &str| finds(&format!("protect = \"192.0.2.1\"\n[detection]\n{key}\n"));
    assert_eq!(finds("detection.quiet-s = 3\n"), [Kind::NothingProtected]);
    assert_eq!(of("baseline.learn = false"), [Kind::NoLimits]);
    assert_eq!(of("baseline.learn = false\nthreshold.udp = 5"), Vec::<Kind>::new());
}

#[test]
fn who_is_named_already_is_not_advised_to_be() {
    let advice = |from: &str| {
        let text = format!("default = \"drop\"\n[management]\n{from}\n");
        let file = file::parse_in(&text, "f", std::path::Path::new("")).unwrap();
        check(&file, &[session("10.1.2.3")], Now::read()).remove(0).instead
    };
    assert_ne!(advice(""), advice("from = \"10.0.0.0/8\""));
}
