//! `doctor` on saved machines and on this one: what it says, that it is quick, and that `--fix` and `undo` leave the machine
//! exactly as it was.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

fn evenkeel(args: &[&str]) -> Output {
    Command::cargo_bin("evenkeel").unwrap().args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

fn fixture(name: &str) -> String {
    format!("{}/../../../fixtures/{name}.tar", env!("CARGO_MANIFEST_DIR"))
}

/// Says why a test does not run; in CI that is a failure.
fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped, which CI must not: {why}");
    eprintln!("skipped: {why}");
}

#[test]
fn a_saved_machine_is_examined() {
    let found = evenkeel(&["doctor", "--root", &fixture("dual-socket-24cpu")]);
    assert_eq!(found.status.code(), Some(1), "findings: {}", text(&found));
    let said = stdout(&found);
    assert!(said.contains("rings (eth0)") && said.contains("ethtool -G eth0 rx 4096  # now 512"), "{said}");
    assert!(said.contains("role server (guessed"), "{said}");
    assert!(!said.contains("GOOD"), "good ones are a count: {said}");
    assert!(text(&found).contains("saved by an earlier evenkeel"), "{}", text(&found));

    let document = json(&evenkeel(&["doctor", "--root", &fixture("dual-socket-24cpu"), "--json", "--role", "router"]));
    assert_eq!(document["schema"], "evenkeel.doctor/1");
    assert_eq!((document["role"].as_str(), document["role_guessed"].as_bool()), (Some("router"), Some(false)));
    let fine = evenkeel(&["doctor", "--root", &fixture("single-queue-vm"), "--only", "rings", "--all"]);
    assert_eq!(fine.status.code(), Some(0), "nothing to change: {}", text(&fine));
    assert!(stdout(&fine).contains("GOOD"), "{}", text(&fine));
}

#[test]
fn a_copy_of_a_later_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (file, content) in [
        ("evenkeel/format", "99\n"),
        ("sys/devices/system/cpu/present", "0\n"),
        ("sys/devices/system/cpu/online", "0\n"),
        ("sys/class/net/lo/ifindex", "1\n"),
        ("proc/interrupts", "           CPU0\n"),
    ] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let found = evenkeel(&["doctor", "--root", folder.path().to_str().unwrap()]);
    assert!(text(&found).contains("saved by a later evenkeel (format 99"), "{}", text(&found));
    assert!(found.status.code() == Some(0) || found.status.code() == Some(1), "{}", text(&found));
}

