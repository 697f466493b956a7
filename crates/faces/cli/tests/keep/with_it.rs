//! `--keep` of the verbs that change the machine.

use std::{fs, path::Path};

use testbed::{ended, json, log, printed, refused, wait_reporting};

use crate::bed::Kept;

#[test]
fn what_spread_applies_is_kept_and_taken_back_as_one() {
    let Some(kept) = Kept::new("keeps") else { return };
    let before = kept.rps("ekk0");
    let file = kept.file("spread-ekk0");
    let made = kept.run("spread apply ekk0 --rps on --keep --json");
    ended(&made, 0);
    assert_eq!(json(&made)["kept"], file);
    assert_ne!(kept.rps("ekk0"), before);
    assert_eq!(kept.status()["files"][0]["state"], "kept");
    // The file is written although no setting changes.
    let again = printed(&kept.run("spread apply ekk0 --rps on --keep --name again"));
    assert!(again.contains("again.toml") && again.contains("keep off again"), "{again}");
    ended(&kept.run("keep off again"), 0);
    // Another value is refused before anything is set.
    let value = kept.rps("ekk0");
    refused(&kept.run("spread apply ekk0 --rps off --keep --name other"), 2, &["other is not written", "`rps`", &file]);
    refused(&kept.run("spread apply ekk0 --keep --commit-confirm 60s"), 2, &["--commit-confirm"]);
    assert_eq!(kept.rps("ekk0"), value);
    assert!(!Path::new(&kept.file("other")).exists());
    // A file edited by hand is not replaced.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}# for the new switch\n")).unwrap();
    refused(&kept.run("spread apply ekk0 --rps on --keep"), 2, &["edited by hand", &file]);
    ended(&kept.run("keep off spread-ekk0"), 0);
    assert_eq!(kept.rps("ekk0"), before);
    assert!(!Path::new(&file).exists());
}

#[test]
fn what_spread_applies_is_taken_over_by_the_process_that_keeps() {
    let Some(kept) = Kept::new("keept") else { return };
    let before = kept.rps("ekk0");
    let keeper = kept.start();
    ended(&kept.run("spread apply ekk0 --rps on --keep"), 0);
    let value = kept.rps("ekk0");
    wait_reporting("it is kept", || kept.status()["files"][0]["settings"] == 2, || log(&kept.log));
    wait_reporting(
        "it is set back",
        || {
            kept.write("ekk0", "0");
            let begun = kept.status()["events"].as_array().unwrap().len();
            wait_reporting("an answer", || kept.rps("ekk0") == value, || log(&kept.log));
            begun > 0
        },
        || log(&kept.log),
    );
    ended(&kept.run("keep off spread-ekk0"), 0);
    assert_eq!(kept.rps("ekk0"), before, "the value from before `apply`: {}", log(&kept.log));
    keeper.interrupt();
}

#[test]
fn what_the_doctor_fixes_is_kept() {
    let Some(kept) = Kept::new("keepd") else { return };
    let sack = || kept.space.read("/proc/sys/net/ipv4/tcp_sack").trim().to_owned();
    kept.space.set("net.ipv4.tcp_sack", "0");
    refused(&kept.run("doctor --keep"), 2, &["--fix"]);
    let made = printed(&kept.run("doctor --fix tcp-options --keep"));
    assert!(made.contains("keep off doctor-tcp-options"), "{made}");
    assert_eq!(sack(), "1");
    kept.space.set("net.ipv4.tcp_sack", "0");
    ended(&kept.run("keep run --once"), 0);
    assert_eq!(sack(), "1");
    ended(&kept.run("keep off doctor-tcp-options"), 0);
    assert_eq!(sack(), "0");
}
