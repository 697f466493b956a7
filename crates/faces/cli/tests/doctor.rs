//! `doctor` on saved machines and on this one: what it says, that it is quick, and that `--fix` and `undo` leave the machine
//! exactly as it was.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;
use testbed::{Bed, Ends, Running, Space, ended, json, printed, privileged, refused, text, wait, words};

fn evenkeel(args: &[&str]) -> Output {
    Command::cargo_bin("evenkeel").unwrap().args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    text(&output.stdout)
}

fn fixture(name: &str) -> String {
    testbed::fixture(name).display().to_string()
}

#[test]
fn a_saved_machine_is_examined() {
    let found = evenkeel(&["doctor", "--root", &fixture("dual-socket-24cpu")]);
    assert_eq!(found.status.code(), Some(1), "findings: {}", printed(&found));
    let shown = stdout(&found);
    assert!(shown.contains("rings (eth0)") && shown.contains("ethtool -G eth0 rx 4096  # now 512"), "{shown}");
    assert!(shown.contains("role server (guessed"), "{shown}");
    assert!(!shown.contains("GOOD"), "good ones are a count: {shown}");
    assert!(printed(&found).contains("saved by an earlier evenkeel"), "{}", printed(&found));

    let document = json(&evenkeel(&["doctor", "--root", &fixture("dual-socket-24cpu"), "--json", "--role", "router"]));
    assert_eq!(document["schema"], "evenkeel.doctor/1");
    assert_eq!((document["role"].as_str(), document["role_guessed"].as_bool()), (Some("router"), Some(false)));
    let fine = evenkeel(&["doctor", "--root", &fixture("single-queue-vm"), "--only", "rings", "--all"]);
    assert_eq!(fine.status.code(), Some(0), "nothing to change: {}", printed(&fine));
    assert!(stdout(&fine).contains("GOOD"), "{}", printed(&fine));
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
    assert!(printed(&found).contains("saved by a later evenkeel (format 99"), "{}", printed(&found));
    assert!(found.status.code() == Some(0) || found.status.code() == Some(1), "{}", printed(&found));
}

#[test]
fn wrong_usage_is_reported() {
    for (args, code, shown) in [
        (&["doctor", "--only", "ring"][..], 2, "did you mean `rings`?"),
        (&["doctor", "--root", "/ek-missing"], 2, "--root takes a tar written by `evenkeel snapshot`"),
        (&["doctor", "--root", &fixture("shared-irq"), "--fix"], 2, "--dry-run prints the commands for it"),
        (&["doctor", "--role", "toaster"], 2, "router"),
        (&["doctor", "--root", &fixture("shared-irq"), "--only", "rings:nosuch"], 3, "`nosuch`"),
    ] {
        refused(&evenkeel(args), code, &[shown]);
    }
}

#[test]
fn a_dry_run_is_a_shell_script() {
    let output =
        evenkeel(&["doctor", "--root", &fixture("mlx5-64q-128cpu"), "--fix", "rings", "far-node", "--dry-run"]);
    ended(&output, 0);
    let shown = stdout(&output);
    assert!(shown.contains("ethtool -G enp129s0np0 rx 4096"), "{shown}");
    assert!(shown.contains("> /proc/irq/"), "{shown}");
    assert!(shown.lines().all(|l| ["ethtool ", "echo ", "#"].iter().any(|p| l.starts_with(p))), "{shown}");
    ended(&Command::new("sh").arg("-nc").arg(&shown).output().unwrap(), 0);
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
    let Some(()) = privileged() else { return };
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
        assert!(!finding["reason"].as_str().unwrap().is_empty(), "{finding}");
    }
}

/// A namespace of its own with a veth pair in it.
struct Ns {
    space: Space,
    bed: Bed,
}

