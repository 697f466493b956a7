//! Changes around a running shield: its interface goes down, is removed or renamed; its process hangs; the machine lacks a BPF file system; another
//! process takes over learned limits.

#[path = "shield_run_life/lost.rs"]
mod lost;

use std::{fs, os::unix::fs::MetadataExt, path::Path, thread, time::Duration};

use testbed::{DROP_9, ShieldBed, printed};

fn bed(tag: &str) -> Option<ShieldBed> {
    ShieldBed::host(env!("CARGO_BIN_EXE_evenkeel"), tag)
}

/// Names in `folder` of shields of the host's `interface`, without those of other tests in other namespaces.
fn left(bed: &ShieldBed, folder: &str, interface: &str) -> Vec<String> {
    let namespace = fs::metadata(format!("/run/netns/{}", bed.host.name())).expect("a namespace").ino();
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&format!("shield-{interface}@{namespace}"))).collect()
}

fn nothing_is_left(bed: &ShieldBed, interface: &str) {
    for folder in ["/sys/fs/bpf", "/run/evenkeel"] {
        assert_eq!(left(bed, folder, interface), Vec::<String>::new(), "in {folder}");
    }
}

#[test]
fn an_interface_that_goes_down_is_reported_and_has_its_filter_when_it_is_up_again() {
    let Some(mut bed) = bed("ekska") else { return };
    bed.protect(DROP_9, &[]);
    assert_eq!(bed.status()["warnings"].as_array().map(Vec::len), Some(0));
    let interface = bed.interface.clone();
    bed.ip(&format!("link set {interface} down"));
    let shown = printed(&bed.shield(&["status", &interface, "--interval", "0.1"]));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(&format!("warning: {interface} is down: the filter stays attached")), "{shown}");
    bed.ip(&format!("link set {interface} up"));
    // The client's neighbour table does not matter here.
    bed.ip(&format!("neigh replace 198.18.0.1 lladdr {} dev {interface}", bed.client.link.mac));
    assert_eq!(bed.status()["warnings"].as_array().map(Vec::len), Some(0));
    assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5));
    assert_eq!(bed.count("nine"), 5);
}

#[test]
fn an_interface_that_is_renamed_has_its_shield_by_the_new_name() {
    let Some(mut bed) = bed("ekskb") else { return };
    let rules = bed.protect(DROP_9, &[]);
    let old = bed.interface.clone();
    let new = format!("{old}n");
    bed.ip(&format!("link set {old} name {new}"));
    bed.interface.clone_from(&new);
    bed.wait("it is known by its new name", || bed.log().contains(&format!("{old} was renamed to {new}")));
    assert_eq!((bed.come_through(9, 5), bed.count("nine")), (0, 5));
    nothing_is_left(&bed, &old);
    bed.shield_does(&["reload", &new]);
    assert_eq!(bed.shield(&["status", &old, "--interval", "0.1"]).status.code(), Some(3));
    bed.kill();
    bed.run(&rules, &[]);
    assert_eq!((bed.come_through(9, 5), bed.count("nine")), (0, 10), "taken over, the counters go on");
    bed.shield_does(&["stop", &new]);
    nothing_is_left(&bed, &new);
}

#[test]
fn an_interface_that_is_removed_ends_its_shield_with_nothing_left() {
    let Some(mut bed) = bed("ekskc") else { return };
    bed.protect(DROP_9, &[]);
    let interface = bed.interface.clone();
    bed.ip(&format!("link del {interface}"));
    let code = bed.ended().code();
    assert_eq!(code, Some(3), "{}", bed.log());
    assert!(bed.log().contains(&format!("{interface} was removed")), "{}", bed.log());
    nothing_is_left(&bed, &interface);
}

#[test]
fn a_shield_whose_process_hangs_is_shown_by_its_maps_and_removed() {
    let Some(mut bed) = bed("ekskh") else { return };
    let rules = bed.protect(DROP_9, &["--fail", "closed"]);
    let interface = bed.interface.clone();
    let pid = bed.status()["pid"].as_u64().expect("a process") as i32;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGSTOP).expect("stopped");
    let refused = bed.shield(&["reload", &interface]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(printed(&refused).contains(&format!("process {pid} does not answer")), "{}", printed(&refused));
    bed.wait("it has failed closed", || bed.come_through(10, 1) == 0);
    assert!(bed.warnings().contains(&format!("kill -9 {pid}")), "{}", bed.warnings());
    let list = bed.shield(&["list", "--json"]);
    let list = testbed::json(&list);
    assert_eq!((&list["shields"][0]["failed"], &list["shields"][0]["error"]), (&true.into(), &serde_json::Value::Null));
    bed.shield_does(&["stop", &interface]);
    assert_eq!(bed.come_through(9, 3), 3);
    nothing_is_left(&bed, &interface);
    assert!(!bed.ended().success());

    // With --leave the shield stays.
    bed.run(&rules, &["--fail", "closed"]);
    let pid = bed.status()["pid"].as_u64().expect("a process") as i32;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGSTOP).expect("stopped");
    bed.shield_does(&["stop", "--leave", &interface]);
    assert!(!bed.ended().success());
    assert_eq!(bed.status()["pid"], serde_json::Value::Null);
    bed.shield_does(&["stop", &interface]);
    nothing_is_left(&bed, &interface);
}

