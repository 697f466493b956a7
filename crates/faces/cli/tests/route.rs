//! `evenkeel route` as an operator uses it: two hosts, a router, and what gets in the way.

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{RouteBed, Running, json, printed, refused, wait};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

#[test]
fn the_fast_path_forwards_gives_way_to_a_rule_and_comes_back() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtcli") else { return };
    assert_eq!(world.ask(&["status"]).status.code(), Some(1), "no router is the answer no");
    assert_eq!(world.ask(&["check", "nope", world.ports()[0]]).status.code(), Some(3));
    let names = world.ports();
    let check = world.ask(&["check", names[0], names[1], "--json"]);
    assert_eq!((check.status.code(), json(&check)["obstacles"].clone()), (Some(0), Value::Array(Vec::new())));
    assert!(world.crosses());

    refused(&world.ask(&[&["check"][..], &[names[0]; 65]].concat()), 2, &["65 ports", "64"]);
    world.router().output("ip link add ekbr0 type bridge");
    let bridge = world.ask(&["check", names[0], "ekbr0", "--json"]);
    let codes = json(&bridge)["obstacles"].as_array().unwrap().iter().map(|o| o["code"].clone()).collect::<Vec<_>>();
    assert!(codes.contains(&"driver".into()), "{codes:?}");
    world.router().output("ip link del ekbr0");

    let running = world.run(&["--trial", "2s"]);
    let second = world.ask(&["run", names[0], names[1]]);
    assert_eq!(second.status.code(), Some(3), "one router for a network namespace");
    assert!(printed(&second).contains("route stop"), "{}", printed(&second));
    assert_eq!(world.ask(&["check", names[0]]).status.code(), Some(2), "one way is no router");
    wait("packets cross in shadow", || world.crosses());
    wait("the trial is over", || world.is_in("routed"));
    assert_eq!(world.status()["shadow"]["output"], 0);
    let before = world.forwarded();
    assert!(world.crosses());
    assert_eq!(world.forwarded() - before, 2, "there and back");

    let router = world.router();
    router.nft("table ip t { chain f { type filter hook forward priority 0; counter name seen; }; counter seen {}; }");
    wait("the kernel forwards again", || world.is_in("standard"));
    let status = world.status();
    assert_eq!((&status["requested"], &status["obstacles"][0]["code"]), (&"routed".into(), &"netfilter".into()));
    assert!(world.crosses());
    let refused = world.ask(&["mode", "routed", "--json"]);
    assert_eq!((refused.status.code(), json(&refused)["done"].clone()), (Some(1), Value::Bool(false)));
    router.nft("delete table ip t");
    wait("the fast path comes back", || world.is_in("routed"));

    for mode in ["standard", "shadow", "standard"] {
        assert!(world.ask(&["mode", mode]).status.success());
        assert!(world.is_in(mode) && world.crosses());
    }
    assert_eq!(world.ask(&["stop"]).status.code(), Some(0));
    // It is gone when `stop` comes back: another one can begin.
    let next = world.run(&["--trial", "0"]);
    assert!(next.stop(Signal::SIGTERM).success());
    assert!(running.end().success());
    assert!(world.crosses());
}

#[test]
fn without_a_router_each_question_says_so_on_stderr_alone() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtnone") else { return };
    for question in [&["status"][..], &["stop"], &["reload"], &["cpus", "none"], &["mode", "standard"]] {
        let answer = world.ask(&[question, &["--json"]].concat());
        refused(&answer, 1, &["evenkeel route run"]);
        assert!(answer.stdout.is_empty(), "{question:?}: {}", printed(&answer));
    }
    let running = world.run(&["--trial", "0"]);
    let answer = world.ask(&["cpus", "4000", "--json"]);
    assert_eq!((answer.status.code(), json(&answer)["done"].clone()), (Some(1), false.into()));
    assert!(running.stop(Signal::SIGTERM).success());
}

