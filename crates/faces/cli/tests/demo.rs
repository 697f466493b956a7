//! The demo from outside, on the real kernel: the ledgers close, the page stands alone, nothing stays. Needs root.

use std::{fs, process::Command};

use assert_cmd::cargo::cargo_bin;
use testbed::{Running, WAIT_TIMEOUT, json, printed, privileged, wait, wait_up_to};

/// The namespaces of the process with that id.
fn namespaces_of(pid: u32) -> Vec<String> {
    let prefix = format!("ek-{pid}-");
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).filter(|name| name.starts_with(&prefix)).collect()
}

fn demo() -> Command {
    Command::new(cargo_bin("evenkeel"))
}

#[test]
fn every_ledger_closes_and_the_page_stands_alone() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let mut child = demo();
    child.args(["demo", "--duration", "0.5", "--repeats", "1", "--rate", "200000", "--json", "--html"]).arg(&page);
    let child = Running::piped(&mut child);
    let pid = child.pid();
    let output = child.output();
    assert!(output.status.success(), "{}", printed(&output));

    let run = json(&output);
    assert_eq!(run["schema"], "evenkeel.demo/1");
    let stages = run["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 8);
    for stage in stages {
        let ledger: model::Ledger = serde_json::from_value(stage["ledger"].clone()).unwrap();
        assert!(ledger.offered > 10_000, "the flood was sent: {ledger:?}");
        assert!(ledger.delivered > 0, "something was captured: {ledger:?}");
        assert!(ledger.unexplained_ratio() < 0.001, "{} does not close: {ledger:?}", stage["name"]);
    }
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("AF_XDP") && html.contains("Where the packets went"));
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

/// The page of the first look is whole before the long measurements, and stays when these are interrupted.
#[test]
fn a_first_look_has_a_page() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let mut child = demo();
    child.args(["demo", "--rate", "200000", "--html"]).arg(&page);
    let child = Running::silent(&mut child);
    let pid = child.pid();
    // Eight stages are loaded and measured before it.
    wait_up_to(5 * WAIT_TIMEOUT, "the page of the first look", || page.exists());
    let first = fs::read_to_string(&page).unwrap();
    assert!(first.contains("AF_XDP") && first.contains("</html>"));
    let status = child.stop(nix::sys::signal::Signal::SIGINT);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2));
    assert_eq!(fs::read_to_string(&page).unwrap(), first);
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the page alone");
}

#[test]
fn ctrl_c_leaves_nothing_and_ends_by_the_signal() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo();
    child.args(["demo", "--duration", "30"]).current_dir(folder.path());
    let child = Running::silent(&mut child);
    let pid = child.pid();
    wait("its namespaces", || namespaces_of(pid).len() >= 2);
    let status = child.stop(nix::sys::signal::Signal::SIGINT);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2));
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no half page stays");
}

#[test]
fn what_a_killed_demo_left_goes_with_the_next_start() {
    let Some(()) = privileged() else { return };
    let mut child = demo();
    child.args(["demo", "--duration", "30", "--no-html"]);
    let child = Running::silent(&mut child);
    let pid = child.pid();
    wait("its namespaces", || namespaces_of(pid).len() >= 2);
    child.kill();
    assert_eq!(namespaces_of(pid).len(), 2, "kill -9 leaves the names");
    // Another lab may have cleared them in the meantime: all the same.
    lab::Lab::new("after").unwrap();
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}
