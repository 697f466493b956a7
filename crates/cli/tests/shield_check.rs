//! `evenkeel shield check`, `explain` and `unit` from outside: what they print and how they end.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

fn shield(arguments: &[&str], session: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("shield").args(arguments).env("SSH_CONNECTION", session);
    command.output().expect("the program starts")
}

fn example() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/shield.toml")
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.toml");
    std::fs::write(&path, text).expect("a file");
    let name = path.display().to_string();
    (folder, name)
}

#[test]
fn the_documented_example_has_nothing_wrong() {
    let output = shield(&["check", &example().display().to_string()], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn what_is_wrong_is_told_by_line_and_column() {
    let (_folder, name) = file("[[rule]]\nname = \"a\"\naction = \"drop\"\nsource = \"10.0.0.1/8\"\n");
    let output = shield(&["check", &name], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("rules.toml:4:10: ") && message.contains("write 10.0.0.0/8"), "{message}");
}

#[test]
fn a_rule_that_cuts_off_the_session_is_a_finding() {
    let text = "[management]\nsession = false\n[[rule]]\nname = \"a\"\naction = \"drop\"\nsource = \"10.0.0.0/8\"\n";
    let (_folder, name) = file(text);
    let session = "10.1.2.3 50000 192.0.2.1 22";
    let output = shield(&["check", &name, "--json"], session);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["schema"], "evenkeel.shield.check/1");
    let harm = document["findings"].as_array().expect("findings").iter().find(|finding| finding["weight"] == "harm");
    assert_eq!(harm.expect("a finding")["line"], 3, "{document}");
    let output = shield(&["run", "lo", "--rules", &name], session);
    assert_eq!(output.status.code(), Some(2), "nothing is done: {output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cut off the session"), "{output:?}");
}

#[test]
fn a_unit_names_the_file_by_its_whole_path() {
    let (folder, name) = file("");
    let output = shield(&["unit", "eth9", "--rules", &name, "--fail", "closed"], "");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let rules = folder.path().join("rules.toml");
    assert!(text.contains(&format!("shield run eth9 --json --rules {} --fail closed", rules.display())), "{text}");
}

#[test]
fn the_plan_is_a_script_that_nft_takes() {
    let (folder, name) = file("[[rule]]\nname = \"dns\"\naction = \"drop\"\nprotocol = \"udp\"\nsource-port = 53\n");
    let output = shield(&["plan", "lo", "--rules", &name], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let script = folder.path().join("rules.nft");
    std::fs::write(&script, &output.stdout).expect("a file");
    // In a namespace of its own, which ends with the program: nothing of it is on this machine.
    let checked = Command::new("unshare").args(["-n", "nft", "-c", "-f"]).arg(&script).output().expect("unshare");
    let refused = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() || refused.contains("not permitted"), "{refused}");
    assert!(!(std::env::var_os("CI").is_some() && refused.contains("not permitted")), "CI runs as root: {refused}");

    let (_folder, name) = file("[[rule]]\nname = \"syn\"\naction = \"challenge\"\nprotocol = \"tcp\"\n");
    let output = shield(&["plan", "lo", "--rules", &name], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"syn\" challenges"), "{output:?}");
}
