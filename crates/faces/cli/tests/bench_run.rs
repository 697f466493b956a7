//! `evenkeel bench` from outside, on real packets: a run killed and gone on with, a run interrupted, reports of both.

mod busy;

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::MutexGuard,
};

use busy::unless_busy;
use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{Running, json, text, turn, wait, words};

/// The shortest run with two boxes: every kind of step, few and short trials. A loss of 50 % is fine, so that a busy machine makes no
/// difference to what is shown here.
const SHORT: &str = "--dut wire,router --sizes 64,1518 --tests throughput --duration 0.1 --repeats 1 --loss-ratio 50%";

fn evenkeel(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(args).output().unwrap()
}

/// A run that has begun, and has the cores for itself.
struct Begun {
    child: Running,
    file: PathBuf,
    folder: tempfile::TempDir,
    _cores: MutexGuard<'static, ()>,
}

/// A short run that has made so many trials; none, and a word why, without the privilege.
fn begin(trials: usize) -> Option<Begun> {
    let cores = turn()?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("bench").args(words(SHORT)).arg("--save").arg(&file);
    let child = Running::silent(&mut command);
    wait_for(&file, trials);
    Some(Begun { child, file, folder, _cores: cores })
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// All trials in the file, those of the step that was begun too, by their number.
fn trials(run: &Value) -> Vec<Value> {
    let points = run["modes"].as_array().unwrap().iter().flat_map(|m| m["points"].as_array().unwrap());
    let mut all: Vec<Value> = points.flat_map(|p| p["trials"].as_array().unwrap().clone()).collect();
    all.extend(run["begun"]["trials"].as_array().cloned().unwrap_or_default());
    all.sort_by_key(|t| t["number"].as_u64());
    all
}

/// Waits until the file holds so many trials.
fn wait_for(file: &Path, count: usize) {
    let holds = |run: Value| trials(&run).len() >= count;
    wait("trials in the file", || fs::read(file).is_ok_and(|b| serde_json::from_slice(&b).is_ok_and(holds)));
}

fn namespaces() -> Vec<String> {
    let all = fs::read_dir("/run/netns").map_or_else(|_| Vec::new(), |d| d.flatten().collect());
    let names = all.iter().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.contains("-bench-")).collect()
}

/// Resumes a run until it ends. `None` where other programs took the CPUs all the time: the run is refused then, and kept.
fn go_on(file: &Path, more: &[&str]) -> Option<Output> {
    let output = unless_busy(|| evenkeel(&[&["bench", "--resume", file.to_str().unwrap()], more].concat()))?;
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    Some(output)
}

