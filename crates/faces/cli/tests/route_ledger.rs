//! The books of a router whose fast path is on: what it forwarded and what it lost have places of their own, and `top` shows it.

use std::net::UdpSocket;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{RouteBed, Running, json, log, wait, wait_reporting};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// Datagrams that are sent.
const SENT_COUNT: u64 = 1_000;
/// What counts them behind the router, and ends them.
const COUNTS: &str = "table ip t { counter got {}; chain f { type filter hook prerouting priority 0; udp dport 9 counter name got drop; }; }";
const FORWARDED: &str = "forwarded by evenkeel's fast path";

/// Has `evenkeel ledger` count in the router while `work` is done.
fn ledger(world: &RouteBed, work: impl FnOnce()) -> Value {
    let errors = world.bed.path("ledger");
    let mut command = world.evenkeel(&["ledger", "--once", "--json", "-i", "1h"]);
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::fs::File::create(&errors).unwrap());
    let ledger = Running::start(&mut command);
    wait_reporting("it counts", || log(&errors).contains("counting"), || log(&errors));
    work();
    // Ctrl-C ends the interval early.
    ledger.signal(Signal::SIGINT);
    json(&ledger.output())
}

/// Sends from `a` to a port of `b` where a rule counts.
fn send(world: &RouteBed, frames: u64) {
    world.a.run(|| {
        let socket = UdpSocket::bind("198.18.1.2:0").unwrap();
        for _ in 0..frames {
            socket.send_to(&[0; 100], "198.18.2.2:9").unwrap();
        }
    });
}

/// What arrived there.
fn got(world: &RouteBed) -> u64 {
    let counters: Value = serde_json::from_str(&world.b.output("nft -j list counters")).unwrap();
    let all = counters["nftables"].as_array().unwrap().iter();
    all.filter_map(|item| item["counter"]["packets"].as_u64()).next().expect("a counter")
}

/// The packets of a row of one side.
fn row(report: &Value, side: &str, list: &str, what: &str) -> u64 {
    let rows = report[side][list].as_array().unwrap().iter().filter(|row| row["what"].as_str().unwrap().contains(what));
    rows.map(|row| row["packets"].as_u64().unwrap()).sum()
}

/// The machine had so many losses of others that the ledger traced only some of all, and says so: it cannot be true to the last packet.
fn is_sampled(report: &Value) -> bool {
    report["trace"]["sampling"].as_u64().expect("how it was traced") > 1 || report["trace"]["precision"] != 0.0
}

/// The packets by which a sampled trace may be wrong: none of a whole one.
fn error_of(report: &Value) -> u64 {
    (report["trace"]["precision"].as_f64().expect("a share") * SENT_COUNT as f64).ceil() as u64
}

/// `counted` is `expected` within the error of the trace.
fn is_about(counted: &Value, expected: u64, report: &Value) {
    let apart = counted.as_u64().expect("a count").abs_diff(expected);
    assert!(apart <= error_of(report), "{counted}, not {expected}: {report}");
}

/// Both directions sum up to the last packet, within the error of the trace.
fn closes(report: &Value) {
    let all = |side: &str, list: &str| row(report, side, list, "");
    for side in ["receive", "transmit"] {
        let lost = report[side]["lost"].as_u64().unwrap();
        let known = all(side, "delivered") + all(side, "waiting") + lost;
        let unexplained = report[side]["unexplained"].as_i64().unwrap();
        assert_eq!(all(side, "offered").cast_signed(), known.cast_signed() + unexplained, "{side}: {report}");
        assert!(unexplained.unsigned_abs() <= error_of(report), "{side}: {report}");
    }
    let stations: u64 = report["stations"].as_array().unwrap().iter().map(|s| s["lost"].as_u64().unwrap()).sum();
    assert_eq!(report["lost"].as_u64(), Some(stations), "{report}");
}

#[test]
fn what_the_fast_path_forwards_is_forwarded_in_native_and_in_generic_mode() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtbooks") else { return };
    world.b.nft(COUNTS);
    let rules = world.bed.file("rules.toml", "[[rule]]\nname = \"none\"\naction = \"drop\"\nsource = \"192.0.2.1\"\n");
    for (mode, more) in [
        ("native", &[][..]),
        ("generic", &[]),
        ("native", &["--rules", &rules]),
        ("native", &["--rules", &rules, "--cpus", "0"]),
    ] {
        let running = world.run(&[&["--trial", "0", "--xdp-mode", mode], more].concat());
        wait("the neighbours are known", || world.crosses() && world.is_in("routed"));
        let (before, arrived) = (world.forwarded(), got(&world));
        let report = ledger(&world, || send(&world, SENT_COUNT));
        let forwarded = world.forwarded() - before;
        assert!(forwarded >= SENT_COUNT, "{mode}: {forwarded}");
        assert_eq!(got(&world) - arrived, SENT_COUNT, "{mode}");
        closes(&report);
        assert_eq!(row(&report, "receive", "delivered", FORWARDED), forwarded, "{mode}: {report}");
        assert_eq!(row(&report, "transmit", "offered", FORWARDED), forwarded, "{mode}: {report}");
        assert_eq!(report["lost"], 0, "{mode}: {report}");
        assert!(running.stop(Signal::SIGTERM).success());
    }
}