impl Ns {
    fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["box"])?;
        let space = bed.space("box");
        space.output("ip link add ekd0 up type veth peer name ekd1");
        space.output("ip link set ekd1 up");
        Some(Self { space, bed })
    }

    fn shell(&self, script: &str) {
        let done = self.space.run(|| Command::new("sh").args(["-ec", script]).output().unwrap());
        assert!(done.status.success(), "{script}: {}", printed(&done));
    }

    fn evenkeel(&self, args: &[&str]) -> Output {
        self.space.run(|| evenkeel(args))
    }

    /// Every setting of the machine and of the namespace, out of a snapshot; what only counts is left out.
    fn settings(&self, name: &str) -> BTreeMap<String, String> {
        let (file, open) = (self.bed.path(name), self.bed.path(&format!("{name}.d")));
        let output = self.evenkeel(&["snapshot", file.to_str().unwrap()]);
        ended(&output, 0);
        fs::create_dir(&open).unwrap();
        self.space.output(&format!("tar xf {} -C {}", file.display(), open.display()));
        let mut files = BTreeMap::new();
        gather(&open, &open, &mut files);
        assert!(files.len() > 100, "{} files", files.len());
        files
    }

    /// A folder for journals.
    fn state(&self) -> String {
        self.bed.path("state").display().to_string()
    }
}

fn gather(base: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    const COUNTERS: &str = "/statistics/ proc/stat proc/softirqs proc/interrupts proc/net/ proc/cpuinfo ethtool/ \
        setting/packet-sockets setting/accept-queues setting/cpu-limits nf_conntrack_count effective_affinity_list \
        operstate";
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
        } else if !COUNTERS.split_whitespace().any(|c| name.contains(c)) && entry.file_type().unwrap().is_file() {
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
    let Some(ns) = Ns::new("doca") else { return };
    ns.shell(DETUNE);
    let state = &ns.state();
    let only = CHECKS.join(",");
    let found = json(&ns.evenkeel(&["doctor", "--role", "server", "--only", &only, "--json"]));
    let improve: Vec<&Value> =
        found["findings"].as_array().unwrap().iter().filter(|f| f["verdict"] == "improve").collect();
    assert_eq!(improve.len(), 3, "{found:#}");

    let before = ns.settings("before");
    let fix =
        format!("doctor --role server --state {state} --json --measure 1 --fix accounting tcp-buffers irq-suspension");
    let fixed = json(&ns.evenkeel(&words(&fix)));
    assert_eq!(
        (fixed["schema"].as_str(), fixed["written"].as_u64()),
        (Some("evenkeel.doctor.fix/1"), Some(3)),
        "{fixed:#}"
    );

    let gain = fixed["gain"].as_array().unwrap();
    assert!(gain[0].as_str().is_some_and(|g| g.contains("before") && g.contains("after")), "{gain:?}");

    let during = ns.settings("during");
    let changed = differing(&before, &during);
    let expected = ["net/netfilter/nf_conntrack_acct", "net/ipv4/tcp_rmem", "net/ekd0/gro_flush_timeout"];
    assert!(
        changed.len() == 3 && expected.iter().all(|e| changed.iter().any(|c| c.ends_with(e))),
        "exactly what was fixed differs: {changed:?}"
    );
    let again = ns.evenkeel(&["doctor", "--role", "server", "--only", &only]);
    assert_eq!(again.status.code(), Some(0), "nothing is left to find: {}", printed(&again));

    ended(&ns.evenkeel(&["undo", "--state", state]), 0);
    let listed = json(&ns.evenkeel(&["undo", "--list", "--json", "--state", state]));
    let session = listed["sessions"][0]["session"].as_str().unwrap();
    let again = ns.evenkeel(&["undo", session, "--state", state]);
    ended(&again, 0);
    let year = &listed["sessions"][0]["started"].as_str().unwrap()[..5];
    assert!(printed(&again).contains(&format!("taken back already at {year}")), "{}", printed(&again));
    let after = ns.settings("after");
    assert_eq!(differing(&before, &after), Vec::<&str>::new(), "all is as it was");
}

