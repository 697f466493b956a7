//! `evenkeel shield reload`: whom it lets in, whom it does not cut off.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Output,
    time::Duration,
};

use testbed::{DROP_9, ShieldBed, json, printed};

const SSH: &str = "198.18.0.2:22";
/// As sshd would say it to who comes from the client.
const SESSION: &str = "198.18.0.1 50000 198.18.0.2 22";
const SHUT: &str = "default = \"drop\"\n";
const SHUT_FOR_ALL: &str =
    "default = \"drop\"\n[management]\nsession = false\n[sets.unused]\nprefixes = \"192.0.2.1\"\n";

fn bed(tag: &str) -> Option<ShieldBed> {
    ShieldBed::host(env!("CARGO_BIN_EXE_evenkeel"), tag)
}

/// As somebody types it in an ssh session.
fn reload(bed: &ShieldBed, more: &[&str]) -> Output {
    let mut command = bed.command(&["reload", &bed.interface]);
    command.args(more).env("SSH_CONNECTION", SESSION).output().expect("the program starts")
}

#[test]
fn the_allow_list_goes_by_the_machines_addresses() {
    let Some(mut bed) = bed("ekrld") else { return };
    // As at the start of a machine: addresses come later.
    bed.ip(&format!("address del 198.18.0.2/24 dev {}", bed.interface));
    bed.protect("default = \"drop\"\n[management]\nfrom = [\"198.18.0.1\"]\n", &[]);
    assert!(!bed.log().contains("new addresses"), "{}", bed.log());
    bed.ip(&format!("address add 198.18.0.2/24 dev {}", bed.interface));
    bed.wait("the allow-list is made anew", || bed.log().contains("new addresses"));
    let to: SocketAddr = SSH.parse().expect("an address");
    let _listener = bed.host.run(|| TcpListener::bind(to).expect("a listener"));
    let gets_in = || bed.client.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(3)).is_ok());
    assert!(gets_in(), "{}", bed.log());
    assert_eq!(bed.come_through(10, 5), 0, "nothing else");
}

#[test]
fn who_asks_for_a_reload_is_let_in_and_not_cut_off() {
    let Some(mut bed) = bed("ekrla") else { return };
    let to: SocketAddr = SSH.parse().expect("an address");
    let _listener = bed.host.run(|| TcpListener::bind(to).expect("a listener"));
    let gets_in =
        |bed: &ShieldBed| bed.client.run(|| TcpStream::connect_timeout(&to, Duration::from_millis(500)).is_ok());
    let rules = bed.rules(DROP_9);
    // By nobody's session, as systemd starts it.
    bed.run(&rules, &[]);

    bed.rules(SHUT_FOR_ALL);
    let refused = reload(&bed, &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    assert!(
        printed(&refused).contains("198.18.0.1 port 50000") && printed(&refused).contains("--force"),
        "{}",
        printed(&refused)
    );
    assert!(bed.status()["reload_error"].as_str().is_some_and(|why| why.contains("198.18.0.1")), "{}", bed.status());
    assert!(gets_in(&bed) && bed.come_through(10, 5) == 5, "the old rules hold");

    bed.rules(SHUT);
    let reloaded = reload(&bed, &[]);
    assert!(reloaded.status.success(), "{}", printed(&reloaded));
    assert!(gets_in(&bed) && bed.come_through(10, 5) == 0, "the allow-list has who asked");
    bed.shield(&["reload", &bed.interface]);
    assert!(gets_in(&bed), "also when another one asks");

    bed.rules(SHUT_FOR_ALL);
    let forced = reload(&bed, &["--force"]);
    assert!(forced.status.success() && !gets_in(&bed), "{}", printed(&forced));
    assert!(String::from_utf8_lossy(&forced.stderr).contains("`unused`"), "{}", printed(&forced));
    bed.kill();
}

#[test]
fn a_reload_begins_a_new_file_of_events_when_the_old_one_was_renamed() {
    let Some(mut bed) = bed("ekrlb") else { return };
    let [events, old, metrics] = ["events", "old", "metrics"].map(|name| bed.path(name));
    let detection = format!("detection.events = {events:?}\ndetection.metrics.file = {metrics:?}");
    bed.protect(&format!("protect = \"198.18.0.2\"\n{detection}\n{DROP_9}"), &[]);
    fs::rename(&events, &old).expect("rotated");
    let reloaded = bed.shield(&["reload", &bed.interface]);
    assert!(reloaded.status.success() && events.exists() && old.exists(), "{}", printed(&reloaded));
    bed.wait("there are metrics", || metrics.exists());
    bed.stop();
    assert!(!metrics.exists(), "what they say is over");
}

#[test]
fn rules_that_have_expired_are_not_reported_as_holding() {
    let Some(mut bed) = bed("ekrlc") else { return };
    let rules =
        bed.rules(&format!("{DROP_9}expires = 2026-01-01T00:00:00Z\n[[rule]]\nname = \"b\"\naction = \"pass\"\n"));
    bed.run(&rules, &[]);
    // One rule holds, one has expired, one is of the management allow-list.
    let reloaded = bed.shield(&["reload", &bed.interface, "--json"]);
    let document = json(&reloaded);
    assert_eq!(document["schema"], "evenkeel.shield.reload/1");
    assert_eq!((&document["done"], &document["rules"], &document["expired"]), (&true.into(), &1.into(), &1.into()));
    assert_eq!(document["built_in"], 1, "{document}");
    let list = json(&bed.shield(&["list", "--json"]));
    let one = &list["shields"][0];
    assert_eq!(one["interface"], bed.interface.as_str(), "{list}");
    assert_eq!((&one["rules"], &one["failed"]), (&1.into(), &false.into()), "{list}");
    let status = bed.status();
    let expired = |name: &str| {
        let rule = status["rules"].as_array().expect("rules").iter().find(|rule| rule["name"] == name);
        rule.expect("the rule")["expired"].as_bool()
    };
    assert_eq!((expired("nine"), expired("b")), (Some(true), Some(false)), "{status}");
    let shown = printed(&bed.shield(&["status", &bed.interface, "--interval", "0.1"]));
    assert!(shown.contains("expired: drop"), "{shown}");
    bed.kill();
}
