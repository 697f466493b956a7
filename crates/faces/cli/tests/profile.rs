//! `evenkeel profile` on lab boxes whose work is known, against perf, and its bad input.

use std::{
    process::{Command, Output},
    time::Duration,
};

use lab::{
    Lab,
    boxes::{BoxKind, BoxSpec, RuleForm, Ruleset, TestBox},
};
use model::{
    profile::{Class, LockCaller, Profile},
    schema::Document,
};
use testbed::{Running, alone, installed, skip, text};

fn evenkeel() -> Command {
    Command::new(env!("CARGO_BIN_EXE_evenkeel"))
}

/// A box; none without the privilege, which is a failure in CI.
fn build(tag: &str, spec: &BoxSpec) -> Option<TestBox> {
    Lab::new(tag).and_then(|lab| TestBox::build(&lab, spec)).map_err(skip).ok()
}

/// Floods the box through live frames, a sender on each of these CPUs.
fn flood(lab_box: &TestBox, cpus: &str) -> Running {
    flood_by(lab_box, "xdp-live", cpus)
}

fn flood_by(lab_box: &TestBox, backend: &str, cpus: &str) -> Running {
    let (sender, target) = (lab_box.sender(), lab_box.target());
    let mut command = evenkeel();
    command
        .args(["gen", &sender.end.name, "--udp", "--backend", backend, "--rate", "max", "--duration", "60s"])
        .args(["--cpus", cpus, "--dst-mac", &target.mac.to_string()])
        .args(["--src", &target.sources.to_string(), "--dst", &target.destinations.to_string()]);
    sender.namespace.run(|| Running::silent(&mut command)).unwrap()
}

/// A profile taken in the namespace of the box.
fn profile(lab_box: &TestBox, frequency: &str) -> Profile {
    let mut command = evenkeel();
    command.args(["profile", "--json", "--duration", "1500ms", "--frequency", frequency]);
    let output = lab_box.entry().0.run(|| command.output().unwrap()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Document<Profile> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document.schema, "evenkeel.profile/1");
    let profile = document.body;
    let sum: f64 = profile.classes.iter().map(|c| c.percent).sum();
    assert!((sum - 100.0).abs() < 0.5, "the shares make {sum} %");
    let unclassified = profile.class(Class::Unclassified);
    assert!(profile.percent(Class::Unclassified) < 3.0, "{unclassified:?}");
    profile
}

/// How much of the time in the kernel a class had: what other programs do at the same time does not count.
fn of_kernel(profile: &Profile, class: Class) -> f64 {
    let kernel = profile.busy_percent() - profile.percent(Class::User);
    100.0 * profile.percent(class) / kernel.max(0.1)
}

#[test]
fn xdp_drop_is_bpf_and_no_ip() {
    let _alone = alone();
    let Some(lab_box) = build("prxdp", &BoxSpec::new(BoxKind::XdpDrop)) else { return };
    let _flood = flood(&lab_box, "0");
    let profile = profile(&lab_box, "997");
    assert!(of_kernel(&profile, Class::Bpf) > 10.0, "{:?}", profile.dearest(6));
    assert!(of_kernel(&profile, Class::Ip) < 5.0, "{:?}", profile.dearest(6));
    let packets = profile.packets.as_ref().expect("a count of packets");
    assert!(packets.what.contains(&lab_box.entry().1.name) && packets.packets > 0, "{packets:?}");
    assert!(profile.class(Class::Bpf).unwrap().ns_per_packet.unwrap() > 0.0);
}