/// What somebody has seen and accepts no longer makes the doctor end with 1, until it is taken back.
#[test]
fn a_finding_can_be_acknowledged() {
    let Some(ns) = Ns::new("doce") else { return };
    ns.shell(DETUNE);
    let state = &ns.state();
    let doctor = |more: &[&str]| ns.evenkeel(&[&["doctor", "--role", "server", "--state", state], more].concat());
    let only = ["--only", "accounting", "--json"];
    assert_eq!(doctor(&only).status.code(), Some(1));
    let acknowledged = json(&doctor(&["--json", "--ack", "accounting"]));
    assert_eq!(acknowledged["schema"], "evenkeel.doctor.ack/1");
    assert_eq!(acknowledged["accepted"][0]["check"], "accounting");
    let seen = doctor(&only);
    ended(&seen, 0);
    assert_eq!(json(&seen)["findings"][0]["verdict"], "acknowledged");
    assert!(doctor(&["--ack", "none"]).status.success());
    assert_eq!(doctor(&only).status.code(), Some(1));
    assert_eq!(doctor(&["--ack", "nonsense"]).status.code(), Some(2));
}

#[test]
fn unconfirmed_fixes_are_taken_back() {
    let Some(ns) = Ns::new("docb") else { return };
    ns.shell(DETUNE);
    let state = &ns.state();
    let fixed = ns.evenkeel(&["doctor", "--state", state, "--commit-confirm", "1", "--fix", "accounting"]);
    refused(&fixed, 0, &["unless you run: evenkeel confirm"]);
    let acct = || ns.space.read("/proc/sys/net/netfilter/nf_conntrack_acct");
    wait("the setting is taken back", || acct().trim() == "1");
}

/// What the answers of a copy of an earlier version have in common is said once.
#[test]
fn what_an_old_copy_lacks_is_one_line() {
    let shown = stdout(&evenkeel(&["doctor", "--root", &fixture("four-drivers")]));
    let unknown: Vec<&str> = shown.lines().skip_while(|l| *l != "Unknown:").collect();
    assert!(unknown.len() < 8, "{shown}");
    assert!(
        unknown.iter().any(|l| l.contains("answers of") && l.contains("this copy lacks what they read")),
        "{shown}"
    );
    let all = stdout(&evenkeel(&["doctor", "--root", &fixture("four-drivers"), "--all"]));
    assert!(all.contains("UNKNOWN  clock-source"), "{all}");
}

/// Of two ends in one namespace one receives what, by its sender's address, should come by the other: the strict filter drops it,
/// the check sees that, and the gain of its fix is measured.
#[test]
fn the_gain_of_a_fix_is_measured() {
    let Some(ns) = Ns::new("docd") else { return };
    ns.shell(
        "ip addr add 198.18.0.1/24 dev ekd0; ip addr add 198.19.0.1/24 dev ekd1
        for name in all ekd0 ekd1; do echo 1 > /proc/sys/net/ipv4/conf/$name/rp_filter; done",
    );
    let mac = ns.space.read("/sys/class/net/ekd0/address");
    let mut generator = Command::cargo_bin("evenkeel").unwrap();
    generator.args(["gen", "ekd1", "--udp", "--rate", "2000", "--duration", "60", "--src", "198.19.0.9"]);
    generator.args(["--dst", "198.18.0.1", "--dst-mac", mac.trim()]);
    let sender = ns.space.run(|| Running::silent(&mut generator));
    let state = &ns.state();
    let dropped = || {
        let found = json(&ns.evenkeel(&["doctor", "--role", "router", "--only", "rp-filter:ekd0", "--json"]));
        found["findings"][0]["verdict"].as_str().map(str::to_owned)
    };
    wait("it drops", || dropped().as_deref() == Some("bad"));
    let fixed = ns.evenkeel(&["doctor", "--state", state, "--json", "--measure", "1", "--fix", "rp-filter"]);
    let again = dropped();
    drop(sender);
    ended(&fixed, 0);
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
    let Some(ns) = Ns::new("docq") else { return };
    let found = ns.space.run(|| {
        fs::write("/proc/sys/net/core/somaxconn", "2").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:7001").unwrap();
        let connections = [0; 3].map(|_| std::net::TcpStream::connect("127.0.0.1:7001").unwrap());
        let found = evenkeel(&["doctor", "--only", "accept-queues", "--json"]);
        drop((listener, connections));
        json(&found)
    });
    let full = found["findings"].as_array().unwrap().iter().find(|f| f["object"] == "port 7001");
    let full = full.unwrap_or_else(|| panic!("{found:#}"));
    assert_eq!(full["verdict"], "bad");
    assert_eq!(full["evidence"][0], "connections that wait: 3; at most 2");
}

