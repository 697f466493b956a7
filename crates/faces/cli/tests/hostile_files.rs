//! What another user of the machine, or the sender of a file, can plant: links, journals, names.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
    process::{Command, Output},
};

use testbed::{ended, printed, privileged, refused};

const SOMEBODY: u32 = 65533;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(args).output().unwrap()
}

/// A folder as /tmp is.
fn for_all() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

#[test]
fn no_verb_writes_through_a_link_that_somebody_else_planted() {
    let Some(()) = privileged() else { return };
    let (planted, ours) = (for_all(), tempfile::tempdir().unwrap());
    let target = ours.path().join("of-root");
    fs::write(&target, "kept").unwrap();
    let link = planted.path().join("page");
    symlink(&target, &link).unwrap();
    nix::unistd::fchownat(
        nix::fcntl::AT_FDCWD,
        &link,
        Some(SOMEBODY.into()),
        Some(SOMEBODY.into()),
        nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW,
    )
    .unwrap();
    let link = link.to_str().unwrap();
    for args in [
        &["snapshot", link][..],
        &["demo", "--html", link],
        &["profile", "--flamegraph", link],
        &["profile", "--save", link],
        &["bench", "--dut", "wire", "--sizes", "64", "--save", link],
        &["bench", "flood", "--save", link],
        &["capture", "lo", "--count", "1", "-w", link],
    ] {
        refused(&run(args), 2, &[link]);
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    assert_eq!(fs::read_dir(planted.path()).unwrap().count(), 1, "nothing else is left there");
}

/// The journal of a session that would set `net/core/rmem_max`, in a folder of its own; `command` is what was typed.
fn journal(command: &str) -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let begin = serde_json::json!({
        "record": "begin", "session": "1-1", "started_unix_ns": 1, "boot_id": boot.trim(), "pid": 1, "command": command,
    });
    fs::create_dir(state.path().join("journal")).unwrap();
    fs::write(state.path().join("journal/1-1.jsonl"), format!("{begin}\n")).unwrap();
    state
}

#[test]
fn a_journal_of_another_user_is_refused() {
    let Some(()) = privileged() else { return };
    let state = journal("spread apply");
    let args = ["undo", "--list", "--state", state.path().to_str().unwrap()];
    assert_eq!(run(&args).status.code(), Some(0), "root's own is read");
    for path in ["", "journal", "journal/1-1.jsonl"].map(|name| state.path().join(name)) {
        chown(&path, Some(SOMEBODY), None).unwrap();
        for args in [&args[..], &["undo", "--state", args[3]], &["confirm", "--state", args[3]]] {
            refused(&run(args), 3, &[&SOMEBODY.to_string()]);
        }
        chown(&path, Some(0), None).unwrap();
    }
}

#[test]
fn the_command_of_a_session_fakes_no_row_of_the_list() {
    let state = journal("spread apply --policy \x1b[31ma\n000001  2026-01-01  spread  undone\tb");
    let listed = run(&["undo", "--list", "--state", state.path().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.status.code(), Some(0), "{}", printed(&listed));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("000001")), "{text:?}");
}

#[test]
fn an_odd_file_hides_no_session() {
    let state = journal("spread apply");
    let folder = state.path().join("journal");
    let args = ["undo", "--list", "--json", "--state", state.path().to_str().unwrap()];
    let listed = |output: &Output| {
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        json["sessions"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(listed(&run(&args)), 1);
    let odd = folder.join("0-0.jsonl");
    let oddities: [&dyn Fn(); 4] = [
        &|| fs::write(&odd, "{\"bad\n").unwrap(),
        &|| fs::write(&odd, b"\xff\n").unwrap(),
        &|| symlink("/dev/zero", &odd).unwrap(),
        &|| nix::unistd::mkfifo(&odd, nix::sys::stat::Mode::S_IRUSR).unwrap(),
    ];
    for (number, make) in oddities.iter().enumerate() {
        make();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(3), "{number}: {}", printed(&output));
        assert_eq!(listed(&output), 1, "{number}: {}", printed(&output));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("0-0.jsonl") && message.contains("move the file away"), "{number}: {message}");
        fs::remove_file(&odd).unwrap();
    }
}

/// What a terminal would act on.
fn acted_on(text: &str) -> Vec<char> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|&c| (c.is_control() && c != '\n' && c != '\t') || turns(c)).collect()
}

#[test]
fn names_of_others_do_not_reach_the_terminal_as_commands() {
    const NAME: &str = "x\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}y";
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let state = journal(NAME);
    let run_of_other = file("run.json", &serde_json::json!({ "schema": NAME }).to_string());
    let report =
        file("report.json", &serde_json::json!({ "schema": "evenkeel.doctor/1", "hostname": NAME }).to_string());
    let copy = copy_with_hostname(folder.path(), "x\u{1b}[2J\u{9b}y");
    let mut visible = 0;
    for args in [
        &["undo", "--list", "--state", state.path().to_str().unwrap()][..],
        &["undo", "--list", "--json", "--state", state.path().to_str().unwrap()],
        &["report", "show", &run_of_other],
        &["doctor", "compare", &report, &report],
        &["doctor", "--root", &copy],
        &["doctor", "--json", "--root", &copy],
        &["spread", "plan", "--root", &copy],
        &["spread", "plan", NAME, "--root", &copy],
    ] {
        let output = run(args);
        assert!(acted_on(&printed(&output)).is_empty(), "{args:?}: {:?}", printed(&output));
        visible += usize::from(printed(&output).contains("\\x1b") || printed(&output).contains("\\u001b"));
    }
    assert!(visible >= 5, "the names are seen, in {visible} of 8");
}

#[test]
fn arguments_do_not_reach_the_terminal_as_commands() {
    const NAME: &str = "vx\u{1b}[31m\u{1b}]0;owned\u{7}";
    let path = format!("{NAME}.pcap");
    for args in [
        &["shield", "status", NAME][..],
        &["shield", "check", NAME],
        &["capture", "-r", &path],
        &["capture", NAME],
        &["report", "show", NAME],
        &["doctor", "--root", NAME],
        &["undo", NAME],
        &["ledger", &format!("--{NAME}")],
        &["gen", "lo", "--udp", "--rate", NAME],
        &[NAME],
    ] {
        let output = run(args);
        assert!(matches!(output.status.code(), Some(2 | 3)), "{args:?}: {}", printed(&output));
        assert!(acted_on(&printed(&output)).is_empty(), "{args:?}: {:?}", printed(&output));
    }
}

/// A saved machine whose hostname is as long as that of the fixture that it is made of.
fn copy_with_hostname(folder: &Path, name: &str) -> String {
    let mut bytes = fs::read(testbed::fixture("detuned-router")).unwrap();
    let old = b"detuned-router\n";
    let at = bytes.windows(old.len()).position(|window| window == old).expect("the hostname");
    let mut new = name.as_bytes().to_vec();
    new.resize(old.len() - 1, b'z');
    bytes[at..at + old.len() - 1].copy_from_slice(&new);
    let path = folder.join("machine.tar");
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_file_without_end_is_an_error() {
    for args in [&["report", "show", "/dev/zero"][..], &["doctor", "compare", "/dev/zero", "/dev/zero"]] {
        ended(&run(args), 2);
    }
}