#[test]
fn wrong_usage_is_said() {
    for (args, code, said) in [
        (&["doctor", "--only", "ring"][..], 2, "did you mean `rings`?"),
        (&["doctor", "--root", "/ek-missing"], 2, "--root takes a tar written by `evenkeel snapshot`"),
        (&["doctor", "--root", &fixture("shared-irq"), "--fix"], 2, "--dry-run prints the commands for it"),
        (&["doctor", "--role", "toaster"], 2, "router"),
        (&["doctor", "--root", &fixture("shared-irq"), "--only", "rings:nosuch"], 3, "`nosuch`"),
    ] {
        let output = evenkeel(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{args:?}: {}", text(&output));
    }
}

#[test]
fn a_dry_run_is_a_shell_script() {
    let output =
        evenkeel(&["doctor", "--root", &fixture("mlx5-64q-128cpu"), "--fix", "rings", "far-node", "--dry-run"]);
    assert!(output.status.success(), "{}", text(&output));
    let said = stdout(&output);
    assert!(said.contains("ethtool -G enp129s0np0 rx 4096"), "{said}");
    assert!(said.contains("> /proc/irq/"), "{said}");
    assert!(said.lines().all(|l| ["ethtool ", "echo ", "#"].iter().any(|p| l.starts_with(p))), "{said}");
    let parsed = Command::new("sh").arg("-nc").arg(&said).output().unwrap();
    assert!(parsed.status.success(), "{}", text(&parsed));
}

#[test]
fn the_live_machine_is_watched_and_examined() {
    let folder = tempfile::tempdir().unwrap();
    let document = json(&evenkeel(&["doctor", "--json", "--state", folder.path().to_str().unwrap()]));
    assert!(document["watched_s"].as_f64().is_some_and(|s| s > 0.0), "{document:#}");
    let findings = document["findings"].as_array().unwrap();
    let listed = json(&evenkeel(&["doctor", "--list", "--json"]));
    for check in listed["checks"].as_array().unwrap() {
        assert!(findings.iter().any(|f| f["check"] == check["check"]), "no answer: {check}");
    }
}

/// Without a privilege it says what it could not read, and examines the rest.
#[test]
fn without_root_the_rest_is_examined() {
    if !nix::unistd::geteuid().is_root() {
        return skip("becoming nobody takes root");
    }
    let program = assert_cmd::cargo::cargo_bin("evenkeel");
    // The build's folder may not be open to others.
    let copy = Path::new("/tmp").join(format!("ek-doctor-{}", std::process::id()));
    fs::copy(program, &copy).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(&copy)
        .args(["doctor", "--json"])
        .current_dir("/")
        .output();
    fs::remove_file(&copy).unwrap();
    let document = json(&output.unwrap());
    let findings = document["findings"].as_array().unwrap();
    let known = findings.iter().filter(|f| f["verdict"] != "unknown").count();
    assert!(known > 25, "{known} of {} are known", findings.len());
    let unknown: Vec<&Value> = findings.iter().filter(|f| f["verdict"] == "unknown").collect();
    assert!(unknown.iter().any(|f| f["check"] == "linear-rules"), "{unknown:?}");
    for finding in unknown {
        assert!(!finding["why"].as_str().unwrap().is_empty(), "{finding}");
    }
}

/// A namespace of its own with a veth pair in it; gone when dropped.
struct Ns(String);

impl Ns {
    fn new(tag: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip("a network namespace takes root");
            return None;
        }
        let name = format!("ekdoc{tag}{}", std::process::id());
        let ns = Self(name);
        ns.must("ip", &["netns", "add", &ns.0]);
        ns.must("ip", &["-n", &ns.0, "link", "add", "ekd0", "up", "type", "veth", "peer", "name", "ekd1"]);
        ns.must("ip", &["-n", &ns.0, "link", "set", "ekd1", "up"]);
        Some(ns)
    }

    fn must(&self, program: &str, args: &[&str]) -> Output {
        let output = Command::new(program).args(args).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", text(&output));
        output
    }

    fn shell(&self, script: &str) {
        self.must("ip", &["netns", "exec", &self.0, "sh", "-ec", script]);
    }

    fn evenkeel(&self, args: &[&str]) -> Output {
        let program = assert_cmd::cargo::cargo_bin("evenkeel");
        Command::new("ip").args(["netns", "exec", &self.0]).arg(program).args(args).output().unwrap()
    }

    /// Every setting of the machine and of the namespace, out of a snapshot; what only counts is left out.
    fn settings(&self, folder: &Path, name: &str) -> BTreeMap<String, String> {
        let file = folder.join(name);
        let output = self.evenkeel(&["snapshot", file.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output));
        let open = folder.join(format!("{name}.d"));
        fs::create_dir(&open).unwrap();
        self.must("tar", &["xf", file.to_str().unwrap(), "-C", open.to_str().unwrap()]);
        let mut files = BTreeMap::new();
        gather(&open, &open, &mut files);
        assert!(files.len() > 100, "{} files", files.len());
        files
    }
}

