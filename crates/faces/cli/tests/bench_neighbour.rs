//! `evenkeel bench --neighbour`: a short run, what is refused, and what a killed run leaves.

mod busy;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use busy::unless_busy;
use serde_json::Value;
use testbed::{
    Running, ended, guest_kernel, json, printed, privileged, refused, text, turn, wait, wait_reporting, words,
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

fn bench(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(EVENKEEL);
    command.arg("bench").args(args).current_dir(folder);
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    bench(folder, args).output().unwrap()
}

/// Control groups whose name has this process number.
fn groups(pid: u32) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mounts = mounts.lines().filter(|line| line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup")));
    let mounts = mounts.filter_map(|line| line.split(' ').nth(1));
    let entries = mounts.flat_map(|mount| fs::read_dir(mount).into_iter().flatten().flatten());
    let ours = format!("ek-{pid}-");
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).map(|entry| entry.path()).collect()
}

#[test]
fn neighbours_are_measured_beside_the_quiet_box() {
    let Some(_alone) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let args = words(
        "--neighbour cpu,cpu:0 --remedy threaded-napi --repeats 2 --duration 200ms --seed 7 --json \
         --html page.html --save run.json",
    );
    let Some(ran) = unless_busy(|| run(folder.path(), &args)) else { return };
    ended(&ran, 0);
    let run = json(&ran);
    assert_eq!(run["schema"], "evenkeel.bench.neighbour/1");
    let boxed = &run["boxes"][0];
    assert!(boxed["throughput_pps"].as_f64() > Some(0.0), "{boxed}");
    assert_eq!(boxed["quiet"].as_array().unwrap().len(), 2);
    let rows = boxed["rows"].as_array().unwrap();
    let names: Vec<(Option<&str>, &str)> = rows
        .iter()
        .map(|row| (row["condition"]["neighbour"].as_str(), row["condition"]["remedy"].as_str().unwrap()))
        .collect();
    let with = |remedy| [(Some("cpu:1"), remedy), (Some("cpu:0"), remedy)];
    let [[one, zero], [one_moved, zero_moved]] = ["none", "threaded-napi"].map(with);
    assert_eq!(names, [(None, "none"), one, one_moved, zero, zero_moved]);
    let had = |at: usize| -> f64 {
        let readings: &Vec<Value> = rows[at]["readings"].as_array().unwrap();
        readings.iter().map(|reading| reading["neighbour_cpus"].as_f64().unwrap()).sum::<f64>() / readings.len() as f64
    };
    assert!(
        had(1) > 0.2 && had(3) < 0.01,
        "a neighbour computes, and one without a dose does not: {} {}",
        had(1),
        had(3)
    );
    // What a box does is measured in every condition of its own core.
    let costs = rows[1]["costs"].as_array().unwrap();
    let is_measured = |cost: &Value| cost["measure"] == "waiting" || cost["measure"] == "idle_trip";
    assert!(costs.iter().any(|cost| is_measured(cost) && cost["difference"]["pairs"] == 2), "{costs:?}");
    // On two CPUs the threads are moved to the sender's core, where the idle round trip alone can be measured.
    assert!(rows[2]["remedy"].as_array().unwrap().iter().any(|cost| cost["measure"] == "idle_trip"), "{}", rows[2]);
    assert!(run["notes"].to_string().contains("threads of NAPI"), "{}", run["notes"]);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("quiet again") && page.contains("</html>"));
    let saved: Value = serde_json::from_slice(&fs::read(folder.path().join("run.json")).unwrap()).unwrap();
    assert_eq!(saved, run);
    let report =
        |args: &[&str]| Command::new(EVENKEEL).arg("report").args(args).current_dir(folder.path()).output().unwrap();
    assert_eq!(json(&report(&["show", "run.json", "--json"])), run);
    let shown = report(&["show", "run.json"]);
    ended(&shown, 0);
    assert!(printed(&shown).contains("quiet again"), "{}", printed(&shown));
    let compared = report(&["compare", "run.json", "run.json"]);
    ended(&compared, 0);
    assert!(printed(&compared).contains("differences is beyond chance"), "{}", printed(&compared));
    let compared = json(&report(&["compare", "run.json", "run.json", "--json"]));
    assert_eq!(compared["schema"], "evenkeel.bench.neighbour.compare/1");
    // Quiet, and each neighbour with each remedy.
    assert_eq!(compared["rows"].as_array().map(Vec::len), Some(5), "{compared}");
    fs::write(folder.path().join("other.json"), "{\"schema\":\"evenkeel.bench.run/1\"}").unwrap();
    refused(&report(&["compare", "run.json", "other.json"]), 2, &["other.json", "neighbours"]);
    // Not beside it: each needs both CPUs.
    a_killed_run();
}