#[test]
fn a_router_is_ip_and_transmit_and_rules_are_netfilter() {
    let _alone = alone();
    let Some(router) = build("prip", &BoxSpec::new(BoxKind::Router)) else { return };
    let routing = {
        let _flood = flood(&router, "0");
        profile(&router, "997")
    };
    drop(router);
    let rules = Ruleset { rules: 25, stateful: false, form: RuleForm::Linear };
    let Some(firewall) = build("prnft", &BoxSpec::new(BoxKind::Firewall(rules))) else { return };
    let filtering = {
        let _flood = flood(&firewall, "0");
        profile(&firewall, "997")
    };
    for profile in [&routing, &filtering] {
        assert!(of_kernel(profile, Class::Ip) > 3.0, "{:?}", profile.dearest(8));
        assert!(of_kernel(profile, Class::Transmit) > 1.0, "{:?}", profile.dearest(8));
    }
    let (without, with) = (of_kernel(&routing, Class::Netfilter), of_kernel(&filtering, Class::Netfilter));
    assert!(without < 2.0 && with > 5.0, "netfilter: {without:.1} % without, {with:.1} % with 25 rules");
    // And the comparison says so.
    let folder = tempfile::tempdir().unwrap();
    let files = [("a.json", &routing), ("b.json", &filtering)].map(|(name, profile)| {
        let path = folder.path().join(name);
        std::fs::write(&path, serde_json::to_vec(&Document::new("profile", 1, profile)).unwrap()).unwrap();
        path
    });
    let output = evenkeel().args(["profile", "--compare"]).args(files).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let row = table.lines().find(|l| l.starts_with("netfilter")).unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains('*'), "{row}");
}

/// Samples on the locks that the kernel takes to hand a frame to a socket, and those of them that waited for another core.
fn socket_locks(profile: &Profile) -> (u64, u64) {
    let hands_over = |l: &&LockCaller| ["packet_rcv", "tpacket_rcv"].contains(&l.caller.as_str());
    let locks = profile.locks.iter().filter(hands_over);
    locks.fold((0, 0), |(samples, waiting), l| (samples + l.samples, waiting + l.waiting))
}

#[test]
fn senders_wait_for_the_lock_of_a_socket_and_not_for_those_of_rings_in_a_fanout_group() {
    let _alone = alone();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("skipped: one CPU does not wait for another");
    }
    let spec = BoxSpec { queues: 2, ..BoxSpec::new(BoxKind::Capture) };
    let Some(lab_box) = build("prcap", &spec) else { return };
    let interface = lab_box.entry().1.name.clone();
    let captured = |mode: &[&str]| {
        let mut command = evenkeel();
        command.args(["capture", &interface, "--count-only", "--quiet", "--backend"]).args(mode);
        let _capture = lab_box.entry().0.run(|| Running::silent(&mut command)).unwrap();
        let _flood = flood_by(&lab_box, "tx-ring", "0,1");
        std::thread::sleep(Duration::from_millis(500));
        profile(&lab_box, "4999")
    };
    let waited = |(samples, waiting): (u64, u64)| waiting as f64 / samples as f64;
    let add = |sum: &mut (u64, u64), (samples, waiting)| *sum = (sum.0 + samples, sum.1 + waiting);
    let (mut one, mut own) = ((0, 0), (0, 0));
    // Few samples meet a lock: those of several rounds are judged together.
    for _ in 0..5 {
        let plain = captured(&["packet"]);
        let rings = captured(&["ring+fanout", "--fanout", "cpu", "--members", "2", "--cpus", "0,1"]);
        for profile in [&plain, &rings] {
            assert!(of_kernel(profile, Class::Taps) > 1.0, "{:?}", profile.dearest(8));
        }
        add(&mut one, socket_locks(&plain));
        add(&mut own, socket_locks(&rings));
        assert!(one.0 > 0 && own.0 > 0, "{:?}, {:?}", plain.locks, rings.locks);
        if waited(one) > 3.0 * waited(own) {
            return;
        }
    }
    panic!("(samples, waiting): one socket {one:?}, rings in a group {own:?}");
}

/// The kernel functions that `perf report` lists, dearest first.
fn perf_report(folder: &std::path::Path) -> Vec<String> {
    let mut command = Command::new("perf");
    command.args(["report", "-i", "perf.data", "--stdio", "--no-children", "-g", "none", "-F", "overhead,sym", "-q"]);
    let output = command.current_dir(folder).output().unwrap();
    let kernel = |line: &str| Some(line.split_once("[k] ")?.1.trim().to_owned());
    text(&output.stdout).lines().filter_map(kernel).collect()
}

