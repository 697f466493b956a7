//! What is printed and lost: a full disk is told and is no success, a reader that went away is no matter, and nothing panics.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use assert_cmd::cargo::CommandCargoExt;
use testbed::{Bed, privileged, text, wait, words};

const CANNOT: &str = "evenkeel: cannot write to the standard output: No space left on device";

fn to(stdout: Stdio, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("evenkeel").unwrap();
    command.args(args).stdout(stdout).stderr(Stdio::piped()).output().unwrap()
}

fn to_full_disk(args: &[&str]) -> Output {
    to(fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into(), args)
}

fn to_closed_pipe(args: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    to(writer.into(), args)
}

/// A run of a verb whose answer nobody gets.
fn check(args: &[&str]) {
    let full = to_full_disk(args);
    let stderr = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(3), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().filter(|line| line.starts_with("evenkeel: ")).count(), 1, "{args:?}: {stderr}");
    assert!(stderr.contains(CANNOT) && !stderr.contains("panicked"), "{args:?}: {stderr}");

    let closed = to_closed_pipe(args);
    let stderr = String::from_utf8_lossy(&closed.stderr);
    assert!(matches!(closed.status.code(), Some(0 | 1)), "{args:?}: {:?} {stderr}", closed.status);
    let is_error = |line: &str| line.starts_with("evenkeel: ");
    assert!(!stderr.contains("panicked") && !stderr.lines().any(is_error), "{args:?}: {stderr}");
}

/// The saved machine, the rules and a place for files, by the names they have in the lines below.
fn with_places(line: &str, folder: &Path) -> String {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    line.replace("SAVED", &format!("{repository}/fixtures/dual-socket-24cpu.tar"))
        .replace("RULES", &format!("{repository}/docs/examples/shield.toml"))
        .replace("FOLDER", folder.to_str().unwrap())
}

#[test]
fn a_lost_answer_is_reported_by_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let report = Command::cargo_bin("evenkeel")
        .unwrap()
        .args(words(&with_places("doctor --json --root SAVED", folder.path())))
        .output();
    fs::write(folder.path().join("report.json"), report.unwrap().stdout).unwrap();
    fs::write(folder.path().join("rules.toml"), "[[rule]]\nname = \"all\"\naction = \"drop\"\n").unwrap();
    for line in [
        "--help",
        "--version",
        "spread plan --help",
        "completions bash",
        "completions zsh",
        "completions fish",
        "spread --root SAVED",
        "spread plan --full --root SAVED",
        "spread plan --shell --root SAVED",
        "spread plan --json --root SAVED",
        "spread members --root SAVED",
        "spread members --json --root SAVED",
        "spread status --interval 0.05 --state FOLDER",
        "spread status --interval 0.05 --state FOLDER --json",
        "spread apply lo --dry-run",
        "doctor --root SAVED",
        "doctor --root SAVED --all",
        "doctor --root SAVED --json",
        "doctor --list",
        "doctor --list --json",
        "doctor --list --markdown",
        "doctor --fix --dry-run --root SAVED",
        "doctor compare FOLDER/report.json FOLDER/report.json",
        "doctor compare FOLDER/report.json FOLDER/report.json --json",
        "keep --etc FOLDER --state FOLDER",
        "keep --etc FOLDER --state FOLDER --json",
        "keep unit",
        "undo --state FOLDER",
        "undo --state FOLDER --json",
        "undo --state FOLDER --list",
        "undo --state FOLDER --list --json",
        "confirm --state FOLDER",
        "snapshot -",
        "selftest",
        "top --once --interval 0.1",
        "top --once --interval 0.1 --json",
        "bench --dry-run",
        "shield check RULES",
        "shield check RULES --json",
        "shield plan lo --rules FOLDER/rules.toml",
        "shield unit lo --rules RULES",
    ] {
        check(&words(&with_places(line, folder.path())));
    }
}

#[test]
fn a_lost_measurement_is_reported_too() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "capture lo --count-only --duration 0.1",
        "capture lo --duration 0.1 --json",
        "gen lo --udp --rate 10 --duration 100ms",
        "gen lo --udp --rate 10 --duration 100ms --json",
        "ledger --once --interval 0.1",
        "ledger --once --interval 0.1 --json",
        "profile --duration 100ms --save FOLDER/profile.json",
        "profile --duration 100ms --json",
        "profile --compare FOLDER/profile.json FOLDER/profile.json",
        "profile --compare FOLDER/profile.json FOLDER/profile.json --json",
        "spread watch --once --interval 0.1 --state FOLDER",
        "spread watch --count 1 --interval 0.1 --dry-run --json --state FOLDER",
    ] {
        check(&words(&with_places(line, folder.path())));
    }
}

#[test]
fn what_changes_the_machine_is_done_all_the_same() {
    let Some(bed) = Bed::new("lost", &["box"]) else { return };
    let space = bed.space("box");
    space.output("ip link add eklo0 type veth peer name eklo1");
    let rps = || space.read("/sys/class/net/eklo0/queues/rx-0/rps_cpus");
    let (state, before) = (tempfile::tempdir().unwrap(), rps());
    let lost = |line: &str, stdout: Stdio| {
        let mut command = Command::cargo_bin("evenkeel").unwrap();
        command.args(words(line)).arg("--state").arg(state.path()).stdout(stdout).stderr(Stdio::piped());
        let output = space.run(|| command.output().unwrap());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{line}: {stderr}");
        assert!(stderr.contains("cannot write to the standard output: "), "{line}: {stderr}");
        assert!(stderr.contains("was done all the same") && !stderr.contains("panicked"), "{line}: {stderr}");
    };
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    for json in ["", " --json"] {
        lost(&format!("spread apply eklo0 --rps on{json}"), full());
        assert_ne!(rps(), before);
        lost(&format!("undo{json}"), full());
        assert_eq!(rps(), before);
        lost(&format!("spread apply eklo0 --rps on{json}"), closed());
        assert_ne!(rps(), before);
        lost(&format!("undo --all{json}"), closed());
        assert_eq!(rps(), before);
    }
    lost("spread apply eklo0 --rps on --commit-confirm 300", full());
    lost("confirm", closed());
    lost("undo", full());
    assert_eq!(rps(), before);
    // The guardian looks once a second. Without its journal it would stay until its time is over.
    let folder = state.path().to_str().unwrap();
    let is_its = |process: fs::DirEntry| {
        fs::read_to_string(process.path().join("cmdline")).is_ok_and(|line| line.split('\0').any(|word| word == folder))
    };
    wait("the end of the guardian", || !fs::read_dir("/proc").unwrap().flatten().any(is_its));
}