impl Drop for Ns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn gather(base: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    const COUNTERS: [&str; 13] = [
        "/statistics/",
        "proc/stat",
        "proc/softirqs",
        "proc/interrupts",
        "proc/net/",
        "proc/cpuinfo",
        "ethtool/",
        "setting/packet-sockets",
        "setting/accept-queues",
        "setting/cpu-limits",
        "nf_conntrack_count",
        "effective_affinity_list",
        "operstate",
    ];
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = path.strip_prefix(base).unwrap().display().to_string();
        if entry.file_type().unwrap().is_dir() {
            gather(base, &path, files);
        } else if name.starts_with("ethtool/") {
            let mut answers: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            answers.as_object_mut().unwrap().remove("statistics");
            files.insert(name, answers.to_string());
        } else if name.strip_prefix("proc/").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            // NAPI threads of whoever else works on this machine.
        } else if !COUNTERS.iter().any(|c| name.contains(c)) && entry.file_type().unwrap().is_file() {
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

fn differing<'a>(one: &'a BTreeMap<String, String>, other: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let names = one.keys().chain(other.keys().filter(|n| !one.contains_key(*n)));
    names.filter(|n| one.get(*n) != other.get(*n)).map(String::as_str).collect()
}

/// Settings of a namespace that somebody left badly: the fix changes exactly these, and undo leaves all as it was.
const DETUNE: &str = "echo 1 > /proc/sys/net/netfilter/nf_conntrack_acct
    echo '4096 65536 262144' > /proc/sys/net/ipv4/tcp_rmem
    echo 3 > /sys/class/net/ekd0/napi_defer_hard_irqs
    echo 0 > /sys/class/net/ekd0/gro_flush_timeout";
const CHECKS: [&str; 3] = ["accounting", "tcp-buffers", "irq-suspension"];

#[test]
fn fix_and_undo_leave_the_machine_exactly_as_it_was() {
    let Some(ns) = Ns::new("a") else { return };
    ns.shell(DETUNE);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    let only = CHECKS.join(",");
    let found = json(&ns.evenkeel(&["doctor", "--role", "server", "--only", &only, "--json"]));
    let improve: Vec<&Value> =
        found["findings"].as_array().unwrap().iter().filter(|f| f["verdict"] == "improve").collect();
    assert_eq!(improve.len(), 3, "{found:#}");

    let before = ns.settings(folder.path(), "before");
    let fix = [
        "doctor",
        "--role",
        "server",
        "--state",
        state,
        "--json",
        "--measure",
        "1",
        "--fix",
        "accounting",
        "tcp-buffers",
        "irq-suspension",
    ];
    let fixed = ns.evenkeel(&fix);
    assert!(fixed.status.success(), "{}", text(&fixed));
    let fixed = json(&fixed);
    assert_eq!(
        (fixed["schema"].as_str(), fixed["written"].as_u64()),
        (Some("evenkeel.doctor.fix/1"), Some(3)),
        "{fixed:#}"
    );

    let gain = fixed["gain"].as_array().unwrap();
    assert!(gain[0].as_str().is_some_and(|g| g.contains("before") && g.contains("after")), "{gain:?}");

    let during = ns.settings(folder.path(), "during");
    let changed = differing(&before, &during);
    let expected = ["net/netfilter/nf_conntrack_acct", "net/ipv4/tcp_rmem", "net/ekd0/gro_flush_timeout"];
    assert!(
        changed.len() == 3 && expected.iter().all(|e| changed.iter().any(|c| c.ends_with(e))),
        "exactly what was fixed differs: {changed:?}"
    );
    let again = ns.evenkeel(&["doctor", "--role", "server", "--only", &only]);
    assert_eq!(again.status.code(), Some(0), "nothing is left to find: {}", text(&again));

    let undone = ns.evenkeel(&["undo", "--state", state]);
    assert!(undone.status.success(), "{}", text(&undone));
    let after = ns.settings(folder.path(), "after");
    assert_eq!(differing(&before, &after), Vec::<&str>::new(), "all is as it was");
}

