//! `keep` in network namespaces: settings that are applied, kept after a rename, a new device and foreign writes, and undone.

#[path = "keep/bad_input.rs"]
mod bad_input;
#[path = "keep/bed.rs"]
mod bed;
#[path = "keep/with_it.rs"]
mod with_it;

use std::{fs, process::Command};

use assert_cmd::cargo::CommandCargoExt;
use bed::{Kept, events};
use testbed::{ended, json, log, printed, refused, wait, wait_reporting};

#[test]
fn once_makes_what_a_file_asks_for_and_off_takes_it_back() {
    let Some(kept) = Kept::new("keepo") else { return };
    assert!(printed(&kept.run("keep")).contains("Nothing is kept"));
    let before = kept.rps("ekk0");
    ended(&kept.run("keep add spread ekk0 --rps on"), 0);
    assert_eq!(kept.rps("ekk0"), before, "a file alone sets nothing");
    let status = kept.run("keep status --json");
    ended(&status, 1);
    assert_eq!(json(&status)["files"][0]["state"], "differs");
    ended(&kept.run("keep run --once"), 0);
    assert_ne!(kept.rps("ekk0"), before);
    assert_eq!(kept.status()["files"][0]["state"], "kept");
    assert_eq!(kept.status()["schema"], "evenkeel.keep.status/1");
    ended(&kept.run("keep off spread-ekk0"), 0);
    assert_eq!(kept.rps("ekk0"), before);
    refused(&kept.run("keep off spread-ekk0"), 2, &["spread-ekk0.toml"]);
}

#[test]
fn off_takes_back_what_was_set_for_a_file_that_is_gone() {
    let Some(kept) = Kept::new("keepg") else { return };
    let before = kept.rps("ekk0");
    ended(&kept.run("spread apply ekk0 --rps on --keep"), 0);
    fs::remove_file(kept.file("spread-ekk0")).unwrap();
    assert_ne!(kept.rps("ekk0"), before);
    refused(&kept.run("keep off spread-ekk0 --leave"), 2, &["spread-ekk0.toml"]);
    let said = ended(&kept.run("keep off spread-ekk0"), 0);
    assert!(said.contains("spread-ekk0.toml does not exist any more"), "{said}");
    assert_eq!(kept.rps("ekk0"), before);
    refused(&kept.run("keep off spread-ekk0"), 2, &["spread-ekk0.toml"]);
}

#[test]
fn a_new_device_a_rename_and_a_foreign_writer_are_followed() {
    let Some(kept) = Kept::new("keepr") else { return };
    ended(&kept.run("keep add spread ekk* --rps on"), 0);
    let keeper = kept.start();
    kept.wait_kept("ekk0", "the start");
    kept.space.output("ip link del ekk0");
    kept.make("ekk0");
    kept.wait_kept("ekk0", "a device that was made anew");
    kept.space.output("ip link set ekk0 down");
    kept.space.output("ip link set ekk0 name ekk7");
    kept.space.output("ip link set ekk7 up");
    kept.wait_kept("ekk7", "a rename");
    // A second keeper of this namespace.
    refused(&kept.run("keep run"), 3, &["keeps already"]);
    let value = kept.rps("ekk7");
    wait("the end of what the driver may reset", || {
        kept.write("ekk7", "0");
        wait("it is set back", || kept.rps("ekk7") == value);
        events(&kept.status(), "restored") > 0
    });
    // Foreign writes go on until `keep` leaves the setting alone.
    wait_reporting(
        "another owner",
        || {
            kept.write("ekk7", "0");
            kept.status()["contested"].as_array().is_some_and(|all| !all.is_empty())
        },
        || log(&kept.log),
    );
    let ended_by = keeper.interrupt();
    assert!(ended_by.status.success());
    assert!(!kept.rps("ekk0p").is_empty(), "settings stay");
    ended(&kept.run("keep off"), 0);
    assert_eq!(kept.rps("ekk0p"), "");
}

#[test]
fn a_unit_is_printed() {
    let unit = Command::cargo_bin("evenkeel").unwrap().args(["keep", "unit"]).output().unwrap();
    let said = ended(&unit, 0);
    for line in ["keep run", "StateDirectory=evenkeel", "CAP_NET_ADMIN CAP_SYS_NICE", "Type=notify"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("BindsTo"), "{said}");
}
