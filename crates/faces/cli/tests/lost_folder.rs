//! Folders in /run that are removed while their process runs, or left by a process that failed or was killed.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Command, Output},
};

use nix::sys::signal::Signal;
use testbed::{Bed, LinkNode, RouteBed, ended, json, printed, privileged, refused, wait};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

fn router_folder(world: &RouteBed) -> PathBuf {
    let namespace = world.router().output("stat -L -c %i /proc/self/ns/net");
    format!("/run/evenkeel/route@{}", namespace.trim()).into()
}

#[test]
fn a_router_that_has_lost_its_folder_is_named_by_each_verb() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtlost") else { return };
    let running = world.run(&["--trial", "0"]);
    fs::remove_dir_all(router_folder(&world)).unwrap();
    let [a, b] = [world.ports()[0], world.ports()[1]];
    let process = [format!("process {}", running.pid()), format!("kill {}", running.pid())];
    for words in [&["status"][..], &["stop"], &["mode", "standard"], &["run", a, b, "--quiet"]] {
        refused(&world.ask(words), 3, &[&process[0], &process[1], "cannot be asked"]);
    }
    assert!(world.crosses());
    assert!(running.stop(Signal::SIGTERM).success());
    assert_eq!(world.ask(&["status"]).status.code(), Some(1), "it is over");
    let next = world.run(&["--trial", "0"]);
    assert!(next.stop(Signal::SIGTERM).success() && !router_folder(&world).exists());
}

#[test]
fn stop_removes_what_a_killed_router_has_left() {
    let Some(world) = RouteBed::new(EVENKEEL, "rtleft") else { return };
    world.run(&["--trial", "0"]).stop(Signal::SIGKILL);
    assert!(router_folder(&world).exists());
    ended(&world.ask(&["stop"]), 0);
    assert!(!router_folder(&world).exists());
    ended(&world.ask(&["stop"]), 1);
}

#[test]
fn no_second_broker_begins_beside_one_that_has_lost_its_folder() {
    let Some((bed, ends)) = Bed::pair("lnklost") else { return };
    let mut node = LinkNode::start(EVENKEEL, &bed, &ends[0], "alpha", &[]);
    let namespace = ends[0].run(|| fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    fs::remove_dir_all(format!("/run/evenkeel-link/{namespace}")).unwrap();
    let broker = node.broker.take().unwrap();
    let process = [format!("process {}", broker.pid()), format!("kill {}", broker.pid())];
    for words in [&["status"][..], &["stop"], &["serve", ends[0].interface()]] {
        refused(&node.ask(words), 3, &[&process[0], &process[1], "cannot be asked"]);
    }
    assert!(broker.stop(Signal::SIGTERM).success());
    wait("nobody serves", || node.ask(&["status"]).status.code() == Some(1));
    node.serve("alpha", &[]);
}

/// Runs evenkeel with a full file system in /run. Returns its output and the names in /run/evenkeel afterwards.
fn on_a_full_disk(words: &[&str]) -> (Output, String) {
    let script = "mount -t sysfs sysfs /sys && mount -t tmpfs -o size=4k,mode=755 ek /run && head -c 4096 /dev/zero > /run/ballast
        \"$0\" \"$@\"; code=$?; find /run/evenkeel -mindepth 1; exit $code";
    let output = Command::new("unshare").args(["-m", "-n", "sh", "-c", script, EVENKEEL]).args(words).output().unwrap();
    let left = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, left)
}

#[test]
fn a_start_that_finds_the_disk_full_leaves_nothing() {
    let Some(()) = privileged() else { return };
    let (output, left) = on_a_full_disk(&["keep", "run"]);
    assert_eq!((output.status.code(), &*left), (Some(3), ""), "{}", printed(&output));
    assert!(printed(&output).contains("No space left on device"), "{}", printed(&output));
}

#[test]
fn clean_names_what_it_cannot_judge() {
    let cleaned = Command::new(EVENKEEL).args(["clean", "--dry-run", "--json"]).output().unwrap();
    ended(&cleaned, 0);
    assert!(json(&cleaned)["unknown_brokers"].is_array());
    // With a /proc that hides process 1 the list of namespaces is incomplete.
    let Some(()) = privileged() else { return };
    let script = "mount -t tmpfs ek /proc/1 && mount -t tmpfs ek /run && mkdir -p /run/evenkeel-link/1 && touch /run/evenkeel-link/1/next_block
        exec \"$0\" clean --dry-run";
    let hidden = Command::new("unshare").args(["-m", "sh", "-c", script, EVENKEEL]).output().unwrap();
    assert!(
        printed(&hidden).contains("1 folder of brokers") && !printed(&hidden).contains("Nothing"),
        "{}",
        printed(&hidden)
    );
}