/// What somebody has seen and accepts no longer makes the doctor end with 1, until it is taken back.
#[test]
fn a_finding_can_be_acknowledged() {
    let Some(ns) = Ns::new("e") else { return };
    ns.shell(DETUNE);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    let doctor = |more: &[&str]| ns.evenkeel(&[&["doctor", "--role", "server", "--state", state], more].concat());
    let only = ["--only", "accounting", "--json"];
    assert_eq!(doctor(&only).status.code(), Some(1));
    let acknowledged = doctor(&["--json", "--ack", "accounting"]);
    assert!(acknowledged.status.success(), "{}", text(&acknowledged));
    let acknowledged = json(&acknowledged);
    assert_eq!(acknowledged["schema"], "evenkeel.doctor.ack/1");
    assert_eq!(acknowledged["accepted"][0]["check"], "accounting");
    let seen = doctor(&only);
    assert_eq!(seen.status.code(), Some(0), "{}", text(&seen));
    assert_eq!(json(&seen)["findings"][0]["verdict"], "acknowledged");
    assert!(doctor(&["--ack", "none"]).status.success());
    assert_eq!(doctor(&only).status.code(), Some(1));
    assert_eq!(doctor(&["--ack", "nonsense"]).status.code(), Some(2));
}

#[test]
fn unconfirmed_fixes_are_taken_back() {
    let Some(ns) = Ns::new("b") else { return };
    ns.shell(DETUNE);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let acct = || {
        let output = ns.must("ip", &["netns", "exec", &ns.0, "cat", "/proc/sys/net/netfilter/nf_conntrack_acct"]);
        stdout(&output).trim().to_owned()
    };
    let fixed = ns.evenkeel(&["doctor", "--state", state, "--commit-confirm", "1", "--fix", "accounting"]);
    assert!(fixed.status.success(), "{}", text(&fixed));
    assert!(text(&fixed).contains("unless you run: evenkeel confirm"), "{}", text(&fixed));
    let begin = Instant::now();
    while acct() != "1" {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing took it back");
        thread::sleep(Duration::from_millis(100));
    }
}

/// What the answers of a copy of an earlier version have in common is said once.
#[test]
fn what_an_old_copy_lacks_is_one_line() {
    let said = stdout(&evenkeel(&["doctor", "--root", &fixture("four-drivers")]));
    let unknown: Vec<&str> = said.lines().skip_while(|l| *l != "Unknown:").collect();
    assert!(unknown.len() < 8, "{said}");
    assert!(unknown.iter().any(|l| l.contains("answers of") && l.contains("this copy lacks what they read")), "{said}");
    let all = stdout(&evenkeel(&["doctor", "--root", &fixture("four-drivers"), "--all"]));
    assert!(all.contains("UNKNOWN  clock-source"), "{all}");
}

/// Of two ends in one namespace one receives what, by its sender's address, should come by the other: the strict filter drops it,
/// the check sees that, and the gain of its fix is measured.
#[test]
fn the_gain_of_a_fix_is_measured() {
    let Some(ns) = Ns::new("d") else { return };
    ns.shell(
        "ip addr add 198.18.0.1/24 dev ekd0; ip addr add 198.19.0.1/24 dev ekd1
        for name in all ekd0 ekd1; do echo 1 > /proc/sys/net/ipv4/conf/$name/rp_filter; done",
    );
    let mac = ns.must("ip", &["netns", "exec", &ns.0, "cat", "/sys/class/net/ekd0/address"]);
    let program = assert_cmd::cargo::cargo_bin("evenkeel");
    let mut sender = Command::new("ip")
        .args(["netns", "exec", &ns.0])
        .arg(&program)
        .args(["gen", "ekd1", "--udp", "--rate", "2000", "--duration", "60", "--src", "198.19.0.9"])
        .args(["--dst", "198.18.0.1", "--dst-mac", stdout(&mac).trim()])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let dropped = || {
        let found = json(&ns.evenkeel(&["doctor", "--role", "router", "--only", "rp-filter:ekd0", "--json"]));
        found["findings"][0]["verdict"].as_str().map(str::to_owned)
    };
    let begin = Instant::now();
    let mut verdict = dropped();
    while verdict.as_deref() != Some("bad") && begin.elapsed() < Duration::from_secs(40) {
        verdict = dropped();
    }
    let fixed = ns.evenkeel(&["doctor", "--state", state, "--json", "--measure", "1", "--fix", "rp-filter"]);
    let again = dropped();
    let _ = sender.kill();
    let _ = sender.wait();
    assert_eq!(verdict.as_deref(), Some("bad"), "it drops now");
    assert!(fixed.status.success(), "{}", text(&fixed));
    let gain = json(&fixed)["gain"].to_string();
    let line = gain
        .split('"')
        .find(|l| l.starts_with("dropped by the reverse path filter: "))
        .unwrap_or_else(|| panic!("{gain}"));
    assert!(line.ends_with("-> 0 pps") && !line.contains(": 0 pps"), "{line}");
    assert_eq!(again.as_deref(), Some("good"), "nothing is left to find");
    assert!(ns.evenkeel(&["undo", "--state", state]).status.success());
}

