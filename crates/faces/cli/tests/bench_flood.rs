//! `evenkeel bench flood` in its lab: clients finish beside a small flood, and all of it is accounted for. No timing is asserted.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;
use testbed::{json, printed, privileged, skip, text, words};

fn evenkeel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(arguments).output().expect("the program starts")
}

fn may_run() -> Option<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        skip("bench flood needs two CPUs");
        return None;
    }
    privileged()
}

#[test]
fn clients_and_flood_share_a_link_and_are_accounted_for() {
    let Some(()) = may_run() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (saved, page) = (path("run.json"), path("page.html"));
    let output = evenkeel(&words(&format!(
        "bench flood --modes plain,shield --rates 0,20k --connects 50 --per-second 100 --timeout 20000ms --json \
         --save {saved} --html {page}"
    )));
    let printed = text(&output.stderr);
    // How long connects take on this machine decides between the two.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{printed}");
    let run = json(&output);
    assert_eq!(run["schema"], "evenkeel.bench.flood/1");
    let modes = run["modes"].as_array().expect("modes");
    let keys: Vec<&str> = modes.iter().filter_map(|m| m["key"].as_str()).collect();
    assert_eq!(keys, ["plain", "shield"]);
    for mode in modes {
        let key = mode["key"].as_str().expect("a key");
        let [quiet, flood] = mode["points"].as_array().expect("points").as_slice() else {
            panic!("two points: {mode}")
        };
        let number = |point: &Value, name: &str| point[name].as_i64().unwrap_or_else(|| panic!("{name}: {point}"));
        assert_eq!((number(quiet, "offered"), number(quiet, "answered")), (0, 0), "{key}");
        assert_eq!(quiet["clients"]["completed"], 50, "{key}: {quiet}");
        let (offered, answered) = (number(flood, "offered"), number(flood, "answered"));
        assert!(offered > 1000, "{key}: {flood}");
        // Nobody is left out of the account, but what was under way when it was drawn up.
        assert!(number(flood, "unexplained").abs() * 20 <= offered, "{key}: {flood}");
        assert!(answered > 0 && flood["clients"]["completed"] == 50, "{key}: {flood}");
        if key == "shield" {
            let challenged =
                flood["counters"].as_array().expect("counters").iter().find(|c| c["place"] == "shield, challenged");
            assert!(challenged.is_some_and(|c| number(c, "packets") >= answered), "the shield has answered: {flood}");
        }
    }
    let shown = evenkeel(&["bench", "flood", "--show", &saved]);
    let text = text(&shown.stdout);
    assert!(text.contains("ANSWERED") && text.contains("plain kernel"), "{text}");
    reports_know_the_run(&saved);
    let page = fs::read_to_string(&page).expect("a page");
    assert!(page.contains("What clients notice") && page.contains("id=\"success\""));
}

/// `evenkeel report` shows a run and lays it beside itself.
fn reports_know_the_run(saved: &str) {
    let run_report = |arguments: &[&str]| {
        let output = evenkeel(arguments);
        (output.status.code(), printed(&output))
    };
    let (code, text) = run_report(&["report", "show", saved]);
    assert!(code == Some(0) && text.contains("ANSWERED"), "{text}");
    let (code, text) = run_report(&["report", "show", saved, "--csv", "/dev/null"]);
    assert!(code == Some(2) && text.contains("has no --csv"), "{text}");
    let (code, text) = run_report(&["report", "compare", saved, saved]);
    assert!(code == Some(0) && text.contains("plain kernel") && !text.contains("Note"), "{text}");
    // Two rates of two protections.
    assert_eq!(text.lines().filter(|line| line.ends_with(" same")).count(), 4, "{text}");
    let (code, text) = run_report(&["report", "compare", saved, "/dev/null"]);
    assert!(code == Some(2) && text.contains("nothing in common"), "{text}");
}

