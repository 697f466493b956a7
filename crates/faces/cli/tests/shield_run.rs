//! `evenkeel shield` in front of an interface of a lab: real packets, reloads, a control process that is killed.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use testbed::{DROP_9, ShieldBed, printed};

const DROP_9_AND_10: &str = "[[rule]]\nname = \"ten\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 10\n[[rule]]\nname = \"nine\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 9\n";
const ONLY_9: &str =
    "default = \"drop\"\n[[rule]]\nname = \"nine\"\naction = \"pass\"\nprotocol = \"udp\"\ndestination-port = 9\n";

fn bed(tag: &str) -> Option<ShieldBed> {
    ShieldBed::host(env!("CARGO_BIN_EXE_evenkeel"), tag)
}

#[test]
fn rules_hold_are_reloaded_and_go() {
    let Some(mut bed) = bed("eksha") else { return };
    let rules = bed.protect(DROP_9, &[]);
    assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5));
    assert_eq!(bed.count("nine"), 5);

    let second = bed.shield(&["run", &bed.interface, "--quiet", "--rules", &rules]);
    assert_eq!(second.status.code(), Some(3), "{}", printed(&second));
    let pid = bed.status()["pid"].to_string();
    assert!(printed(&second).contains(&format!("process {pid} ")), "{}", printed(&second));

    bed.rules(DROP_9_AND_10);
    bed.reload();
    assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 0));
    assert_eq!((bed.count("nine"), bed.count("ten")), (10, 5), "the counters of a name go on");

    bed.rules("[[rule]]\nname = \"nine\"\naction = \"dorp\"\n");
    let refused = bed.shield(&["reload", &bed.interface]);
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    assert!(printed(&refused).contains("rules.toml:3:10"), "{}", printed(&refused));
    assert_eq!(bed.come_through(10, 5), 0, "the old rules hold");
    assert!(bed.status()["reload_error"].as_str().is_some_and(|why| why.contains("dorp")));

    bed.stop();
    assert_eq!(bed.come_through(9, 5), 5, "the shield is gone");
    assert_eq!(bed.shield(&["status", &bed.interface]).status.code(), Some(1));
}

#[test]
fn rules_from_a_pipe_hold() {
    let Some(mut bed) = bed("ekshp") else { return };
    bed.run_fed("/dev/stdin", &[], ONLY_9);
    assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (5, 0), "{}", bed.log());
    let status = bed.status();
    assert_eq!((bed.count("nine"), status["default"].as_str()), (5, Some("drop")), "{status}");
    let refused = bed.shield(&["reload", &bed.interface]);
    assert_eq!(refused.status.code(), Some(2), "a pipe is read once: {}", printed(&refused));
    assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (5, 0), "the old rules hold");
    bed.stop();
}

#[test]
fn rules_are_replaced_by_others_again_and_again() {
    let Some(mut bed) = bed("ekshn") else { return };
    // More names than there are counters in the end: those of rules that are gone are given to others, and begin anew.
    let many = |round: usize| {
        let drop = |name: String, port: usize| {
            format!("[[rule]]\nname = \"{name}\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = {port}\n")
        };
        let others = (0..3990).map(|n| drop(format!("{round}-{n}"), 1000 + n));
        [drop("nine".to_owned(), 9), drop(format!("ten-{round}"), 10)].into_iter().chain(others).collect::<String>()
    };
    bed.protect(&many(0), &[]);
    for round in 0..4 {
        if round > 0 {
            bed.rules(&many(round));
            bed.reload();
        }
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 7)), (0, 0));
        let counted = (bed.count("nine"), bed.count(&format!("ten-{round}")), bed.count(&format!("{round}-17")));
        assert_eq!(counted, (5 * (round as u64 + 1), 7, 0), "{round}");
    }
}

#[test]
fn a_killed_control_process_leaves_the_filter_as_configured_and_another_takes_it_over() {
    for (fail, through) in [("open", 5), ("closed", 0)] {
        let Some(mut bed) = bed("ekshb") else { return };
        let rules = bed.protect(DROP_9, &["--fail", fail]);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5), "{fail}");
        let before = bed.status();
        bed.kill();
        let failed = || bed.shield(&["status", &bed.interface, "--interval", "0.1"]).status.code() == Some(1);
        bed.wait("the shield has failed", failed);
        // The program's clock is coarser than that of status, by a tick.
        let (port, passes) = if fail == "open" { (9, 1) } else { (10, 0) };
        bed.wait("packets are treated as told", || bed.come_through(port, 1) == passes);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (through, through), "failed {fail}");
        let status = bed.status();
        assert!(status["pid"].is_null() && status["program_id"] == before["program_id"], "{status}");
        let counter = if fail == "open" { "failed_open" } else { "failed_closed" };
        assert!(status["totals"][counter].as_u64().is_some_and(|frames| frames >= 10), "{status}");

        let nine = bed.count("nine");
        assert!(nine >= 5, "{nine}");
        bed.run(&rules, &["--fail", fail]);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5), "{fail}");
        assert_eq!(bed.count("nine"), nine + 5, "counters go on");
        bed.shield_does(&["stop", &bed.interface]);
    }
}

#[test]
fn what_another_version_left_is_not_taken_over() {
    let Some(mut bed) = bed("ekshv") else { return };
    let rules = bed.protect("[[rule]]\nname = \"web\"\naction = \"challenge\"\ndestination-port = 80\n", &[]);
    bed.kill();
    let namespace = fs::metadata(format!("/run/netns/{}", bed.host.name())).expect("the host");
    let pins = Path::new("/sys/fs/bpf").join(format!("evenkeel-shield-{}@{}", bed.interface, namespace.ino()));
    // As an older one that did not have it yet.
    fs::remove_file(pins.join("cookie_generations")).expect("a pin");
    let taken = bed.shield(&["run", &bed.interface, "--quiet", "--rules", &rules]);
    assert_eq!(taken.status.code(), Some(3), "{}", printed(&taken));
    let why = printed(&taken);
    assert!(why.contains("a version of evenkeel") && why.contains("`evenkeel shield stop`"), "{why}");
    bed.shield_does(&["stop", &bed.interface]);
    assert!(!pins.exists());
    bed.run(&rules, &[]);
    assert!(bed.shield(&["stop", &bed.interface]).status.success());
}

#[test]
fn what_cannot_be_is_reported() {
    let Some(bed) = bed("ekshc") else { return };
    let rules = bed.rules(DROP_9);
    for (arguments, code, says) in [
        (&["run", "ek-no-such", "--rules", &rules][..], 3, "ek-no-such"),
        (&["run", &bed.interface], 2, "no rules"),
        (&["status", &bed.interface], 1, &bed.interface),
        (&["reload", &bed.interface], 1, &bed.interface),
        (&["stop", &bed.interface], 1, &bed.interface),
        (&["run", &bed.interface, "--rule", "drop prot=udp"], 2, "no key `prot`"),
    ] {
        let output = bed.shield(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", printed(&output));
        assert!(printed(&output).contains(says), "{arguments:?}: {}", printed(&output));
    }
}