#[test]
fn ports_out_of_which_nothing_can_be_sent_forward_nothing() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtmute") else { return };
    let names = world.ports();
    let check = || world.ask(&["check", names[0], names[1], "--json"]);
    assert_eq!(check().status.code(), Some(0));
    let running = world.run(&["--trial", "0"]);
    let reported = |sends: bool| {
        world.status()["events"].as_array().is_some_and(|events| {
            events.iter().any(|e| (&e["event"], &e["can_transmit"]) == (&"transmit".into(), &sends.into()))
        })
    };
    world.a.feature("rx-gro", false);
    assert_eq!(check().status.code(), Some(0), "one way is left");
    wait("the router tells that a port sends no more", || reported(false));
    world.a.feature("rx-gro", true);
    wait("and that it sends again", || reported(true));
    world.a.feature("rx-gro", false);
    assert!(running.stop(Signal::SIGTERM).success());
    world.b.feature("rx-gro", false);
    let check = check();
    assert_eq!((check.status.code(), json(&check)["cannot_transmit"].as_array().map(Vec::len)), (Some(1), Some(2)));
    assert_eq!(json(&check)["obstacles"], Value::Array(Vec::new()));
}

#[test]
fn a_router_that_hangs_is_named_and_ended_by_stop() {
    let Some(world) = RouteBed::new(EVENKEEL, "rthang") else { return };
    let running = world.run(&["--trial", "0"]);
    running.signal(Signal::SIGSTOP);
    let status = world.ask(&["status"]);
    assert_eq!(status.status.code(), Some(3));
    assert!(printed(&status).contains(&format!("process {} does not answer", running.pid())), "{}", printed(&status));
    let stop = world.ask(&["stop", "--json"]);
    assert_eq!((stop.status.code(), json(&stop)["done"].clone()), (Some(0), Value::Bool(true)), "{}", printed(&stop));
    assert!(!running.end().success());
    assert_eq!(world.ask(&["stop"]).status.code(), Some(1), "nothing is left to be stopped");
    assert!(world.crosses());
    assert!(world.run(&["--trial", "0"]).stop(Signal::SIGTERM).success());
}

#[test]
fn a_killed_router_leaves_the_kernel_forwarding_and_nothing_behind() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtkill") else { return };
    let running = world.run(&["--trial", "0"]);
    assert!(world.is_in("routed") && world.crosses());
    running.stop(Signal::SIGKILL);
    wait("the kernel forwards", || world.crosses());
    wait("no program is left", || {
        let shown = world.router().output("ip -j link show");
        !shown.contains("\"xdp\"")
    });
    // Another one begins where the last one was killed, also while that one is still ending.
    let mut running = world.run(&["--trial", "0"]);
    assert!(world.crosses());
    for _ in 0..3 {
        running.signal(Signal::SIGKILL);
        let next = world.run(&["--trial", "0"]);
        running.end();
        running = next;
        assert!(world.crosses());
    }
    assert!(running.stop(Signal::SIGTERM).success());
    assert!(world.crosses());
}

#[test]
fn a_port_that_goes_is_named() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtmove") else { return };
    let running = world.run(&["--trial", "0"]);
    assert!(world.crosses());
    world.b.output(&format!("ip link del {}", world.b.interface()));
    wait("the port is named", || testbed::log(&world.bed.path("log")).contains(world.ports()[1]));
    let stopped = running.stop(Signal::SIGTERM);
    assert!(stopped.success(), "{}", printed(&world.ask(&["status"])));
}

