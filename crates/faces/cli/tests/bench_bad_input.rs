//! `evenkeel bench` and `evenkeel report` from outside: what they refuse, and in which words.

use std::{
    fs,
    process::{Command, Output},
};

use testbed::{json, privileged, text};

fn evenkeel(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(args).output().unwrap()
}

/// The exit code, and what was said on stderr; nothing may be on stdout.
fn refused(args: &[&str]) -> (i32, String) {
    let output = evenkeel(args);
    assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
    (output.status.code().unwrap(), text(&output.stderr))
}

#[test]
fn files_that_cannot_be_written_are_named_before_the_run() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("run.json");
    let good = good.to_str().unwrap();
    for args in [
        &["--save", "/no/such/folder/run.json"][..],
        &["--save", "/proc/version"],
        &["--save", "/dev/full"],
        &["--save", good, "--html", "/no/such/folder/x.html"],
        &["--save", good, "--csv", "/"],
    ] {
        let (code, message) = refused(&[&["bench", "--dut", "wire", "--sizes", "64"], args].concat());
        assert_eq!(code, 2, "{args:?}: {message}");
        assert!(message.contains(args.last().unwrap()) && message.contains("cannot write"), "{args:?}: {message}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "files stay behind");
}

#[test]
fn ports_that_are_not_there_are_named_and_leave_nothing() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.json");
    let (code, message) = refused(&["bench", "--ports", "eknone0,eknone1", "--save", run.to_str().unwrap()]);
    assert_eq!(code, 3, "{message}");
    let (planned, _) = refused(&["bench", "--ports", "eknone0,eknone1", "--dry-run"]);
    assert_eq!(planned, 3, "a plan for ports that are not there");
    assert!(message.contains("no interface `eknone0`") && message.contains("; there are: "), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "files stay behind");
}

#[test]
fn the_plan_is_shown_without_privilege_and_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
            .arg("bench")
            .args(args)
            .arg("--dry-run")
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let plan =
        run(&["--dut", "router,stateful", "--sizes", "64,1518", "--datagrams=4096", "--imix", "--tests", "latency"]);
    let ceilings = plan.lines().filter(|l| l.contains("tester's ceiling")).count();
    assert_eq!(ceilings, 4, "{plan}");
    for words in ["4096 in 3 fragments", "imix", "stateful", "throughput", "latency", "20 steps, about"] {
        assert!(plan.contains(words), "{words}: {plan}");
    }
    let document: serde_json::Value =
        serde_json::from_str(&run(&["--dut", "router", "--sizes", "64", "--json"])).unwrap();
    let steps = document["steps"].as_array().unwrap();
    assert_eq!((&document["schema"], steps.len()), (&"evenkeel.bench.plan/1".into(), 3));
    assert_eq!((&steps[1]["box"], &steps[1]["test"]), (&"router".into(), &"throughput".into()));
    assert!(document["seconds"].as_f64().unwrap() > 0.0, "{document}");
    let all = run(&["--preset", "study"]);
    assert!(all.contains("49 steps") && all.contains(" h"), "{all}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_report_needs_runs() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.json");
    fs::write(&other, r#"{"schema": "evenkeel.top/1"}"#).unwrap();
    let other = other.to_str().unwrap();
    let plain = folder.path().join("plain.txt");
    fs::write(&plain, "no run at all\n").unwrap();
    let plain = plain.to_str().unwrap();
    for args in [["show", plain], ["show", "/dev/null"]] {
        let (code, message) = refused(&[&["report"], &args[..]].concat());
        assert!(code == 2 && message.contains(args[1]) && !message.contains("column"), "{message}");
    }
    for (args, words) in [
        (&["show", other][..], "`evenkeel.top/1`"),
        (&["show", "/no/such/run.json"], "cannot read the run"),
        (&["compare", other], "2 values required"),
        (&["compare", other, other], "`evenkeel.top/1`"),
    ] {
        let (code, message) = refused(&[&["report"], args].concat());
        assert_eq!(code, 2, "{args:?}: {message}");
        assert!(message.contains(words), "{args:?}: {message}");
    }
}

#[test]
fn runs_without_a_figure_cannot_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    fs::write(&file, include_str!("fixtures/bench_empty.json")).unwrap();
    let file = file.to_str().unwrap();
    let output = evenkeel(&["report", "compare", file, file, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = json(&output);
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(0));
    // Nor has it a table of dashes, or figures of others.
    let shown = text(&evenkeel(&["report", "show", file]).stdout);
    assert!(!shown.contains("FRAME") && !shown.contains("pfSense"), "{shown}");
}
