//! `evenkeel selftest` as root, and without capabilities, file systems or system calls.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{Running, json, printed, privileged, refused, wait};

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
    for name in ["ledger", "gen", "capture, xdp", "shield, native", "shield, generic", "shield, challenge", "link"] {
        assert_eq!(outcomes[name], "works", "{name}: {}", printed(&output));
    }
    // The row is `limited` on kernels that do not let some functions be traced.
    assert!(["works", "limited"].contains(&outcomes["route"].as_str()), "{}", printed(&output));
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    let shared = fs::read_to_string(share).unwrap();
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(!shared.contains(hostname.trim()) && !shared.contains("198.18."), "{shared}");
}

/// The rows of a selftest behind the command `wrapper`. The test fails unless it ends in time and with a row that does not work.
fn within(wrapper: &[&str]) -> Option<Vec<Value>> {
    let mut command = Command::new("timeout");
    let ran = command.args(["100"]).args(wrapper).args([EVENKEEL, "selftest", "--json"]).output().unwrap();
    if ran.status.code() != Some(1) && ran.stdout.is_empty() {
        // The machine may have no user namespaces.
        assert_eq!(wrapper[0], "unshare", "{}", printed(&ran));
        return None;
    }
    assert!(!printed(&ran).contains("panicked"), "{}", printed(&ran));
    outcomes(&ran);
    Some(json(&ran)["rows"].as_array().expect("rows").clone())
}

/// A row's outcome and reason.
fn row<'a>(rows: &'a [Value], name: &str) -> (&'a str, &'a str) {
    let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    (row["outcome"].as_str().expect("a text"), row["reason"].as_str().expect("a text"))
}

/// Trials of verbs that load kernel programs and run until a signal.
const LOADING: [&str; 5] = ["shield, native", "shield, generic", "shield, challenge", "route", "link"];

#[test]
fn without_capabilities_each_row_says_what_is_missing() {
    let Some(()) = privileged() else { return };
    for wrapper in [
        &["setpriv", "--bounding-set=-all", "--inh-caps=-all"][..],
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
    ] {
        let rows = within(wrapper).expect("rows");
        assert_eq!(row(&rows, "BTF").0, "works");
        assert_eq!(row(&rows, "XDP, generic"), ("untried", "it needs CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN"));
        for verb in ["ledger", "top", "doctor"] {
            assert_eq!(row(&rows, verb).0, "limited", "{wrapper:?}: {verb}");
        }
        for verb in LOADING {
            assert_eq!(row(&rows, verb).0, "untried", "{wrapper:?}: {verb}");
        }
    }
}

#[test]
fn in_a_user_namespace_rows_have_the_kernel_s_answers() {
    for more in [&[][..], &["--net", "--mount"]] {
        let Some(rows) = within(&[&["unshare", "--user", "--map-root-user"], more].concat()) else { return };
        let (outcome, reason) = row(&rows, "system call bpf");
        assert!(outcome == "fails" && reason.contains("not permitted"), "{reason}");
        for verb in LOADING {
            assert_ne!(row(&rows, verb).0, "works", "{more:?}: {verb}");
        }
    }
}

#[test]
fn what_a_machine_lacks_is_named_in_the_rows_that_need_it() {
    let Some(()) = privileged() else { return };
    let mounted = |line: &str| {
        let line = format!("{line} && exec \"$0\" \"$@\"");
        within(&["unshare", "--mount", "sh", "-c", &line]).expect("rows")
    };
    let rows = mounted("umount -l /sys/fs/bpf");
    assert_eq!(row(&rows, "BPF file system"), ("fails", "/sys/fs/bpf is not mounted"));
    for verb in &LOADING[..3] {
        let (outcome, reason) = row(&rows, verb);
        assert!(outcome == "fails" && reason.contains("/sys/fs/bpf"), "{verb}: {reason}");
    }
    assert_eq!(row(&rows, "link").0, "works", "it pins nothing: {rows:?}");

    // A read-only /etc makes no difference.
    let read_only = "mount --bind /etc /etc && mount -o remount,bind,ro /etc";
    let rows = mounted(&format!("{read_only} && mount --bind /dev/null /sys/kernel/btf/vmlinux"));
    assert_eq!(row(&rows, "BTF").0, "fails");
    for verb in &LOADING[..4] {
        let (outcome, reason) = row(&rows, verb);
        assert!(outcome == "fails" && reason.contains("BTF"), "{verb}: {reason}");
    }
    for name in ["XDP, native (veth)", "packet ring (TPACKET_V3)", "spread plan", "control groups"] {
        assert_eq!(row(&rows, name).0, "works", "{name}: {rows:?}");
    }
}