#[test]
fn a_port_that_is_renamed_goes_on_and_one_that_is_moved_away_is_named() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtname") else { return };
    let running = world.run(&["--trial", "0"]);
    assert!(world.crosses());
    let happened = |word: &str| {
        let events = world.status()["events"].as_array().unwrap().clone();
        events.iter().any(|moment| moment["what"].get(word).is_some() || moment["event"] == word)
    };
    world.ra.link_set("name ekrenamed");
    wait("the new name is told", || happened("renamed"));
    let before = world.forwarded();
    wait("the fast path goes on", || world.crosses() && world.forwarded() > before + 1);
    assert_eq!(world.status()["ports"][0]["interface"], "ekrenamed");
    let router = world.router();
    router.output(&format!("ip link set ekrenamed netns {}", world.b.name()));
    wait("it is named", || happened("port-ended"));
    assert_eq!(world.status()["mode"], "routed");
    // Back in place it is the same interface, with another name, and no address.
    world.b.output(&format!("ip link set ekrenamed netns {}", router.name()));
    router.output("ip addr add 198.18.1.1/24 dev ekrenamed");
    router.output("ip link set ekrenamed up");
    wait("the kernel or the fast path forwards", || world.crosses());
    assert!(running.stop(Signal::SIGTERM).success());
}

