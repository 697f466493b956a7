//! `evenkeel selftest`: rows as root, and for whom everything is missing.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use testbed::{json, printed, privileged, refused};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// The outcome of each row.
fn outcomes(output: &Output) -> BTreeMap<String, String> {
    let document = json(output);
    assert_eq!(document["schema"], "evenkeel.selftest/1");
    let rows = document["rows"].as_array().expect("rows").clone();
    let text = |row: &Value, key: &str| row[key].as_str().expect("a text").to_owned();
    for row in &rows {
        let is_fine = row["outcome"] == "works";
        assert!(is_fine || (row["fix"].is_string() && !text(row, "reason").is_empty()), "{row}");
    }
    rows.iter().map(|row| (text(row, "name"), text(row, "outcome"))).collect()
}

/// Namespaces that a process has made.
fn namespaces_of(pid: u32) -> Vec<String> {
    let prefix = format!("ek-{pid}-");
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).filter(|name| name.starts_with(&prefix)).collect()
}

#[test]
fn root_tries_everything_and_leaves_nothing() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let share = folder.path().join("share.json");
    let mut command = Command::new(EVENKEEL);
    command.args(["selftest", "lo", "--json", "--share"]).arg(&share).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", printed(&output));
    let outcomes = outcomes(&output);
    for name in ["BTF", "CAP_BPF", "XDP, native (veth)", "XDP, generic", "packet ring (TPACKET_V3)", "live frames"] {
        assert_eq!(outcomes.get(name).map(String::as_str), Some("works"), "{name}: {}", printed(&output));
    }
    for name in ["ledger", "top", "doctor", "profile", "capture, ring", "gen", "XDP in the driver"] {
        assert!(outcomes.contains_key(name), "{name}: {outcomes:?}");
    }
    assert_eq!((outcomes["ledger"].as_str(), outcomes["gen"].as_str()), ("works", "works"), "{}", printed(&output));
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    let shared = fs::read_to_string(share).unwrap();
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(!shared.contains(hostname.trim()) && !shared.contains("198.18."), "{shared}");
}

#[test]
fn without_capabilities_each_row_says_what_is_missing() {
    for wrapper in
        [&["setpriv", "--bounding-set=-all", "--inh-caps=-all"][..], &["unshare", "--user", "--map-root-user"]]
    {
        let ran = Command::new(wrapper[0]).args(&wrapper[1..]).args([EVENKEEL, "selftest", "--json"]).output();
        let Ok(output) = ran else { continue };
        if output.status.code() != Some(1) {
            // A machine that has no user namespaces.
            assert!(output.stdout.is_empty(), "{}", printed(&output));
            continue;
        }
        let outcomes = outcomes(&output);
        assert_ne!(outcomes["ledger"], "works", "{wrapper:?}: {outcomes:?}");
        assert_eq!(outcomes["BTF"], "works");
    }
}

#[test]
fn an_interface_that_is_not_there_is_refused() {
    refused(&Command::new(EVENKEEL).args(["selftest", "ek-none"]).output().unwrap(), 3, &["ek-none"]);
}