/// A program that runs a command with a seccomp filter which refuses one system call, as those of containers do.
const SECCOMP: &str = r#"
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn a_seccomp_filter_that_refuses_bpf_is_named() {
    let Some(()) = privileged() else { return };
    let number = nix::libc::SYS_bpf.to_string();
    let rows = within(&["python3", "-c", SECCOMP, &number]).expect("rows");
    let (outcome, reason) = row(&rows, "system call bpf");
    assert!(outcome == "fails" && reason.contains("seccomp"), "{reason}");
    let maps = rows.iter().find(|row| row["name"] == "memory of maps (8 MiB)").expect("a row");
    assert!(maps["fix"].as_str().expect("a fix").contains("system call bpf"), "{maps}");
    for verb in LOADING {
        assert_eq!(row(&rows, verb).0, "fails", "{verb}");
    }
    assert_eq!(row(&rows, "ledger").0, "limited", "no cause is named");
    for name in ["fanout", "capture, ring", "spread plan"] {
        assert_eq!(row(&rows, name).0, "works", "{name}: {rows:?}");
    }
}

#[test]
fn what_it_made_is_gone_when_it_is_interrupted() {
    let Some(()) = privileged() else { return };
    let running = Running::piped(Command::new(EVENKEEL).arg("selftest"));
    let pid = running.pid();
    wait("a lab", || !namespaces_of(pid).is_empty());
    running.signal(Signal::SIGINT);
    assert!(running.end().code().is_none(), "a signal ended it");
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

#[test]
fn a_shared_report_names_neither_the_host_nor_its_interfaces_and_addresses() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let share = folder.path().join("share.json");
    // The namespaces end with the shell.
    let line = "hostname ekshy-host && mount -t sysfs sysfs /sys && ip link add ekshy0 address 02:00:5e:10:00:01 type veth peer name ekshy1 && \
                ip addr add 198.51.100.77/24 dev ekshy0 && ip link set ekshy0 up && exec \"$0\" selftest ekshy0 --json --share \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["--uts", "--net", "--mount", "sh", "-c", line, EVENKEEL]).arg(&share);
    let output = command.output().unwrap();
    assert_eq!(json(&output)["interface"], "ekshy0", "{}", printed(&output));
    let shared = fs::read_to_string(share).unwrap();
    let document: Value = serde_json::from_str(&shared).unwrap();
    assert_eq!(document["rows"].as_array().map(Vec::len), json(&output)["rows"].as_array().map(Vec::len));
    for secret in ["ekshy", "02:00:5e", "198.51.100"] {
        assert!(!shared.contains(secret), "{secret}: {shared}");
    }
}

#[test]
fn a_report_is_not_written_through_the_link_of_another_user() {
    let Some(()) = privileged() else { return };
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    fs::write(&ours, "kept").unwrap();
    let share = theirs.path().join("share.json");
    std::os::unix::fs::symlink(&ours, &share).unwrap();
    std::os::unix::fs::chown(theirs.path(), Some(65534), Some(65534)).unwrap();
    let output = Command::new(EVENKEEL).args(["selftest", "--share"]).arg(&share).output().unwrap();
    refused(&output, 2, &["share.json", "link"]);
    assert_eq!(fs::read_to_string(&ours).unwrap(), "kept");
}

#[test]
fn a_terminal_shows_the_trial_that_runs_until_the_last_has_ended() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("answer");
    let line = format!("exec '{EVENKEEL}' selftest --timeout 1ms --json >'{}'", answer.display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--command", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let seen = String::from_utf8_lossy(&script.output().expect("script starts").stdout).into_owned();
    assert!(seen.contains("CAP_NET_ADMIN"), "{seen:?}");
    let erased = seen.rfind("\u{1b}[2K").expect("an erased line");
    assert!(!seen[erased..].contains('/'), "{seen:?}");
    let rows: Value = serde_json::from_str(&fs::read_to_string(answer).unwrap()).unwrap();
    assert!(rows["rows"].is_array());
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_trials() {
    let began = Instant::now();
    let output = Command::new(EVENKEEL).args(["selftest", "--share", "/nowhere/report.json"]).output().unwrap();
    refused(&output, 2, &["/nowhere/report.json", "does not exist"]);
    assert!(output.stdout.is_empty() && began.elapsed() < Duration::from_secs(5), "{}", printed(&output));
}

#[test]
fn an_interface_that_is_not_there_is_refused() {
    refused(&Command::new(EVENKEEL).args(["selftest", "ek-none"]).output().unwrap(), 3, &["ek-none"]);
}