#[test]
fn other_cpus_forward_and_spread_leaves_their_port_to_them() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtcpu") else { return };
    let port = world.ports()[0];
    let names = [port, world.ports()[1]];
    // With the /sys of the namespace, as whoever works in one has it.
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("ip");
        let router = world.router().name();
        command.args(["netns", "exec", router, EVENKEEL]).args(arguments);
        command
    };
    let planned = || {
        let plan = inside(&["spread", "plan", port, "--json"]).output();
        let plan = json(&plan.unwrap());
        let rows = plan["rows"].as_array().unwrap().clone();
        let row = rows.into_iter().find(|row| row["what"] == "rx 0 RPS").expect("a row of RPS");
        (row["old"].as_str().unwrap().to_owned(), row["new"].as_str().unwrap().to_owned())
    };
    let (none, steered) = planned();
    assert_ne!(none, steered, "without a router RPS is planned for a single queue");
    assert_eq!(world.ask(&["cpus", "0"]).status.code(), Some(1), "no router is the answer no");
    let refused = world.ask(&["run", names[0], names[1], "--cpus", "0,4000"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(printed(&refused).contains("CPU 4000"), "{}", printed(&refused));
    assert!(!world.router().output("ip -j link show").contains("\"xdp\""));

    let rps = format!("/sys/class/net/{port}/queues/rx-0/rps_cpus");
    let steer = |mask: &str| world.router().run(|| std::fs::write(&rps, mask).unwrap());
    steer("1");
    let run = ["route", "run", names[0], names[1], "--quiet", "--trial", "0", "--cpus", "0-1"];
    let running = world.start(&mut inside(&run));
    let status = world.status();
    assert_eq!((&status["cpus"], &status["notes"][0]["code"]), (&"0-1".into(), &"rps".into()));
    assert!(testbed::log(&world.bed.path("log")).contains(port), "RPS on the port is told of at the start");
    assert_eq!(planned().1, none, "RPS is taken away from a port whose flows the router deals");
    steer("0");
    assert_eq!(world.status()["notes"].as_array().map(Vec::len), Some(0));
    assert_eq!(planned(), (none.clone(), none.clone()));

    let taken = || {
        let status = world.status();
        let ports = status["ports"].as_array().unwrap().clone();
        ports.iter().map(|port| port["totals"]["dequeued"].as_u64().unwrap()).sum::<u64>()
    };
    for (cpus, frames) in [("1", 2), ("0", 2), ("none", 0)] {
        let done = world.ask(&["cpus", cpus, "--json"]);
        assert_eq!((done.status.code(), &json(&done)["done"]), (Some(0), &Value::Bool(true)));
        wait("packets cross", || world.crosses());
        let before = taken();
        assert!(world.crosses());
        assert_eq!(taken() - before, frames, "there and back");
    }
    assert_eq!(planned().1, steered, "the router leaves the port to RPS");
    let refused = world.ask(&["cpus", "4000", "--json"]);
    assert_eq!((refused.status.code(), &json(&refused)["done"]), (Some(1), &Value::Bool(false)));
    assert_eq!(world.ask(&["cpus", ""]).status.code(), Some(2));

    assert!(world.ask(&["cpus", "1"]).status.success());
    wait("spread hears of it", || planned().1 == none);
    running.stop(Signal::SIGKILL);
    wait("the kernel forwards", || world.crosses());
    wait("no program is left", || !world.router().output("ip -j link show").contains("\"xdp\""));
    assert_eq!(planned().1, steered, "what a killed router said is not believed");
}

#[test]
fn marked_connections_are_forwarded_past_rules_and_the_journal_takes_the_rules_back() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtstate") else { return };
    let router = world.router();
    router.nft(
        "table ip t { chain f { type filter hook forward priority 0; policy drop; ct state established accept; \
         ip saddr 198.18.1.2 counter accept; }; chain p { type nat hook postrouting priority srcnat; \
         ip saddr 198.18.1.0/24 masquerade; }; }",
    );
    let state = world.bed.path("state").display().to_string();
    let names = world.ports();
    let check = || world.ask(&["check", "--mode", "stateful", names[0], names[1], "--json"]);
    let codes = |of: &Value| of.as_array().unwrap().iter().map(|o| o["code"].clone()).collect::<Vec<_>>();
    let before = check();
    assert_eq!((before.status.code(), codes(&json(&before)["obstacles"])), (Some(1), vec!["consent".into()]));
    // The hosts are in other namespaces, where nobody can ask them whether they finish checksums.
    assert_eq!(
        codes(&json(&before)["notes"]),
        ["tcp-window", "new-rules", "passed-by", "partial-checksum", "partial-checksum"]
    );
    let refused = world.ask(&["run", "--mode", "stateful", names[0], names[1]]);
    assert_eq!(refused.status.code(), Some(3), "{}", printed(&refused));
    let listed = json(&world.ask(&["rules", "--json"]));
    assert_eq!(listed["lines"].as_array().map(Vec::len), Some(2));
    assert_eq!(listed["session"], Value::Null, "nothing is changed by printing");

    let applied = world.ask(&["rules", "--apply", "--state", &state, "--json"]);
    assert_eq!(
        (applied.status.code(), json(&applied)["written"].clone()),
        (Some(0), 2.into()),
        "{}",
        printed(&applied)
    );
    assert_eq!((check().status.code(), codes(&json(&check())["notes"]).len()), (Some(0), 4), "no word of windows");
    let again = world.ask(&["rules", "--apply", "--state", &state, "--json"]);
    assert_eq!(json(&again)["session"], Value::Null, "it is so already");
    let running = world.run(&["--mode", "stateful", "--trial", "0"]);
    assert!(world.is_in("stateful"));
    let talk = "import socket,sys\nl=socket.create_server(('198.18.2.2',4000));print(flush=True);c,a=l.accept()\nwhile (d:=c.recv(99)): c.sendall(d)";
    let mut server = Running::piped(world.b.command("python3").args(["-c", talk]));
    let client = "import socket,time\nfor i in range(99):\n  try: s=socket.create_connection(('198.18.2.2',4000)); break\n  except OSError: time.sleep(0.1)\nfor i in range(50):\n  s.sendall(b'x'*99); n=0\n  while n<99: n+=len(s.recv(99))";
    let done = world.a.command("python3").args(["-c", client]).output().unwrap();
    assert!(done.status.success(), "{}", printed(&done));
    assert!(server.child().wait().unwrap().success());
    let translated = |status: &Value| -> u64 {
        let ports = status["ports"].as_array().unwrap().iter();
        ports.map(|port| port["totals"]["translated"].as_u64().unwrap()).sum()
    };
    assert!(translated(&world.status()) >= 100, "{}", world.status());

    let mut undo = router.command(EVENKEEL);
    assert!(undo.args(["undo", "--state", &state]).output().unwrap().status.success());
    wait("the kernel forwards", || world.is_in("standard"));
    assert_eq!(world.status()["obstacles"][0]["code"], "consent");
    assert_eq!(router.read("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal").trim(), "0");
    assert!(running.stop(Signal::SIGTERM).success());
}
