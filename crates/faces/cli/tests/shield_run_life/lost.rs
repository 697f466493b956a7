//! Folders, pins and counters that are removed, renamed or hidden beside a shield.

use std::{fs, path::Path, process::Command};

use testbed::{DROP_9, ShieldBed, printed};

use super::{bed, left, nothing_is_left};

#[test]
fn what_is_taken_away_beside_a_shield_is_named() {
    let Some(mut bed) = bed("ekskr") else { return };
    let rules = bed.rules(DROP_9);
    let interface = bed.interface.clone();
    let folder = |root: &str, bed: &ShieldBed| {
        let found = left(bed, root, &interface);
        assert_eq!(found.len(), 1, "{found:?}");
        Path::new(root).join(&found[0])
    };
    // Without its folder in /run a process is still found: no second one takes over, and no verb calls it ended.
    bed.run(&rules, &["--fail", "closed"]);
    let pid = bed.status()["pid"].as_u64().expect("a process") as i32;
    fs::remove_dir_all(folder("/run/evenkeel", &bed)).expect("removed");
    for words in
        [&["run", &interface, "--rules", &rules, "--quiet"][..], &["reload", &interface], &["stop", &interface]]
    {
        let refused = bed.shield(words);
        assert_eq!(refused.status.code(), Some(3), "{}", printed(&refused));
        assert!(printed(&refused).contains("cannot be asked"), "{}", printed(&refused));
    }
    for words in [&["status", &interface][..], &["list"]] {
        let shown = printed(&bed.shield(words));
        assert!(shown.contains("a process that cannot be asked") && !shown.contains("no process"), "{shown}");
    }
    // Without its pins, too, each verb names the process.
    fs::remove_dir_all(folder("/sys/fs/bpf", &bed)).expect("removed");
    for words in [
        &["run", &interface, "--rules", &rules, "--quiet"][..],
        &["reload", &interface],
        &["stop", &interface],
        &["status", &interface],
        &["list"],
    ] {
        let refused = bed.shield(words);
        assert_eq!(refused.status.code(), Some(3), "{}", printed(&refused));
        assert!(printed(&refused).contains(&format!("kill {pid}")), "{}", printed(&refused));
    }
    assert_eq!((bed.come_through(9, 3), bed.come_through(10, 3)), (0, 3));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).expect("ended");
    bed.ended();
    nothing_is_left(&bed, &interface);

    // The pin of a link is missing.
    bed.run(&rules, &["--fail", "closed"]);
    assert_eq!(bed.warnings(), "[]");
    fs::remove_file(folder("/sys/fs/bpf", &bed).join("link")).expect("removed");
    assert!(bed.warnings().contains("was removed"), "{}", bed.warnings());
    bed.stop();

    // A map's pin of a shield without a process is missing; then its link is detached.
    bed.run(&rules, &["--fail", "closed"]);
    bed.kill();
    let pins = folder("/sys/fs/bpf", &bed);
    fs::rename(pins.join("sh_counts"), pins.join("sh_else")).expect("renamed");
    for words in [&["run", &interface, "--rules", &rules, "--quiet"][..], &["status", &interface]] {
        let refused = bed.shield(words);
        assert!(printed(&refused).contains(&format!("evenkeel shield stop {interface}")), "{}", printed(&refused));
    }
    fs::rename(pins.join("sh_else"), pins.join("sh_counts")).expect("renamed");
    let detached = bed.host.command("bpftool").args(["link", "detach", "pinned"]).arg(pins.join("link")).output();
    assert!(detached.expect("bpftool runs").status.success());
    let status = bed.shield(&["status", &interface]);
    assert_eq!(status.status.code(), Some(1), "{}", printed(&status));
    assert!(printed(&status).contains("another tool removed the shield"), "{}", printed(&status));
    bed.shield_does(&["stop", &interface]);
    nothing_is_left(&bed, &interface);
}

#[test]
fn a_shield_whose_pins_cannot_be_seen_is_reported_and_left_alone() {
    let Some(mut bed) = bed("ekskf") else { return };
    bed.protect(DROP_9, &["--fail", "closed"]);
    bed.kill();
    // `ip netns exec` mounts another /sys.
    let elsewhere = |arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", bed.host.name(), env!("CARGO_BIN_EXE_evenkeel"), "shield"]).args(arguments);
        command.output().expect("ip starts")
    };
    for verb in ["status", "reload", "stop"] {
        let output = elsewhere(&[verb, &bed.interface]);
        assert_eq!(output.status.code(), Some(3), "{verb}: {}", printed(&output));
        assert!(printed(&output).contains("nsenter --net"), "{verb}: {}", printed(&output));
    }
    assert_eq!(bed.come_through(9, 3), 0, "it drops, by its rules or as it has failed");
    assert!(bed.status()["fail"] == "closed", "all of it is there: {}", bed.status());
    let stopped = bed.shield(&["stop", &bed.interface]);
    assert!(stopped.status.success() && bed.come_through(10, 3) == 3, "{}", printed(&stopped));
}

#[test]
fn counters_whose_names_are_lost_are_nobody_s() {
    let Some(mut bed) = bed("ekskg") else { return };
    let rules = bed.protect(DROP_9, &[]);
    assert_eq!((bed.come_through(9, 5), bed.count("nine")), (0, 5));
    bed.kill();
    let memory = format!("/run/evenkeel/{}/memory.json", left(&bed, "/run/evenkeel", &bed.interface)[0]);
    fs::remove_file(memory).expect("lost");
    let status = bed.status();
    assert!(status["fail"].is_null() && status["loaded"] == "" && status["rules"] == serde_json::json!([]), "{status}");
    bed.rules(&DROP_9.replace("nine", "other"));
    bed.run(&rules, &[]);
    assert!(bed.log().contains("all counters begin anew"), "{}", bed.log());
    assert_eq!((bed.come_through(9, 3), bed.count("other")), (0, 3));
    bed.kill();
}