/// The points of the protections `modes`, with that one rate: the key, and the point.
fn points(modes: &str, more: &[&str]) -> Vec<(String, Value)> {
    let arguments = ["bench", "flood", "--connects", "30", "--per-second", "100", "--json"];
    let output = evenkeel(&[&arguments[..], &["--modes", modes], more].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", printed(&output));
    let run = json(&output);
    let modes = run["modes"].as_array().expect("modes");
    modes.iter().map(|m| (m["key"].as_str().expect("a key").to_owned(), m["points"][0].clone())).collect()
}

fn packets(point: &Value, list: &str, place: &str) -> u64 {
    let all = point[list].as_array().expect("a list");
    all.iter().find(|c| c["place"] == place).and_then(|c| c["packets"].as_u64()).unwrap_or(0)
}

#[test]
fn every_protection_answers_a_flood_of_ipv6_from_many_networks() {
    let Some(()) = may_run() else { return };
    let all = points("plain,cookies,nft-ingress,synproxy,shield", &["--ipv6", "--rates", "20k", "--timeout", "20s"]);
    assert_eq!(all.len(), 5);
    for (key, point) in all {
        let number = |name: &str| point[name].as_i64().unwrap_or_else(|| panic!("{name}: {point}"));
        assert_eq!(point["clients"]["completed"], 30, "{key}: {point}");
        // Answers go to networks that do not exist, and are told from those to the clients.
        let (offered, answered) = (number("offered"), number("answered"));
        assert!(offered > 1000 && answered * 10 > offered * 9 && answered <= offered, "{key}: {point}");
        assert!(number("unexplained").abs() * 20 <= offered, "{key}: {point}");
    }
}

#[test]
fn a_gateway_in_front_challenges() {
    let Some(()) = may_run() else { return };
    for ip in [&[][..], &["--ipv6"]] {
        let all = points("gateway,gateway-ring", &[ip, &["--rates", "20k", "--timeout", "20s"]].concat());
        assert_eq!(all.len(), 2);
        for (key, point) in all {
            assert_eq!(point["clients"]["completed"], 30, "{key}: {point}");
            assert!(point["offered"].as_u64() > Some(1000), "{key}: {point}");
            let answered = point["answered"].as_u64().expect("a number");
            assert!(answered > 1000 && packets(&point, "counters", "shield, challenged") >= answered, "{key}: {point}");
            // Nothing of the flood reaches the host: what does is the clients', some ten packets each.
            assert!(packets(&point, "counters", "shield, passed") < 30 * 30, "{key}: {point}");
        }
    }
    let (_, rings) = &points("gateway-ring", &["--rates", "500k", "--timeout", "300ms"])[0];
    // Whether its thread keeps up decides what becomes of them; what waits in its rings still is not counted.
    let [offered, answered] = ["offered", "answered"].map(|name| rings[name].as_u64().expect("a number"));
    let losses = rings["losses"].as_array().expect("losses");
    let lost: u64 = losses.iter().filter_map(|loss| loss["packets"].as_u64()).sum();
    assert!(answered > 0 && answered <= offered && 2 * (answered + lost) > offered, "{rings}");
}

#[test]
fn without_cookies_the_listener_drops_and_says_so() {
    let Some(()) = may_run() else { return };
    let output = evenkeel(&words("bench flood --modes none --rates 20k --connects 10 --timeout 200ms --json"));
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let run = json(&output);
    let point = &run["modes"][0]["points"][0];
    assert!(point["answered"].as_u64() < point["offered"].as_u64().map(|n| n / 2), "{point}");
    assert!(point["clients"]["completed"].as_u64() < Some(10), "{point}");
    let losses = point["losses"].as_array().expect("losses");
    assert!(losses.iter().any(|l| l["place"].as_str().is_some_and(|p| p.contains("ListenDrops"))), "{point}");
}

#[test]
fn wrong_options_are_reported() {
    for (arguments, word) in [
        (["--modes", "magic"], "synproxy"),
        (["--rates", "fast"], "no rate"),
        (["--connects", "0"], "--connects"),
        (["--cpus", "0"], "two CPUs"),
        (["--show", "/dev/null"], "cannot show"),
    ] {
        let output = evenkeel(&[["bench", "flood"], arguments].concat());
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {printed}");
        assert!(printed.contains(word), "{arguments:?}: {printed}");
    }
}