/// A program that takes up no connection: its full queue is found, by its port.
#[test]
fn a_full_accept_queue_is_found() {
    let ns = match lab::Lab::new("docq").and_then(|lab| Ok((lab.namespace("a")?, lab))) {
        Ok((ns, _lab)) => ns,
        Err(e) => return skip(&e.to_string()),
    };
    let found = ns
        .run(|| {
            assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
            fs::write("/proc/sys/net/core/somaxconn", "2").unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:7001").unwrap();
            let connections = [0; 3].map(|_| std::net::TcpStream::connect("127.0.0.1:7001").unwrap());
            let found = evenkeel(&["doctor", "--only", "accept-queues", "--json"]);
            drop((listener, connections));
            json(&found)
        })
        .unwrap();
    let full = found["findings"].as_array().unwrap().iter().find(|f| f["object"] == "port 7001");
    let full = full.unwrap_or_else(|| panic!("{found:#}"));
    assert_eq!(full["verdict"], "bad");
    assert_eq!(full["evidence"][0], "3 connections wait, 2 may");
}

/// A short queue of the program's own choice: no setting of the machine makes it longer.
#[test]
fn an_overflow_with_a_long_limit_has_no_setting() {
    let ns = match lab::Lab::new("docr").and_then(|lab| Ok((lab.namespace("a")?, lab))) {
        Ok((ns, _lab)) => ns,
        Err(e) => return skip(&e.to_string()),
    };
    let found = ns
        .run(|| {
            assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
            fs::write("/proc/sys/net/core/somaxconn", "4096").unwrap();
            fs::write("/proc/sys/net/ipv4/tcp_max_syn_backlog", "128").unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:7002").unwrap();
            nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
            let to = "127.0.0.1:7002".parse().unwrap();
            let wait = std::time::Duration::from_millis(200);
            let connections = [0; 4].map(|_| std::net::TcpStream::connect_timeout(&to, wait).ok());
            let found = evenkeel(&["doctor", "--only", "accept-queues", "--json"]);
            drop((listener, connections));
            json(&found)
        })
        .unwrap();
    let finding = found["findings"].as_array().unwrap().iter().find(|f| f["object"].is_null());
    let finding = finding.unwrap_or_else(|| panic!("{found:#}"));
    assert!(["bad", "improve"].contains(&finding["verdict"].as_str().unwrap()), "{found:#}");
    assert_eq!(finding["fix"]["changes"].as_array().map(Vec::len), Some(0), "{found:#}");
}

#[test]
fn a_finding_without_a_knob_is_advice() {
    let Some(ns) = Ns::new("c") else { return };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let output = ns.evenkeel(&["doctor", "--state", state, "--fix", "preemption"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(stdout(&output).contains("Nothing to set"), "{}", text(&output));
    assert!(!folder.path().join("journal").exists(), "no session without a change");
}

/// The table of docs/doctor.md is what the program lists.
#[test]
fn the_documentation_has_every_check() {
    let listed = stdout(&evenkeel(&["doctor", "--list", "--markdown"]));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/doctor.md");
    let text = fs::read_to_string(&page).unwrap();
    let (begin, end) = ("<!-- checks: evenkeel doctor --list --markdown -->\n\n", "\n<!-- /checks -->");
    let table = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).expect("the marks").0;
    assert!(table.trim() == listed.trim(), "docs/doctor.md is not in step; put this between its marks:\n{listed}");
    assert!(listed.lines().count() > 45, "{}", listed.lines().count());
}
