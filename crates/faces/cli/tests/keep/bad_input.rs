//! Errors in files and folders, missing interfaces, other owners.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use testbed::{Running, ended, log, refused, wait_reporting};

use crate::bed::{Kept, events};

#[test]
fn bad_files_are_named_and_good_ones_carried_out() {
    let Some(kept) = Kept::new("keepb") else { return };
    ended(&kept.run("keep add spread ekk0 --rps on"), 0);
    ended(&kept.run("keep add spread ek-none --name later"), 0);
    let file = kept.file("bad");
    fs::write(&file, "[[spread]]\ninterfaces = [\"ekk0\"]\nrsp = \"on\"\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let made = kept.run("keep run --once");
    let said = ended(&made, 1);
    assert!(said.contains("bad.toml, line 3: `rsp`") && said.contains("ek-none is not there"), "{said}");
    kept.wait_kept("ekk0", "the good one");
    refused(&kept.run("keep add spread ekk0 --rps off --name other"), 2, &["spread-ekk0.toml", "`rps`"]);
    refused(&kept.run("keep add doctor no-such-check"), 2, &["no-such-check"]);
    fs::remove_file(&file).unwrap();
    let files = kept.status()["files"].clone();
    assert_eq!((&files[0]["state"], &files[1]["state"]), (&"pending".into(), &"kept".into()), "{files}");
}

#[test]
fn files_that_contradict_each_other_are_refused_and_nothing_of_them_is_set() {
    let Some(kept) = Kept::new("keepc") else { return };
    ended(&kept.run("keep add spread ekk0 --rps on --name a"), 0);
    ended(&kept.run("keep add spread ekk0p --rps on --name c"), 0);
    let other = fs::read_to_string(kept.file("a")).unwrap().replace("rps = \"on\"", "rps = \"off\"");
    fs::write(kept.file("b"), other).unwrap();
    let before = kept.rps("ekk0");
    let said = ended(&kept.run("keep run --once"), 1);
    assert!(said.contains("a.toml, line 6: `rps` is on here, and off in") && said.contains("b.toml, line 6"), "{said}");
    assert_eq!(kept.rps("ekk0"), before);
    assert_ne!(kept.rps("ekk0p"), before);
    let states: Vec<String> =
        (0..3).map(|at| kept.status()["files"][at]["state"].as_str().unwrap().to_owned()).collect();
    assert_eq!(states, ["refused", "refused", "kept"]);
}

#[test]
fn a_read_only_folder_is_reported_before_anything_is_set() {
    let Some(kept) = Kept::new("keepf") else { return };
    ended(&kept.run("keep add spread ekk0p --rps on"), 0);
    let before = kept.rps("ekk0");
    for line in [
        "keep add spread ekk0 --rps on",
        "spread apply ekk0 --rps on --keep",
        "doctor --fix tcp-options --keep",
        "keep off spread-ekk0p",
    ] {
        refused(&kept.run_read_only(line), 3, &[&kept.etc, "Read-only file system"]);
    }
    assert_eq!(kept.rps("ekk0"), before);
    // Existing files are applied.
    ended(&kept.run_read_only("keep run --once"), 0);
    assert_ne!(kept.rps("ekk0p"), before);
}

#[test]
fn fewer_queues_and_an_interface_that_comes_later_are_planned_as_they_are() {
    let Some(kept) = Kept::new("keepq") else { return };
    ended(&kept.run("keep add spread ekk0 --rps on"), 0);
    ended(&kept.run("keep add spread ekk9 --rps on"), 0);
    let keeper = kept.start();
    kept.wait_kept("ekk0", "the start");
    let file = |at: usize| kept.status()["files"][at].clone();
    assert_eq!((&file(0)["settings"], &file(1)["state"]), (&2.into(), &"pending".into()));
    kept.space.output("ethtool -L ekk0 rx 1");
    wait_reporting("one queue", || events(&kept.status(), "fewer") == 1, || log(&kept.log));
    assert_eq!((&file(0)["settings"], &file(0)["state"]), (&1.into(), &"kept".into()));
    kept.space.output("ethtool -L ekk0 rx 2");
    wait_reporting("both queues", || file(0)["settings"] == 2, || log(&kept.log));
    kept.make("ekk9");
    kept.wait_kept("ekk9", "an interface that came later");
    wait_reporting("it is kept", || file(1)["state"] == "kept", || log(&kept.log));
    keeper.interrupt();
}

#[test]
fn an_owner_that_writes_again_each_second_is_named_and_left_alone() {
    let Some(kept) = Kept::new("keepw") else { return };
    ended(&kept.run("keep add spread ekk0 --rps on"), 0);
    let keeper = kept.start();
    kept.wait_kept("ekk0", "the start");
    // A process with the name of a program that writes such settings.
    let writer = format!("{}/systemd-udevd", kept.etc);
    let path = "/sys/class/net/ekk0/queues/rx-0/rps_cpus";
    fs::write(&writer, format!("#!/bin/sh\nwhile :; do echo 0 >{path}; sleep 1; done\n")).unwrap();
    fs::set_permissions(&writer, fs::Permissions::from_mode(0o755)).unwrap();
    let writer = kept.space.run(|| Running::silent(&mut Command::new(writer)));
    let contested = || kept.status()["contested"][0].clone();
    wait_reporting("another owner", || contested().is_object(), || log(&kept.log));
    assert!(contested()["likely"].as_str().unwrap().starts_with("likely systemd-udevd, process "), "{}", contested());
    assert!((500..=600).contains(&contested()["rest_s"].as_u64().unwrap()), "{}", contested());
    assert_eq!((events(&kept.status(), "restored"), events(&kept.status(), "contested")), (3, 1), "{}", log(&kept.log));
    assert_eq!(kept.rps("ekk0"), "", "left alone");
    writer.kill();
    keeper.interrupt();
}
