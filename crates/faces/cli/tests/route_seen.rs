//! What is seen of `evenkeel route run`: status, events, metrics, its unit.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
};

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{RouteBed, ended, json, refused, wait, words};

mod places;

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// Lines of JSON in a file.
fn documents(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_go_to_the_log_the_hook_and_the_status_and_metrics_to_a_file_and_a_port() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtseen") else { return };
    let [log, heard, metrics, hook] = ["events", "heard", "metrics", "hook"].map(|name| world.bed.path(name));
    let script =
        format!("#!/bin/sh\necho \"$EVENKEEL_EVENT $EVENKEEL_MODE $EVENKEEL_OBSTACLE\" >>{}\n", heard.display());
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o700)).unwrap();
    let [log_name, metrics_name, hook_name] = [&log, &metrics, &hook].map(|path| path.display().to_string());
    let outputs =
        ["--events", &log_name, "--hook", &hook_name, "--metrics-file", &metrics_name, "--metrics-port", "9464"];
    let running = world.run(&[&["--trial", "0"], &outputs[..]].concat());
    wait("a packet crosses", || world.crosses());
    let router = world.router();
    router.nft("table ip t { chain f { type filter hook forward priority 0; counter drop; }; }");
    wait("the kernel forwards again", || world.is_in("standard"));
    router.nft("delete table ip t");
    wait("the fast path comes back", || world.is_in("routed"));

    let expected = [
        ("mode", "routed"),
        ("obstacle", "netfilter"),
        ("mode", "standard"),
        ("cleared", "netfilter"),
        ("mode", "routed"),
    ];
    let of = |events: &[Value]| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events.iter().map(|e| (text(&e["event"]), text(&e["mode"]) + &text(&e["code"]))).collect()
    };
    let expected = expected.map(|(event, what)| (event.to_owned(), what.to_owned()));
    let logged = documents(&log);
    assert_eq!(of(&logged), expected);
    assert!(logged.iter().all(|event| event["schema"] == "evenkeel.route.event/1"));
    assert_eq!(of(world.status()["events"].as_array().unwrap()), expected);
    wait("the hook has run for each", || {
        fs::read_to_string(&heard).unwrap_or_default().lines().count() == expected.len()
    });
    let heard = fs::read_to_string(&heard).unwrap();
    assert_eq!(heard.lines().nth(1), Some("obstacle  netfilter"), "{heard}");

    let forwarded = world.status()["ports"][0]["totals"]["forwarded"].as_u64().unwrap();
    let line = format!("evenkeel_route_forwarded_frames_total{{interface=\"{}\"}} {forwarded}", world.ports()[0]);
    let has = |text: &str| text.lines().any(|other| other == line);
    wait("the file has it", || has(&fs::read_to_string(&metrics).unwrap_or_default()));
    let answer = router.run(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9464").unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(has(&answer.replace('\r', "")), "{answer}");
    assert!(running.stop(Signal::SIGTERM).success());
    assert!(!metrics.exists(), "nobody who reads it could tell that it is over");
}

#[test]
fn a_port_that_was_taken_out_of_its_place_is_put_back_counted_and_reported() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtback") else { return };
    let metrics = world.bed.path("metrics");
    let running = world.run(&["--trial", "0", "--metrics-file", &metrics.display().to_string()]);
    wait("a packet crosses", || world.crosses());
    assert_eq!(world.status()["ports"][0]["reattached"], 0);
    let port = &world.ra;
    let entry = port.run(|| bpf::link::attached(port.interface()).unwrap()).expect("a chain").id;
    places::empty(entry, "ek_route");
    wait("it is put back", || world.status()["ports"][0]["reattached"] == 1);
    assert_eq!(world.status()["ports"][1]["reattached"], 0);
    let events = world.status()["events"].clone();
    let event = events.as_array().unwrap().iter().find(|event| event["event"] == "reattached").cloned();
    let event = event.unwrap_or_else(|| panic!("{events}"))["what"].to_string();
    assert!(event.contains(port.interface()) && event.contains("put back"), "{event}");
    let line = format!("evenkeel_route_reattached_total{{interface=\"{}\"}} 1", port.interface());
    wait("the file has it", || fs::read_to_string(&metrics).is_ok_and(|text| text.lines().any(|one| one == line)));
    let before = world.forwarded();
    wait("it forwards again", || world.crosses() && world.forwarded() > before);
    assert!(running.stop(Signal::SIGTERM).success());
}