#[test]
fn what_the_way_out_does_not_take_is_lost_at_a_place_of_its_own() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtlost") else { return };
    world.b.nft(COUNTS);
    let running = world.run(&["--trial", "0"]);
    // The router finds out within a second; then what leaves there goes up to the kernel, and is not lost.
    for attempt in 1.. {
        wait("the fast path forwards", || world.crosses() && world.status()["ports"][1]["can_transmit"] == true);
        let arrived = got(&world);
        let report = ledger(&world, || {
            world.b.feature("rx-gro", false);
            send(&world, SENT_COUNT);
            world.b.feature("rx-gro", true);
        });
        if is_sampled(&report) && attempt < 20 {
            continue;
        }
        closes(&report);
        let lost = SENT_COUNT - (got(&world) - arrived);
        is_about(&report["lost"], lost, &report);
        if lost == 0 && attempt < 5 {
            continue;
        }
        let stations = report["stations"].as_array().unwrap();
        let losses = stations.iter().find(|station| station["name"] == "xdp").expect("a station")["losses"].clone();
        let places =
            losses.as_array().unwrap().iter().filter(|loss| loss["place"].as_str().unwrap().contains("fast path"));
        let there: u64 = places.map(|loss| loss["packets"].as_u64().unwrap()).sum();
        assert!(lost > 0, "{report}");
        is_about(&there.into(), lost, &report);
        break;
    }
    assert!(running.stop(Signal::SIGTERM).success());
}

#[test]
fn what_finds_no_room_in_the_queue_to_a_cpu_is_lost_at_a_place_of_its_own() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtqueue") else { return };
    world.b.nft(COUNTS);
    let metrics = world.bed.path("metrics");
    let file = metrics.display().to_string();
    let running = world.run(&["--trial", "0", "--cpus", "0", "--cpu-queue", "8", "--metrics-file", &file]);
    // In mode standard all that was handed on goes up to the kernel behind the queue.
    for mode in ["routed", "standard"] {
        assert!(world.ask(&["mode", mode]).status.success());
        wait("the neighbours are known", || world.crosses() && world.is_in(mode));
        for attempt in 1.. {
            let (before, arrived) = (world.forwarded(), got(&world));
            let report = ledger(&world, || send(&world, SENT_COUNT));
            if is_sampled(&report) && attempt < 20 {
                continue;
            }
            closes(&report);
            let (lost, forwarded) = (SENT_COUNT - (got(&world) - arrived), world.forwarded() - before);
            is_about(&report["lost"], lost, &report);
            assert_eq!(row(&report, "receive", "delivered", FORWARDED), forwarded, "{mode}: {report}");
            if lost == 0 && attempt < 20 {
                continue;
            }
            let stations = report["stations"].as_array().unwrap();
            let losses = &stations.iter().find(|station| station["name"] == "xdp").expect("a station")["losses"];
            let there = losses.as_array().unwrap().iter().filter(|loss| {
                let place = loss["place"].as_str().unwrap();
                place.starts_with(world.ports()[0]) && place.contains("fast path") && place.contains("CPU 0")
            });
            let there: u64 = there.map(|loss| loss["packets"].as_u64().unwrap()).sum();
            is_about(&there.into(), lost, &report);
            assert!(lost > 0, "{mode}");
            break;
        }
    }
    let port = &world.status()["ports"][0];
    let line = format!(
        "evenkeel_route_lost_frames_total{{interface=\"{}\",reason=\"queue_full\"}} {}",
        world.ports()[0],
        port["lost"]["queue_full"]
    );
    let text = || std::fs::read_to_string(&metrics).unwrap_or_default();
    wait_reporting("the metrics have it", || text().lines().any(|other| other == line), text);
    assert!(running.stop(Signal::SIGTERM).success());
}

#[test]
fn top_shows_mode_and_rates_where_the_fast_path_runs() {
    let Some(world) = RouteBed::new(EVENKEEL, "rttop") else { return };
    let top = || {
        let mut command = world.evenkeel(&["top", "--once", "--json", "--interval", "500ms"]);
        let document = json(&command.output().unwrap());
        let interfaces = document["interfaces"].as_array().unwrap().clone();
        let name = world.ports()[0];
        interfaces.into_iter().find(|i| i["name"] == name).expect("the port")["route"].clone()
    };
    assert_eq!(top(), Value::Null);
    let running = world.run(&["--trial", "0"]);
    wait("the neighbours are known", || world.crosses());
    let route = std::thread::scope(|scope| {
        let shown = scope.spawn(top);
        while !shown.is_finished() {
            send(&world, 10);
        }
        shown.join().unwrap()
    });
    assert_eq!(route["mode"], "routed");
    assert!(route["forwarded_pps"].as_f64().unwrap() > 0.0, "{route}");
    assert!(world.ask(&["mode", "standard"]).status.success());
    assert_eq!(top()["mode"], "standard");
    assert!(running.stop(Signal::SIGTERM).success());
}