/// Does `again` over and over on a thread of this namespace while `run` runs.
fn meanwhile<T>(again: impl Fn() + Sync, run: impl FnOnce() -> T) -> T {
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                again();
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let _ends = Ends(&ended);
        run()
    })
}

/// A short queue of the program's own choice: no setting of the machine makes it longer.
#[test]
fn an_overflow_with_a_long_limit_has_no_setting() {
    let Some(ns) = Ns::new("docr") else { return };
    let found = ns.space.run(|| {
        fs::write("/proc/sys/net/core/somaxconn", "4096").unwrap();
        fs::write("/proc/sys/net/ipv4/tcp_max_syn_backlog", "128").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:7002").unwrap();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
        let to = "127.0.0.1:7002".parse().unwrap();
        let wait = std::time::Duration::from_millis(50);
        // They go on while doctor watches.
        let found = meanwhile(
            || _ = std::net::TcpStream::connect_timeout(&to, wait),
            || evenkeel(&["doctor", "--only", "accept-queues", "--json"]),
        );
        drop(listener);
        json(&found)
    });
    let finding = found["findings"].as_array().unwrap().iter().find(|f| f["object"].is_null());
    let finding = finding.unwrap_or_else(|| panic!("{found:#}"));
    assert!(["bad", "improve"].contains(&finding["verdict"].as_str().unwrap()), "{found:#}");
    assert_eq!(finding["fix"]["changes"].as_array().map(Vec::len), Some(0), "{found:#}");
}

/// The kernel shows net.core.rmem_default in every network namespace, and lets it be written in the first one.
#[test]
fn a_setting_that_is_read_only_in_this_namespace_is_advice() {
    let Some(ns) = Ns::new("docro") else { return };
    let (found, fixed) = ns.space.run(|| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:7003").unwrap();
        let send = || _ = socket.send_to(&[0; 1000], "127.0.0.1:7003").unwrap();
        meanwhile(send, || {
            let found = json(&evenkeel(&["doctor", "--only", "socket-buffers", "--json"]));
            (found, evenkeel(&["doctor", "--fix", "socket-buffers", "--dry-run"]))
        })
    });
    let finding = &found["findings"][0];
    assert!(["bad", "improve"].contains(&finding["verdict"].as_str().unwrap()), "{found:#}");
    assert_eq!(finding["fix"]["changes"].as_array().map(Vec::len), Some(0), "{found:#}");
    let advice = finding["fix"].to_string();
    assert!(advice.contains("rmem_default") && advice.contains("in the first network namespace"), "{found:#}");
    assert!(printed(&fixed).contains("to be done by hand"), "{}", printed(&fixed));
}

#[test]
fn a_finding_without_a_knob_is_advice() {
    let Some(ns) = Ns::new("docc") else { return };
    let state = &ns.state();
    let output = ns.evenkeel(&["doctor", "--state", state, "--fix", "preemption"]);
    ended(&output, 0);
    assert!(stdout(&output).contains("Nothing to set"), "{}", printed(&output));
    assert!(!ns.bed.path("state/journal").exists(), "no session without a change");
}

/// The table of docs/look/doctor.md is what the program lists.
#[test]
fn the_documentation_has_every_check() {
    let listed = stdout(&evenkeel(&["doctor", "--list", "--markdown"]));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/look/doctor.md");
    let text = fs::read_to_string(&page).unwrap();
    let (begin, end) = ("<!-- checks: evenkeel doctor --list --markdown -->\n\n", "\n<!-- /checks -->");
    let table = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).expect("the marks").0;
    assert!(table.trim() == listed.trim(), "docs/look/doctor.md is not in step; put this between its marks:\n{listed}");
    assert!(listed.lines().count() > 45, "{}", listed.lines().count());
}
