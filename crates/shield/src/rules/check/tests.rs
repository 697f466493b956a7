use super::*;
use crate::rules::file;

fn session(peer: &str) -> Session {
    Session { peer: peer.parse().unwrap(), peer_port: 50_000, local: "203.0.113.1".parse().unwrap(), local_port: 22 }
}

fn findings(text: &str, sessions: &[Session]) -> Vec<(Weight, String)> {
    let file = file::parse_in(text, "rules.toml", std::path::Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    check(&file, sessions, Now::read()).into_iter().map(|finding| (finding.weight, finding.what)).collect()
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

/// Whether `b` never applies behind `a`.
fn void(a: &str, b: &str) -> bool {
    let found = findings(&rules(&[a, b, "source = \"@s\"\nsource-port = 1\naction = \"limit\"\nrate = 1"]), &[]);
    found.iter().any(|(weight, what)| {
        *weight == Weight::Warning && what.starts_with("rule `b`") && what.contains("never applies")
    })
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
fn rules_that_only_the_order_decides_between_are_told() {
    let source = "action = \"pass\"\nsource = \"@s\"";
    let port = "action = \"drop\"\ndestination-port = 80";
    let told = |bodies: &[&str]| findings(&rules(bodies), &[]).iter().any(|(_, what)| what.contains("contradict"));
    assert!(told(&[source, port]));
    assert!(!told(&[source, "action = \"pass\"\ndestination-port = 80"]), "both pass");
    assert!(!told(&["action = \"pass\"\nsource = \"10.0.0.1\"", "action = \"drop\"\nsource = \"@s\""]), "an exception");
    assert!(!told(&[source, "action = \"drop\"\nsource = \"192.0.2.1\"\ndestination-port = 80"]), "they never meet");
}

#[test]
fn sets_that_nobody_uses_and_rules_that_have_expired_are_told() {
    let found = findings(&rules(&["action = \"drop\"\nsource = \"192.0.2.1\"\nexpires = 2001-01-01T00:00:00Z"]), &[]);
    assert!(found.iter().any(|(weight, what)| *weight == Weight::Warning && what.contains("set `s`")), "{found:?}");
    assert!(found.iter().any(|(weight, what)| *weight == Weight::Note && what.contains("has expired")), "{found:?}");
}

#[test]
fn a_rule_that_cuts_off_the_session_is_harm_unless_the_allow_list_saves_it() {
    let drop = rules(&["action = \"drop\"\nsource = \"@s\"\nprotocol = \"tcp\""]);
    let harm = |text: &str, peer: &str| {
        findings(text, &[session(peer)])
            .into_iter()
            .find(|(_, what)| what.contains("cut off"))
            .map(|(weight, _)| weight)
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
    assert!(found.iter().any(|(_, what)| what.contains("would not let you in again")), "{found:?}");
}

#[test]
fn a_default_of_drop_tells_of_the_answers_that_it_drops() {
    let told = |text: &str| findings(text, &[]).iter().any(|(_, what)| what.contains("answers to connections"));
    assert!(told("default = \"drop\"\n"));
    assert!(!told("default = \"drop\"\n[[rule]]\nname = \"a\"\naction = \"pass\"\ntcp-flags = \"ack\"\n"));
}

#[test]
fn a_challenge_must_see_what_brings_the_cookie_back() {
    let warned = |flags: &str| {
        let rule = format!("[[rule]]\nname = \"a\"\naction = \"challenge\"\nprotocol = \"tcp\"\n{flags}\n");
        let found = findings(&rule, &[]);
        found.iter().any(|(weight, what)| *weight == Weight::Warning && what.contains("brings the cookie back"))
    };
    assert!(warned("tcp-flags = \"syn !ack\"") && warned("tcp-flags = \"syn\""));
    assert!(!warned("") && !warned("tcp-flags = \"!rst\""));
}
