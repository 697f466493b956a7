//! The file of rules: what it says, and how it tells of what is wrong.

use rules::{Action, Fragment, Limit, Place, Rules, RulesError, TcpFlags, Verdict, file};

fn parse(text: &str) -> Rules {
    file::parse(text, "rules.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn problems(text: &str) -> Vec<String> {
    match file::parse(text, "rules.toml") {
        Err(RulesError::Rules(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("no problem was found: {other:?}"),
    }
}

/// The one problem of `text`, whose message is to have all of `parts`.
fn problem(text: &str, parts: &[&str]) {
    let found = problems(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    for part in parts {
        assert!(found[0].contains(part), "{:?} lacks {part:?}", found[0]);
    }
}

#[test]
fn every_key_of_a_rule_is_understood() {
    let rules = parse(
        r#"
default = "drop"
malformed = "pass"
protect = ["203.0.113.0/24", "2001:db8::/32"]

[sets.blocked]
prefixes = ["198.51.100.7", "10.0.0.0/8", "10.0.0.0/8"]

[[rule]]
name = "reflection"
action = "drop"
shadow = true
expires = 2030-01-02T03:04:05Z
family = "ipv4"
protocol = ["udp", 136]
source = ["@blocked", "192.0.2.0/24"]
destination = "203.0.113.5"
source-port = [53, "100-200"]
destination-port = 80
length = "500-65535"
fragment = false
dscp = ["ef", 0]
vlan = [7, "10-12"]

[[rule]]
name = "syn"
action = "limit"
rate = "2k/s"
burst = 7
per-source = ["ipv4/24", "ipv6/48"]
tcp-flags = "syn !ack"

[[rule]]
name = "ping"
action = "limit"
rate = 50
protocol = "icmpv6"
icmp-type = "echo-request"
"#,
    );
    assert_eq!((rules.default, rules.malformed), (Verdict::Drop, Verdict::Pass));
    assert_eq!(rules.protected.len(), 2);
    assert_eq!(rules.sets["blocked"].prefixes.len(), 2, "sorted, without duplicates");
    let [reflection, syn, ping] = &rules.rules[..] else { panic!("{:?}", rules.rules) };
    assert_eq!((reflection.action, reflection.shadow, reflection.line), (Action::Drop, true, Some(9)));
    assert_eq!(reflection.expires.unwrap().to_string(), "2030-01-02T03:04:05Z");
    let when = &reflection.when;
    assert_eq!((when.family, &when.protocol[..]), (Some(4), &[17, 136][..]));
    assert_eq!(when.source[0], Place::Set("blocked".into()));
    assert_eq!(when.source_port, [53..=53, 100..=200]);
    assert_eq!((&when.destination_port[..], &when.length[..]), (&[80..=80][..], &[500..=65535][..]));
    assert_eq!(
        (when.fragment, &when.dscp[..], &when.vlan[..]),
        (Some(Fragment::No), &[46, 0][..], &[7, 10, 11, 12][..])
    );
    assert_eq!(syn.action, Action::Limit(Limit { pps: 2000, burst: 7, per_source: Some((24, 48)) }));
    assert_eq!(syn.when.tcp_flags, Some(TcpFlags { mask: 18, value: 2 }));
    assert_eq!(ping.action, Action::Limit(Limit { pps: 50, burst: 5, per_source: None }));
    assert_eq!(ping.when.icmp_type, [128]);
}

#[test]
fn no_message_passes_what_is_whole() {
    let rules = parse("");
    assert_eq!((rules.default, rules.malformed, rules.rules.len()), (Verdict::Pass, Verdict::Drop, 0));
}

#[test]
fn a_problem_names_line_and_column_and_what_to_write() {
    let rule = |more: &str| format!("[[rule]]\nname = \"a\"\naction = \"drop\"\n{more}\n");
    problem(
        &rule("source = [\"192.0.2.0/24\", \"192.0.2.1/24\"]"),
        &["rules.toml:4:27: ", "write 192.0.2.0/24, or 192.0.2.1"],
    );
    problem(&rule("source = \"192.0.2.0/33\""), &["rules.toml:4:10: ", "/32"]);
    problem(&rule("source = \"@nobody\""), &["4:10", "no set `nobody`", "[sets.nobody]"]);
    problem(&rule("saddr = \"192.0.2.1\""), &["4:1: ", "no key `saddr`", "write `source`"]);
    problem("[detection]\nfoo = 1\n", &["write one of"]);
    problem(&rule("sorce = \"192.0.2.1\""), &["did you mean `source`?"]);
    problem(&rule("protocol = \"upd\""), &["4:12", "did you mean `udp`?"]);
    problem(&rule("destination-port = 70000"), &["port 70000 is out of bounds", "0 to 65535"]);
    problem(&rule("destination-port = \"90-80\""), &["4:20", "write 80-90"]);
    problem(&rule("tcp-flags = \"syn !akc\""), &["`akc` is not a TCP flag", "did you mean `ack`?"]);
    problem(&rule("icmp-type = \"echo-request\""), &["4:13", "protocol = \"icmp\" or protocol = \"icmpv6\""]);
    problem(&rule("protocol = \"icmp\"\nsource-port = 5"), &["5:15", "has ports"]);
    problem(&rule("expires = 2030-01-02T03:04:05"), &["offset from UTC", "2030-01-02T03:04:05Z"]);
    problem(&rule("rate = 5"), &["`rate` has no meaning beside action = \"drop\""]);
    problem(&rule("source = []"), &["4:10", "empty list"]);
    problem(&rule("source = \"!10.0.0.0/8\""), &["4:10", "action = \"pass\""]);
    problem(&rule("family = \"ipv6\"\nsource = \"192.0.2.1\""), &["5:10", "family"]);
    problem("[[rule]]\nname = \"a\"\naction = \"deny\"\n", &["3:10", "`deny` is not an action", "write `drop`"]);
    problem("[[rule]]\naction = \"drop\"\n", &["1:1", "without a name"]);
    problem("[[rule]]\nname = \"a\"\n", &["1:1", "without an action"]);
    problem("[[rule]]\nname = \"a\"\naction = \"limit\"\n", &["1:1", "without a rate"]);
    problem("defualt = \"drop\"\n", &["1:1", "did you mean `default`?"]);
    problem("default = \"reject\"\n", &["1:11", "\"pass\" or \"drop\""]);
    problem("source = \"192.0.2.1\"\n", &["1:1", "begin one by a line [[rule]]"]);
    problem("default = \"drop\n", &["rules.toml:1:"]);
}

#[test]
fn all_problems_are_reported_in_their_order() {
    let found = problems(
        "[[rule]]\nname = \"a\"\naction = \"drop\"\ndscp = 64\n\n[[rule]]\nname = \"b\"\naction = \"dorp\"\nvlan = 5000\n",
    );
    let lines: Vec<_> = found.iter().map(|line| line.split(':').nth(1).unwrap()).collect();
    assert_eq!(lines, ["4", "8", "9"], "{found:#?}");
}

#[test]
fn columns_count_characters_not_bytes() {
    problem("[[rule]]\nname = \"é\"\naction = \"drop\"\nsource = [\"10.0.0.1\"] # é\ndscp = [\"é\", 1]\n", &["5:9"]);
    problem(
        "[[rule]]\naction = \"drop\"\nname = \"é\"\nsource = [ \"@é\", \"é\" ]\n[sets]\n\"é\" = { prefixes = [\"10.0.0.1\"] }\n",
        &["4:18"],
    );
}

#[test]
fn names_are_unique_because_counters_go_on_under_them() {
    let rule = "[[rule]]\nname = \"a\"\naction = \"drop\"\n";
    problem(&format!("{rule}{rule}"), &["5:8", "the first: line 1"]);
    problem("[[rule]]\nname = \"management:x\"\naction = \"drop\"\n", &["2:8", "management allow-list"]);
}

#[test]
fn a_set_is_read_from_its_file_beside_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    let set = folder.path().join("blocked.txt");
    std::fs::write(&set, "# those\n192.0.2.0/24\n\n2001:db8::/32 # and these\n").unwrap();
    let text =
        "[sets.blocked]\nfile = \"blocked.txt\"\n[[rule]]\nname = \"a\"\naction = \"drop\"\nsource = \"@blocked\"\n";
    std::fs::write(&rules, text).unwrap();
    assert_eq!(file::read(&rules).unwrap().rules.sets["blocked"].prefixes.len(), 2);

    std::fs::write(&set, "192.0.2.0/24\n192.0.2.300\n10.0.0.0/8\n").unwrap();
    let error = file::read(&rules).unwrap_err().to_string();
    assert!(error.contains("blocked.txt:2:1: "), "{error}");
    std::fs::write(&rules, text.replace("\"blocked.txt\"", "\"blocked.txt\"\nbad-line = \"skip\"")).unwrap();
    let read = file::read(&rules).unwrap();
    assert_eq!((read.rules.sets["blocked"].prefixes.len(), read.skipped.len()), (2, 1));
    std::fs::remove_file(&set).unwrap();
    let error = file::read(&rules).unwrap_err().to_string();
    assert!(error.contains("rules.toml:1:7: ") && error.contains("blocked.txt"), "{error}");
}

#[test]
fn the_management_allow_list_comes_from_the_file_the_machine_and_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    std::fs::write(&path, "[management]\nfrom = [\"192.0.2.0/28\"]\nports = [22, \"8000-8001\"]\n").unwrap();
    let management = file::read(&path).unwrap().management;
    let session = rules::management::Session {
        peer: "198.51.100.9".parse().unwrap(),
        peer_port: 50_000,
        local: "203.0.113.1".parse().unwrap(),
        local_port: 2222,
    };
    let made = management.rules(&["203.0.113.1".parse().unwrap()], Some(&session));
    let names: Vec<_> = made.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["management:neighbours", "management:from", "management:session"]);
    assert!(made.iter().all(|rule| rule.management && rule.action == Action::Pass));
    assert_eq!(made[1].when.destination_port, [22..=22, 8000..=8000, 8001..=8001]);
    assert_eq!(made[2].when.source, [Place::Prefix(rules::words::prefix("198.51.100.9").unwrap())]);
    assert!(made[2].when.destination_port.contains(&(2222..=2222)));
    assert_eq!(management.rules(&[], None).len(), 1, "nobody can be named without an address");
}

#[test]
fn no_time_is_longer_than_clocks_count() {
    let keys = ["quiet-s", "patience-s", "baseline.memory-s", "baseline.after-s", "shadow.first-s", "hook.timeout-s"];
    for key in keys {
        let hook = if key.starts_with("hook") { "hook.run = [\"/bin/true\"]\n" } else { "" };
        let read = |value: &str| file::parse(&format!("[detection]\n{hook}{key} = {value}\n"), "x");
        for value in ["1e300", "1e20", "inf", "nan", "-1.0"] {
            assert!(read(value).is_err_and(|error| error.to_string().contains(key)), "{key} = {value}");
        }
        assert!(read("1e9").is_ok(), "{key}");
    }
}

#[test]
fn a_source_has_one_length_for_each_family() {
    let read = |lens: &str| {
        file::parse(&format!("[[rule]]\nname = \"a\"\naction = \"limit\"\nrate = 5\nper-source = {lens}\n"), "x")
    };
    let error = read("[\"ipv4/24\", \"ipv4/8\"]").unwrap_err().to_string();
    assert!(error.contains("x:5:15: `ipv4` has two lengths"), "{error}");
    assert!(read("[\"ipv4/24\", \"ipv6/48\"]").is_ok() && read("true").is_ok());
    let error = file::parse("[[rule]]\nname = \"a\"\naction = \"limit\"\nrate = 99999999999999\n", "x").unwrap_err();
    assert!(error.to_string().contains("1000G at most"), "{error}");
}

#[test]
fn a_set_may_begin_as_editors_of_windows_begin_it() {
    let (set, _) = rules::prefixes::parse_set(b"\xef\xbb\xbf192.0.2.1\r\n", "s", Default::default()).unwrap();
    assert_eq!(set.prefixes.len(), 1);
}