#[test]
fn what_cannot_be_opened_is_reported_before_a_port_is_touched() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtopen") else { return };
    let [one, two] = world.ports();
    let folder = world.bed.path("none").join("file").display().to_string();
    for (more, code) in [(["--events", &folder], 3), (["--metrics-file", "/dev/null"], 2)] {
        let output = world.ask(&[&["run", one, two], &more[..]].concat());
        refused(&output, code, &[more[1]]);
    }
    assert!(!world.router().output("ip -j link show").contains("\"xdp\""));
}

#[test]
fn rates_of_an_interval_are_in_each_document_of_a_run() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtrates") else { return };
    let [one, two] = world.ports();
    let log = world.bed.path("documents");
    let mut command = world.command(&["run", one, two, "--trial", "0", "--json", "--interval", "200ms"]);
    command.stdout(fs::File::create(&log).unwrap());
    let running = testbed::Running::start(&mut command);
    wait("the router answers", || world.ask(&["status"]).status.success());
    wait("an interval with a forwarded packet", || {
        let rates = |document: &Value| document["rates"]["ports"][0]["forwarded_pps"].as_f64();
        world.crosses() && documents_so_far(&log).iter().filter_map(rates).any(|pps| pps > 0.0)
    });
    assert!(documents_so_far(&log).iter().any(|document| document["schema"] == "evenkeel.route.event/1"));
    let status = world.status();
    let received = status["ports"][0]["counters"]["rx_packets"].as_u64().unwrap();
    assert!(received >= status["ports"][0]["totals"]["forwarded"].as_u64().unwrap(), "{status}");
    assert_eq!(status["rates"], Value::Null, "no interval was measured");
    assert!(running.stop(Signal::SIGINT).success());
}

/// Without a last line that is half written.
fn documents_so_far(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn a_unit_has_the_options_and_no_relative_path() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtunit") else { return };
    let [one, two] = world.ports();
    let unit = |more: &[&str]| world.ask(&[&["unit", one, two], more].concat());
    let plain = ended(&unit(&[]), 0);
    let start = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a start").to_owned();
        line.split_once(" route run ").expect("the verb").1.to_owned()
    };
    assert_eq!(start(&plain), format!("{one} {two} --quiet"));
    for line in ["CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_NET_ADMIN", "Type=notify"] {
        assert!(plain.lines().any(|other| other == line), "{line}: {plain}");
    }
    assert!(!plain.contains("ReadWritePaths"), "{plain}");
    let line = "--mode shadow --trial 500ms --xdp-mode generic --remember 128 --events /var/log/ek/route.jsonl \
                --hook /etc/evenkeel/hook --hook-timeout 2s --metrics-port 9464 --no-auto-return";
    let full = ended(&unit(&words(line)), 0);
    assert_eq!(start(&full), format!("{one} {two} --quiet {}", line.replace("500ms", "0.5s")));
    assert!(full.lines().any(|line| line == "ReadWritePaths=-/var/log/ek"), "{full}");
    refused(&unit(&["--events", "here.log"]), 2, &["here.log"]);
    for verb in ["unit", "run"] {
        let generic = [verb, one, two, "--xdp-mode", "generic", "--cpus", "0"];
        refused(&world.ask(&generic), 2, &["native mode only"]);
    }
    refused(&world.ask(&["unit", one, "nope0"]), 3, &["nope0"]);
    // What the unit starts is a command line of this version.
    let arguments: Vec<String> = start(&full).split(' ').map(str::to_owned).collect();
    let mut command = world.command(&["run"]);
    command.args(&arguments).arg("--help");
    ended(&command.output().unwrap(), 0);
    assert_eq!(json(&world.ask(&["check", one, two, "--json"]))["ports"][0], *one);
}