#[test]
fn perf_finds_the_same_functions() {
    let _alone = alone();
    let Some(router) = build("prperf", &BoxSpec::new(BoxKind::Router)) else { return };
    let _flood = flood(&router, "0");
    let folder = tempfile::tempdir().unwrap();
    if !installed(&["/usr/bin/perf"]) {
        return;
    }
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", "997", "-o", "perf.data", "--", "sleep", "2"]);
    let perf = Running::silent(perf.current_dir(folder.path()));
    let ours = profile(&router, "997");
    perf.end();
    let theirs = perf_report(folder.path());
    let idle = |name: &&String| !name.contains("halt") && !name.contains("idle");
    let theirs: Vec<&String> = theirs.iter().filter(idle).take(12).collect();
    let known = |name: &&&String| ours.functions.iter().take(30).any(|f| f.name == ***name);
    let both = theirs.iter().filter(known).count();
    assert!(theirs.len() >= 10 && both * 3 >= theirs.len() * 2, "{both} of {theirs:?} in {:?}", ours.functions);
}

#[test]
fn a_flame_graph_and_a_saved_profile() {
    let _alone = alone();
    let Some(lab_box) = build("prflame", &BoxSpec::new(BoxKind::XdpDrop)) else { return };
    let _flood = flood(&lab_box, "0");
    let folder = tempfile::tempdir().unwrap();
    let (svg, saved) = (folder.path().join("f.svg"), folder.path().join("p.json"));
    let mut command = evenkeel();
    command.args(["profile", "--duration", "300ms", "--verbose", "--top", "5", "--flamegraph"]).arg(&svg);
    command.arg("--save").arg(&saved);
    let output = lab_box.entry().0.run(|| command.output().unwrap()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("XDP and BPF") && table.lines().any(|l| l.starts_with("unclassified")), "{table}");
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<?xml") && svg.contains("XDP and BPF"));
    let saved: Document<Profile> = serde_json::from_slice(&std::fs::read(saved).unwrap()).unwrap();
    assert!(saved.body.samples > 0);
}

fn run(args: &[&str]) -> Output {
    evenkeel().arg("profile").args(args).output().unwrap()
}

#[test]
fn bad_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let other = file("top.json", r#"{"schema": "evenkeel.top/1"}"#);
    let newer = file("newer.json", r#"{"schema": "evenkeel.profile/99"}"#);
    let broken = file("broken.json", r#"{"schema": "evenkeel.profile/1", "seconds": "#);
    let damaged = file("damaged.json", r#"{"schema": "evenkeel.profile/1", "seconds": 3}"#);
    for (args, says) in [
        (vec!["--duration", "soon"], "--duration"),
        (vec!["--frequency", "0"], "samples per second from 1 to 10000"),
        (vec!["--compare", &other, &other], "what can be compared is `evenkeel.profile/1`"),
        (vec!["--compare", &newer, &other], "evenkeel.profile/99"),
        (vec!["--compare", &broken, &other], "is no profile"),
        (vec!["--compare", &damaged, &other], "is damaged"),
        (vec!["--compare", "/no/such/file", &other], "cannot read the profile /no/such/file"),
    ] {
        let output = run(&args);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {printed}");
        assert!(printed.contains(says), "{args:?}: {printed}");
    }
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    for (args, code, says) in [
        (vec!["--cpus", "4095"], 2, "CPU 4095 is not online"),
        (vec!["--per", "nosuch0"], 3, "no interface `nosuch0` in this network namespace; there are: "),
        (vec!["--flamegraph", "/no/such/folder/f.svg"], 2, "cannot write /no/such/folder/f.svg"),
    ] {
        let output = run(&args);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {printed}");
        assert!(printed.contains(says), "{args:?}: {printed}");
    }
}