#[test]
fn what_cannot_be_is_named_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run(folder.path(), args);
    refused(&run(&["--neighbour", "disk"]), 2, &["disk", "cpu, io, memory"]);
    refused(&run(&["--neighbour", "cpu:99"]), 2, &["0 to 64 CPUs"]);
    refused(&run(&["--neighbour", "cpu", "--repeats", "1"]), 2, &["--repeats", "interval"]);
    refused(&run(&["--neighbour", "cpu", "--sizes", "64,128"]), 2, &["one size"]);
    refused(&run(&["--neighbour", "cpu", "--trials"]), 2, &["--trials"]);
    refused(&run(&["--neighbour", "cpu", "--remedy", "prayer"]), 2, &["prayer", "fifo"]);
    let planned = json(&run(&["--neighbour", "cpu", "--dry-run", "--json"]));
    assert_eq!(planned["schema"], "evenkeel.bench.neighbour.plan/1");
    // Quiet, quiet again, and the neighbour.
    assert_eq!(planned["conditions"].as_array().map(Vec::len), Some(3), "{planned}");
    let Some(()) = privileged() else { return };
    refused(&run(&["--neighbour", "memory:900000"]), 3, &["memory:900000", "MB are free"]);
    // Root's programs are looked for in fixed folders: a root file system without stress-ng is a mount namespace. So is a full disk.
    let mounted = |what: &str, args: &[&str]| {
        let bench_command = bench(folder.path(), args);
        let mut ran = Command::new("unshare");
        ran.args(["--mount", "sh", "-c", &format!("{what} && exec \"$@\""), "sh"]).arg(bench_command.get_program());
        ran.args(bench_command.get_args()).current_dir(folder.path()).output().unwrap()
    };
    let empty = tempfile::NamedTempFile::new().unwrap();
    let hidden = format!("mount --bind {} \"$(command -v stress-ng)\"", empty.path().display());
    let ran = mounted(&hidden, &["--neighbour", "cpu"]);
    assert!(ran.status.code() == Some(3) && printed(&ran).contains("stress-ng"), "{}", printed(&ran));
    let full = "mount -t tmpfs -o size=16k ek /mnt";
    let ran = mounted(full, &["--neighbour", "cpu", "--save", "/mnt/run.json"]);
    refused(&ran, 3, &["/mnt/run.json", "make room"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no file of a run that did not begin");
}

/// A guest as a neighbour: one that forwards.
#[test]
fn a_neighbour_is_a_guest() {
    let Some(_alone) = turn() else { return };
    let kernel = guest_kernel("6.1");
    let folder = tempfile::tempdir().unwrap();
    let bench_command = format!(
        "--neighbour traffic:20 --neighbour-as guest --guest-kernel {} --repeats 2 --duration 200ms --json",
        kernel.display()
    );
    let ran = unless_busy(|| run(folder.path(), &words(&bench_command)));
    let Some(ran) = ran else { return };
    ended(&ran, 0);
    let run = json(&ran);
    let rows = run["boxes"][0]["rows"].as_array().unwrap();
    let names: Vec<(Option<&str>, &str)> = rows
        .iter()
        .map(|row| (row["condition"]["neighbour"].as_str(), row["condition"]["remedy"].as_str().unwrap()))
        .collect();
    assert_eq!(names, [(None, "none"), (Some("traffic:20 in a guest"), "none")]);
    for row in &rows[1..] {
        for reading in row["readings"].as_array().unwrap() {
            assert!(reading["neighbour_cpus"].as_f64() > Some(0.02), "a guest has CPU time: {row}");
        }
    }
    let notes = run["notes"].to_string();
    assert!(notes.contains("Neighbours in a guest: QEMU"), "{notes}");
}

/// A killed run leaves nothing that `clean` does not find.
fn a_killed_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bench(folder.path(), &["--neighbour", "cpu", "--duration", "200ms", "--repeats", "2"]);
    let running = Running::logged(&mut command, &folder.path().join("log"));
    let pid = running.pid();
    let processes = || -> Vec<String> {
        let files =
            groups(pid).into_iter().map(|group| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default());
        files.flat_map(|file| file.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    let log = folder.path().join("log");
    wait_reporting("a neighbour runs", || processes().len() > 1, || testbed::log(&log));
    running.kill();
    // stress-ng dies with its parent; its workers see that.
    wait("the neighbour has gone with the run", || processes().is_empty());
    assert!(!groups(pid).is_empty(), "its groups are there");
    let dry_run = Command::new(EVENKEEL).args(["clean", "--dry-run"]).output().unwrap();
    assert!(text(&dry_run.stdout).contains("rmdir /sys/fs/cgroup"), "{}", printed(&dry_run));
    ended(&Command::new(EVENKEEL).arg("clean").output().unwrap(), 0);
    assert!(groups(pid).is_empty());
    let ours = format!("ek-{pid}-");
    let files = || fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    assert!(!files().any(|entry| entry.file_name().to_string_lossy().starts_with(&ours)), "no folder stays in /tmp");
}