/// Runs a shell's script in the host's network namespace and in a new mount namespace, in which /sys/fs/bpf is a plain folder. With `first` the
/// shell is process 1 of a new PID namespace.
fn without_bpf_file_system(bed: &ShieldBed, first: bool, script: &str) -> std::process::Output {
    let apart: &[&str] = if first { &["--mount", "--pid", "--fork", "--mount-proc"] } else { &["--mount"] };
    let rules = bed.rules(DROP_9);
    let mut command = bed.host.command("unshare");
    command.args(apart);
    command.args([
        "sh",
        "-c",
        &format!("while [ \"$(stat -f -c %T /sys/fs/bpf)\" = bpf_fs ]; do umount /sys/fs/bpf || exit; done\n{script}"),
    ]);
    command.args([env!("CARGO_BIN_EXE_evenkeel"), &bed.interface, &rules]).output().expect("the script runs")
}

#[test]
fn a_missing_bpf_file_system_is_mounted_where_it_lasts_and_nowhere_else() {
    let Some(bed) = bed("ekskd") else { return };
    let script = r#"
        "$0" shield run "$1" --quiet --rules "$2" &
        for i in $(seq 100); do "$0" shield status "$1" --interval 0.1 >/dev/null 2>&1 && break; done
        stat -f -c "it is %T" /sys/fs/bpf
        "$0" shield stop "$1"
        wait $!
    "#;
    let output = without_bpf_file_system(&bed, true, script);
    let shown = printed(&output);
    assert!(output.status.success(), "{shown}");
    for part in ["`umount /sys/fs/bpf`", "it is bpf_fs", "shield removed"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let output = without_bpf_file_system(&bed, false, r#""$0" shield run "$1" --quiet --rules "$2""#);
    assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
    // Without the mounts of process 1 evenkeel does not know whether its own mount would last.
    assert!(printed(&output).contains("mount -t bpf -o mode=700 bpf /sys/fs/bpf"), "{}", printed(&output));
    nothing_is_left(&bed, &bed.interface);
}

/// The prefixes with a learned limit of packets in the metrics.
fn limited(metrics: &Path) -> Vec<String> {
    let _ = fs::remove_file(metrics);
    // The file is written once a second.
    let mut text = String::new();
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(20));
        text = fs::read_to_string(metrics).unwrap_or_default();
        if !text.is_empty() {
            break;
        }
    }
    let name = "evenkeel_shield_prefix_limit_packets_per_second{";
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("measure=\"packets\""));
    let prefix = |line: &str| line.split("prefix=\"").nth(1)?.split('"').next().map(ToOwned::to_owned);
    lines.filter_map(prefix).collect()
}

#[test]
fn what_was_learned_outlives_the_process_and_a_reload_that_protects_something_else() {
    let Some(mut bed) = bed("ekske") else { return };
    bed.ip("link set lo up");
    let metrics = bed.path("metrics");
    // Five seconds are longer than any step below takes.
    let text = |protect: &str, every: u32| {
        format!(
            "protect = [{protect}]\n[detection]\nevery-ms = {every}\n[detection.baseline]\nafter-s = 5\n\
             [detection.metrics]\nfile = \"{}\"\nport = 9109\n{DROP_9}",
            metrics.display()
        )
    };
    let (one, other) = ("198.18.0.2/32".to_owned(), "198.18.0.3/32".to_owned());
    let rules = bed.protect(&text("\"198.18.0.2\"", 50), &[]);
    assert_eq!(limited(&metrics), Vec::<String>::new());
    bed.wait("it has learned", || limited(&metrics) == [one.clone()]);
    bed.rules(&text("\"198.18.0.3\", \"198.18.0.2\"", 100));
    bed.reload();
    limited(&metrics);
    assert_eq!(limited(&metrics), std::slice::from_ref(&one), "that of the prefix that stays, by its name");

    bed.shield_does(&["stop", "--leave", &bed.interface]);
    bed.ended();
    bed.run(&rules, &[]);
    assert_eq!(limited(&metrics), std::slice::from_ref(&one), "the next process knows it");
    bed.wait("it has learned the other one too", || limited(&metrics) == [other.clone(), one.clone()]);

    bed.kill();
    let state = format!("/run/evenkeel/{}/learned.json", self::left(&bed, "/run/evenkeel", &bed.interface)[0]);
    let text = fs::read_to_string(&state).expect("what was learned");
    fs::write(&state, &text[..text.len() / 2]).expect("damaged");
    bed.run(&rules, &[]);
    let count =
        bed.log().lines().filter(|line| line.contains("learned anew") && line.contains("it is damaged")).count();
    assert_eq!(count, 1, "{}", bed.log());
    assert_eq!(limited(&metrics), Vec::<String>::new());
}
