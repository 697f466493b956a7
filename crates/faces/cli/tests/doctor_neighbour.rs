//! The finding `core-neighbour`: a program on the core of a NAPI thread is named, the thread gets its rank, and `undo` takes it back.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::Value;
use testbed::{Bed, Running, ended, json, printed, run, wait};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// The thread of an interface's first NAPI instance, and its name.
fn thread(interface: &str) -> Option<(u32, String)> {
    let prefix = format!("napi/{interface}-");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find_map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        name.starts_with(&prefix).then(|| (pid, name.trim().to_owned()))
    })
}

fn nice(pid: u32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[test]
fn a_program_on_the_core_of_a_receiving_thread_is_named_and_the_thread_comes_first() {
    let Some((bed, [left, right])) = Bed::pair("docnbr") else { return };
    left.address("10.77.8.1/24");
    right.address("10.77.8.2/24");
    // Without GRO a veth has no NAPI, and what may be segmented goes past it.
    right.feature("rx-gro", true);
    for feature in
        ["tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation"]
    {
        left.feature(feature, false);
    }
    let threaded = format!("/sys/class/net/{}/threaded", right.interface());
    right.space().run(|| fs::write(&threaded, "1").unwrap());
    wait("a NAPI thread", || thread(right.interface()).is_some());
    let (pid, name) = thread(right.interface()).unwrap();
    run(&format!("taskset -pc 1 {pid}"));
    let state = bed.path("state");
    let doctor = |more: &[&str]| {
        let mut command = Command::new(EVENKEEL);
        command.args(["doctor", "--only", "core-neighbour", "--state"]).arg(&state).args(more);
        command.output().unwrap()
    };
    let mut ping = Command::new("taskset");
    ping.args(["-c", "0", "ping", "-f", "-q", "-s", "1400", "10.77.8.2"]);
    let _pings: Vec<Running> = (0..2).map(|_| left.space().run(|| Running::silent(&mut ping))).collect();
    let mut burn = Command::new("taskset");
    burn.args(["-c", "1", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
    // Each has more than the fifth of the core from which a program is named, also where the thread has much to do.
    let _burners: Vec<Running> = (0..2).map(|_| Running::silent(&mut burn)).collect();
    let finding = || -> Option<Value> {
        let found = json(&doctor(&["--json"]));
        found["findings"].as_array().cloned().unwrap_or_default().into_iter().find(|one| {
            one["check"] == "core-neighbour" && one["object"] == name.as_str() && one["verdict"] == "improve"
        })
    };
    // How long a thread waits differs from one look to the next.
    let mut seen = None;
    wait("the finding", || {
        seen = finding();
        seen.is_some()
    });
    let seen = seen.unwrap().to_string();
    assert!(seen.contains(" ran") && seen.contains("waited"), "{seen}");
    assert_eq!(nice(pid), 0);
    let mut message = String::new();
    wait("the fix", || {
        message = printed(&doctor(&["--fix"]));
        nice(pid) == -20
    });
    assert!(message.contains("renice") || message.contains("nice value"), "{message}");
    let undone = Command::new(EVENKEEL).args(["undo", "--state"]).arg(&state).output().unwrap();
    ended(&undone, 0);
    assert_eq!(nice(pid), 0);
}