#[test]
fn a_run_that_was_killed_is_gone_on_with_and_keeps_its_trials() {
    let Some(Begun { child, file, folder, _cores }) = begin(2) else { return };
    child.kill();
    let killed = read(&file);
    let mut before = trials(&killed);
    assert_eq!(killed["schema"], "evenkeel.bench/1");
    assert_eq!(killed["status"]["status"], "partial");
    assert!(before.len() >= 2);
    names_what_was_begun(&file, &killed);

    let page = folder.path().join("page.html");
    let Some(output) = go_on(&file, &["--json", "--html", page.to_str().unwrap()]) else { return };
    let document = json(&output);
    let run = read(&file);
    assert_eq!((&document["status"]["status"], &run["status"]["status"]), (&"complete".into(), &"complete".into()));
    let after = trials(&run);
    // On a busy machine the run may give up; the void trials at its end are made again then.
    before.truncate(before.iter().rposition(|trial| trial["invalid"].is_null()).map_or(0, |last| last + 1));
    assert!(
        after.len() > before.len() && after[..before.len()] == before[..],
        "trials of before are lost or made again"
    );
    let keys: Vec<&str> = run["modes"].as_array().unwrap().iter().map(|m| m["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["wire", "router"]);
    assert_eq!(run["done"].as_array().unwrap().len(), 6);
    for point in run["modes"].as_array().unwrap().iter().flat_map(|m| m["points"].as_array().unwrap()) {
        assert!(point["ceiling_pps"].is_null() || !point["throughput"].is_null(), "{point}");
    }
    // Of the box something was seen in each of its trials.
    let of_router = run["modes"][1]["points"][0]["trials"].as_array().unwrap();
    assert!(of_router.iter().all(|t| !t["observed"]["cores"].as_array().unwrap().is_empty()));
    assert!(fs::read_to_string(&page).unwrap().contains("</html>"));
    assert_eq!(namespaces(), Vec::<String>::new(), "of the killed run or of this one");

    // What is done stays done.
    go_on(&file, &[]).expect("a run that is done measures nothing");
    assert_eq!(trials(&read(&file)), after);
    shown_and_compared(&file, folder.path());
}

/// `evenkeel report` on a run.
fn shown_and_compared(file: &Path, folder: &Path) {
    let run = file.to_str().unwrap();
    let csv = folder.join("table.csv");
    let output = evenkeel(&["report", "show", run, "--trials", "--csv", csv.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("router"));
    assert!(fs::read_to_string(&csv).unwrap().lines().count() > 4);
    let output = evenkeel(&["report", "compare", run, run, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = json(&output);
    assert_eq!((&document["schema"], &document["runs"][0]), (&"evenkeel.bench.compare/1".into(), &run.into()));
    // A run of other boxes has nothing in common with it.
    let mut other = read(file);
    other["modes"].as_array_mut().unwrap().iter_mut().for_each(|mode| mode["key"] = "else".into());
    let of_others = folder.join("others.json");
    fs::write(&of_others, serde_json::to_vec(&other).unwrap()).unwrap();
    let output = evenkeel(&["report", "compare", run, of_others.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn an_interrupted_run_says_partial_and_leaves_nothing_behind() {
    let Some(Begun { child, file, folder, _cores }) = begin(1) else { return };
    let status = child.stop(Signal::SIGINT);
    assert_eq!(status.signal(), Some(Signal::SIGINT as i32), "{status}");
    let run = read(&file);
    assert_eq!(run["status"]["status"], "partial");
    assert!(run["status"]["reason"].as_str().unwrap().contains("interrupted"), "{}", run["status"]);
    assert_eq!(namespaces(), Vec::<String>::new());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the run's file alone");
    names_what_was_begun(&file, &run);
}

/// Text, table and page of a partial run say that it is, and name the step that was begun, if one was.
fn names_what_was_begun(file: &Path, run: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let [csv, trials, page] = ["table.csv", "trials.csv", "page.html"].map(|name| folder.path().join(name));
    let output = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["report", "show"])
        .arg(file)
        .arg("--csv")
        .arg(&csv)
        .arg("--trials-csv")
        .arg(&trials)
        .arg("--html")
        .arg(&page)
        .output()
        .unwrap();
    let [csv, trials_csv, page] = [csv, trials, page].map(|path| fs::read_to_string(path).unwrap());
    let message = text(&output.stdout);
    assert!(
        message.contains("PARTIAL: ") && csv.contains(",partial run") && page.contains("Partial:"),
        "{message}\n{csv}"
    );
    let begun = &run["begun"];
    for shown in [&message, &csv, &page] {
        assert_eq!(shown.contains("begun and not finished"), !begun.is_null(), "{begun}\n{message}\n{csv}");
    }
    let mode = begun["step"]["mode"].as_str().unwrap_or_default();
    assert!(message.contains(&format!("begun and not finished: {mode}")) || begun.is_null(), "{message}");
    // Each trial has a row for each direction.
    let rows = trials_csv.lines().skip(1).filter(|row| row.contains(",forward,")).count();
    assert_eq!(rows, self::trials(run).len(), "the step's trials are left out: {trials_csv}");
}
