//! `evenkeel route run --rules` as an operator uses it: beside a shield, read again, refused, killed.

use std::{net::UdpSocket, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{RouteBed, Running, bind, json, printed, wait, wait_reporting};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// Drops UDP to that port.
fn drops(port: u16) -> String {
    format!("[[rule]]\nname = \"udp-{port}\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = {port}\n")
}

fn world(tag: &str) -> Option<RouteBed> {
    RouteBed::new(EVENKEEL, tag)
}

fn run(world: &RouteBed, rules: &str) -> Running {
    world.run(&["--trial", "0", "--rules", rules])
}

/// A router whose rules stay.
fn run_pinned(world: &RouteBed, rules: &str) -> Running {
    world.run(&["--trial", "0", "--rules", rules, "--pin-rules"])
}

/// Packets that a rule of the router applied to.
fn packets(world: &RouteBed, rule: &str) -> u64 {
    let status = world.status();
    let rules = status["rules"]["rules"].as_array().expect("rules");
    rules.iter().find(|r| r["name"] == rule).expect("the rule")["packets"].as_u64().unwrap()
}

/// Which of these ports of `b` are reached from `a` by UDP.
fn reached(world: &RouteBed, ports: &[u16]) -> Vec<u16> {
    let listen = |port: &u16| {
        let socket = bind(("198.18.2.2", *port));
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        (*port, socket)
    };
    let sockets: Vec<_> = world.b.run(|| ports.iter().map(listen).collect());
    world.a.run(|| {
        let client = UdpSocket::bind("198.18.1.2:0").unwrap();
        for port in ports {
            client.send_to(b"hello", ("198.18.2.2", *port)).unwrap();
        }
    });
    let reached = sockets.iter().filter(|(_, socket)| socket.recv_from(&mut [0; 64]).is_ok());
    reached.map(|(port, _)| *port).collect()
}

fn runs_a_program(world: &RouteBed) -> bool {
    world.router().output("ip -j link show").contains("\"xdp\"")
}

#[test]
fn wrong_rules_are_refused_with_their_line_and_change_nothing() {
    let Some(world) = world("rrbad") else { return };
    let [first, second] = world.ports();
    let path = world.bed.file("rules.toml", format!("{}\n[detection]\n", drops(53)));
    let refused = world.ask(&["run", first, second, "--rules", &path]);
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    assert!(printed(&refused).contains(&format!("{path}:7:")), "{}", printed(&refused));
    let missing = world.ask(&["run", first, second, "--rules", "/nowhere.toml"]);
    assert_eq!(missing.status.code(), Some(2), "{}", printed(&missing));
    assert!(!runs_a_program(&world));
    // There is nothing to be read again.
    assert_eq!(world.ask(&["reload"]).status.code(), Some(1));
}

#[test]
fn rules_hold_beside_a_shield_and_each_counts_its_own() {
    let Some(world) = world("rrshd") else { return };
    let [first, _] = world.ports();
    let (of_shield, of_router) = (world.bed.file("shield.toml", drops(53)), world.bed.file("rules.toml", drops(54)));
    let both = [53, 54, 55];
    let shield = |more: &[&str]| world.evenkeel(&[&["shield"], more].concat()).output().unwrap();
    let start_shield = || {
        let arguments = ["shield", "run", first, "--quiet", "--rules", &of_shield];
        let log = world.bed.path("shield.log");
        let running = Running::logged(&mut world.evenkeel(&arguments), &log);
        wait_reporting("the shield answers", || shield(&["status", first]).status.success(), || testbed::log(&log));
        running
    };
    // In either order of their coming.
    let first_shield = start_shield();
    assert_eq!(reached(&world, &both), [54, 55]);
    let router = run(&world, &of_router);
    assert_eq!(reached(&world, &both), [55]);
    assert_eq!((packets(&world, "udp-54"), world.status()["rules"]["totals"]["dropped"].clone()), (1, 1.into()));
    let status = json(&shield(&["status", first, "--json"]));
    let rule = |r: &&Value| r["name"] == "udp-53";
    assert_eq!(status["rules"].as_array().unwrap().iter().find(rule).unwrap()["packets"], 2, "the shield comes first");
    assert!(shield(&["stop", first]).status.success());
    assert!(first_shield.end().success());
    assert_eq!(reached(&world, &both), [53, 55], "the router's rules stay");
    let second_shield = start_shield();
    assert_eq!(reached(&world, &both), [55]);
    assert!(router.stop(Signal::SIGTERM).success());
    assert_eq!(reached(&world, &both), [54, 55], "the shield stays");
    assert!(shield(&["stop", first]).status.success());
    assert!(second_shield.end().success());
    assert!(!runs_a_program(&world));
}

#[test]
fn rules_are_read_again_by_command_and_by_signal() {
    let Some(world) = world("rrhup") else { return };
    let path = world.bed.file("rules.toml", drops(53));
    let router = run(&world, &path);
    assert_eq!(reached(&world, &[53, 54]), [54]);
    world.bed.file("rules.toml", drops(54));
    let reload = world.ask(&["reload", "--json"]);
    assert_eq!((reload.status.code(), json(&reload)["reloaded"]["rules"].clone()), (Some(0), 1.into()));
    assert_eq!(reached(&world, &[53, 54]), [53]);
    world.bed.file("rules.toml", "default = 5\n");
    let reload = world.ask(&["reload", "--json"]);
    assert_eq!((reload.status.code(), json(&reload)["done"].clone()), (Some(2), false.into()));
    assert!(world.status()["rules"]["reload_error"].as_str().unwrap().contains(":1:"));
    assert_eq!(reached(&world, &[53, 54]), [53]);
    world.bed.file("rules.toml", drops(53) + &drops(54));
    router.signal(Signal::SIGHUP);
    wait("the signal is heard", || world.status()["rules"]["reloads"] == 2);
    assert_eq!(reached(&world, &[53, 54]), [0; 0]);
    assert_eq!(world.status()["rules"]["reload_error"], Value::Null);
    for mode in ["standard", "shadow", "routed"] {
        assert!(world.ask(&["mode", mode]).status.success());
        assert_eq!(reached(&world, &[53, 54, 55]), [55], "{mode}");
    }
    assert!(router.stop(Signal::SIGTERM).success());
    assert_eq!(reached(&world, &[53, 54]), [53, 54]);
}

#[test]
fn reloads_that_are_requested_at_once_are_done_one_after_the_other() {
    let Some(world) = world("rrmny") else { return };
    let path = world.bed.file("rules.toml", drops(53));
    let router = run(&world, &path);
    let ask = || world.ask(&["reload", "--json"]);
    std::thread::scope(|scope| {
        let reloads = [(); 4].map(|()| scope.spawn(ask));
        // Others are answered meanwhile.
        assert!(world.ask(&["cpus", "none"]).status.success());
        for answer in reloads.map(|reload| reload.join().unwrap()) {
            assert_eq!((answer.status.code(), json(&answer)["done"].clone()), (Some(0), true.into()));
        }
    });
    assert_eq!(world.status()["rules"]["reloads"], 4);
    // Whoever asks when it ends has an answer: done, or refused, or that there is none.
    std::thread::scope(|scope| {
        let reload = scope.spawn(ask);
        assert!(world.ask(&["stop"]).status.success());
        assert!(matches!(reload.join().unwrap().status.code(), Some(0..=3)));
    });
    assert!(router.end().success());
    assert_eq!(reached(&world, &[53, 54]), [53, 54]);
}

#[test]
fn rules_that_are_to_stay_outlive_their_router_until_they_are_taken_off() {
    let Some(world) = world("rrsty") else { return };
    let path = world.bed.file("rules.toml", drops(53));
    let both = [53, 54];
    let taken_off = || {
        assert_eq!(world.ask(&["stop"]).status.code(), Some(0));
        wait("no program is left", || !runs_a_program(&world));
        assert_eq!(reached(&world, &both), both);
        assert_eq!(world.ask(&["stop"]).status.code(), Some(1), "there is none any more");
    };
    for end in [Signal::SIGKILL, Signal::SIGTERM] {
        run_pinned(&world, &path).stop(end);
        for _ in 0..3 {
            assert_eq!(reached(&world, &both), [54], "the kernel forwards what the rules pass");
        }
        let none = world.ask(&["status"]);
        assert_eq!(none.status.code(), Some(1));
        assert!(
            printed(&none).contains(world.ports()[0]) && printed(&none).contains("route stop"),
            "{}",
            printed(&none)
        );
    }
    let [first, second] = world.ports();
    let open = world.ask(&["run", first, second]);
    assert_eq!(open.status.code(), Some(2), "no router without rules: {}", printed(&open));
    let other = world.ask(&["run", first, second, "--rules", &path, "--xdp-mode", "generic"]);
    assert_eq!(other.status.code(), Some(2), "{}", printed(&other));
    assert_eq!(reached(&world, &both), [54]);
    taken_off();

    // The next one takes over, with other rules.
    run_pinned(&world, &path).stop(Signal::SIGKILL);
    world.bed.file("rules.toml", drops(54));
    let next = run_pinned(&world, &path);
    assert_eq!(reached(&world, &both), [53]);
    assert!(world.status()["ports"].as_array().unwrap().iter().any(|port| port["totals"]["forwarded"] != 0));
    next.stop(Signal::SIGKILL);
    assert_eq!(reached(&world, &both), [53]);
    // And one whose rules go with it.
    let last = run(&world, &path);
    assert_eq!((reached(&world, &both), world.status()["rules"]["pinned"].clone()), (vec![53], false.into()));
    last.stop(Signal::SIGKILL);
    wait("no program is left", || !runs_a_program(&world));
    assert_eq!(reached(&world, &both), both);

    // While it runs, `stop` ends it and its rules.
    let running = run_pinned(&world, &path);
    taken_off();
    assert!(running.end().success());
}

/// Folders of routers of this namespace, running or killed: names of rules, and of the process.
fn folders(namespace: u64) -> (usize, bool) {
    let end = format!("@{namespace}");
    let names =
        std::fs::read_dir("/sys/fs/bpf").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let rules = names.filter(|name| name.starts_with("evenkeel-route-") && name.ends_with(&end)).count();
    (rules, std::path::Path::new(&format!("/run/evenkeel/route{end}")).exists())
}

#[test]
fn what_killed_routers_left_of_namespaces_that_are_gone_goes_and_nothing_else() {
    let Some(mut gone) = world("rrgon") else { return };
    gone.stops = false;
    let [Some(killed), Some(runs), Some(next)] = ["rrkld", "rrrun", "rrnxt"].map(world) else { return };
    let number = |world: &RouteBed| world.router().run(|| host::namespace::own().unwrap());
    let [was, of_killed, of_runs, of_next] = [&gone, &killed, &runs, &next].map(number);
    let start = |world: &RouteBed| {
        let path = world.bed.file("rules.toml", drops(53));
        run_pinned(world, &path)
    };
    start(&gone).stop(Signal::SIGKILL);
    start(&killed).stop(Signal::SIGKILL);
    let running = start(&runs);
    assert_eq!([was, of_killed, of_runs].map(|namespace| folders(namespace).0), [2; 3]);
    drop(gone);
    let shown = || json(&next.evenkeel(&["clean", "--dry-run", "--json"]).output().unwrap());
    let is_in = |document: &Value, namespace: u64| {
        let end = format!("@{namespace}");
        let routers = document["routers"].as_array().unwrap().iter();
        routers.filter(|folder| folder.as_str().unwrap().ends_with(&end)).count()
    };
    // The interfaces go a little later. Whichever router of this machine starts first removes what is left.
    wait("all that is left is dead", || is_in(&shown(), was) >= 2 || folders(was) == (0, false));
    let document = shown();
    assert!(is_in(&document, of_killed) <= 1 && is_in(&document, of_runs) == 0, "{document}");

    let path = next.bed.file("rules.toml", drops(53));
    let begun = run(&next, &path);
    assert_eq!(folders(was), (0, false));
    assert_eq!(folders(of_killed), (2, false), "the rules that stay hold on");
    assert_eq!(reached(&killed, &[53, 54]), [54]);
    assert_eq!((folders(of_runs), folders(of_next)), ((2, true), (0, true)), "who runs is left alone");
    assert!(runs.ask(&["status"]).status.success());
    assert!(begun.stop(Signal::SIGTERM).success());
    assert!(running.stop(Signal::SIGTERM).success());
    assert_eq!(runs.ask(&["stop"]).status.code(), Some(0));
    assert_eq!(folders(of_next), (0, false));
}
