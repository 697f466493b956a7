//! `spread`, `undo` and `confirm` on this machine's own NIC, and plans for saved machines.
//!
//! Whatever a test does, the guard puts every affinity back as it was, also when the test fails or is killed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::MutexGuard,
};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;
use testbed::{
    Bed, Kept, ended, fixture, fixtures, json, log, printed, refused, skip, steering, turn, unspread, wait_reporting,
};

fn evenkeel(args: &[&str]) -> Output {
    Command::cargo_bin("evenkeel").unwrap().args(args).output().unwrap()
}

/// The NIC under test with every file of its affinities as they were, and a journal of its own.
struct Guard {
    before: BTreeMap<PathBuf, String>,
    state: tempfile::TempDir,
    nic: String,
    // Dropped in this order: all is put back before the next one's turn.
    _kept: Kept,
    _turn: MutexGuard<'static, ()>,
}

impl Guard {
    /// None, with the reason said, where this cannot be tested.
    fn new() -> Option<Self> {
        // One NIC: one test at a time.
        let turn = turn()?;
        // Every interrupt, not only those of the NIC: a test must not touch any other.
        let files = steering();
        let kept = Kept::new(files.clone());
        unspread(&files);
        let plan = evenkeel(&["spread", "plan", "--json"]);
        if !plan.status.success() {
            skip(printed(&plan));
            return None;
        }
        let plan = json(&plan);
        let nic = plan["rows"][0]["nic"].as_str().unwrap().to_owned();
        let before = files.into_iter().filter_map(|p| Some((p.clone(), fs::read_to_string(p).ok()?))).collect();
        Some(Self { before, state: tempfile::tempdir().unwrap(), nic, _kept: kept, _turn: turn })
    }

    fn state(&self) -> &str {
        self.state.path().to_str().unwrap()
    }

    /// Runs a verb with the journal of this test.
    fn run(&self, args: &[&str]) -> Output {
        evenkeel(&[args, &["--state", self.state()]].concat())
    }

    /// The files that differ from what they were.
    fn changed(&self) -> Vec<&Path> {
        let differs = |(path, old): &(&PathBuf, &String)| fs::read_to_string(path).is_ok_and(|now| now != **old);
        self.before.iter().filter(differs).map(|(path, _)| path.as_path()).collect()
    }

    fn wait_until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        wait_reporting(what, || done(self), || self.log());
    }

    fn log(&self) -> String {
        log(&self.state.path().join("guardian.log"))
    }

    /// Every record of the journal.
    fn records(&self) -> Vec<Value> {
        let sessions = fs::read_dir(self.state.path().join("journal")).into_iter().flatten().flatten();
        let texts = sessions
            .filter(|e| e.path().extension().is_some_and(|x| x == "jsonl"))
            .map(|e| fs::read_to_string(e.path()).unwrap());
        texts.flat_map(|t| t.lines().map(|l| serde_json::from_str(l).unwrap()).collect::<Vec<Value>>()).collect()
    }

    fn guardian(&self) -> Option<u64> {
        self.records().iter().find(|r| r["record"] == "guarded").and_then(|r| r["pid"].as_u64())
    }
}

/// A process that we started lives (one that has ended and was not waited for does not).
fn lives(pid: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

#[test]
fn apply_then_undo_puts_every_affinity_back() {
    let Some(guard) = Guard::new() else { return };
    let applied = json(&guard.run(&["spread", "apply", &guard.nic, "--json"]));
    let changes = applied["changes"].as_array().unwrap();
    if changes.is_empty() {
        return skip("this machine is spread already");
    }
    assert_eq!(guard.changed().len(), changes.len());
    for change in changes.iter().filter(|c| c["knob"]["kind"] == "irq_affinity") {
        let now = fs::read_to_string(format!("/proc/irq/{}/smp_affinity", change["knob"]["irq"])).unwrap();
        let mask = |m: &str| u64::from_str_radix(m.trim().trim_start_matches(['0', ',']), 16).unwrap();
        assert_eq!(mask(&now), mask(change["new"].as_str().unwrap()));
    }
    let again = guard.run(&["spread", "apply", &guard.nic]);
    assert!(printed(&again).contains("Nothing to change"), "{}", printed(&again));

    let dry = guard.run(&["undo", "--dry-run"]);
    assert_eq!(printed(&dry).lines().filter(|l| l.starts_with("echo ")).count(), changes.len(), "{}", printed(&dry));
    assert_eq!(guard.changed().len(), changes.len(), "a dry run changes nothing");
    ended(&guard.run(&["undo"]), 0);
    assert_eq!(guard.changed(), Vec::<&Path>::new());
    assert!(printed(&guard.run(&["undo"])).contains("Nothing to undo"));
}

#[test]
fn a_kill_at_any_moment_of_apply_can_be_undone() {
    let Some(guard) = Guard::new() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("strace kills the program at a chosen system call, and is not installed");
    }
    let program = Command::cargo_bin("evenkeel").unwrap();
    let mut left_changed = 0;
    // The n-th sync of the journal: in turn a change is announced and not made, made and not reported.
    for n in 1..8 {
        let kill = format!("inject=fdatasync:signal=KILL:when={n}");
        let killed = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", &kill])
            .arg(program.get_program())
            .args(["spread", "apply", &guard.nic, "--state", guard.state()])
            .output()
            .unwrap();
        left_changed += guard.changed().len();
        let undone = guard.run(&["undo"]);
        assert!(undone.status.success(), "killed at sync {n}: {}", printed(&undone));
        assert_eq!(guard.changed(), Vec::<&Path>::new(), "killed at sync {n}: {}", printed(&killed));
    }
    assert!(left_changed > 0, "no kill came in mid-apply");
}

#[test]
fn without_a_confirmation_everything_goes_back() {
    let Some(guard) = Guard::new() else { return };
    // The guardian finds a folder that is named from here.
    let mut apply = Command::cargo_bin("evenkeel").unwrap();
    apply.current_dir(guard.state()).args(["spread", "apply", &guard.nic, "--commit-confirm", "2", "--state", "."]);
    ended(&apply.output().unwrap(), 0);
    guard.wait_until("the reversal", |g| g.records().iter().any(|r| r["record"] == "reverted"));
    assert_eq!(guard.changed(), Vec::<&Path>::new());
    assert!(guard.records().iter().any(|r| r["record"] == "pending"), "something had been changed");
    assert!(guard.records().iter().any(|r| r["record"] == "reverted" && r["complete"] == true));
    // It notes the reversal in the journal before it tells of it.
    guard.wait_until("the guardian's word", |g| g.log().contains("no confirmation came in time"));
    let dated = |line: &str| line.split(' ').next().is_some_and(|at| at.parse::<jiff::Timestamp>().is_ok());
    assert!(guard.log().lines().all(dated), "every line has its time: {}", guard.log());
    ended(&guard.run(&["confirm"]), 1);
    let guardian = guard.guardian().unwrap();
    guard.wait_until("the end of the guardian", |_| !lives(guardian));
}

#[test]
fn a_confirmation_lets_it_stay_until_undo() {
    let Some(guard) = Guard::new() else { return };
    ended(&guard.run(&["spread", "apply", &guard.nic, "--commit-confirm", "300"]), 0);
    let guardian = guard.guardian().unwrap();
    assert!(lives(guardian));
    let own = nix::unistd::getsid(None).unwrap();
    let its = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(guardian as i32))).unwrap();
    assert_ne!(own, its, "the guardian must outlive the terminal");
    ended(&guard.run(&["confirm"]), 0);
    guard.wait_until("the end of the guardian", |_| !lives(guardian));
    assert!(!guard.changed().is_empty(), "the changes stay");
    assert!(guard.run(&["undo"]).status.success());
    assert_eq!(guard.changed(), Vec::<&Path>::new());
}

#[test]
fn undo_stops_at_a_value_that_somebody_else_wrote() {
    let Some(guard) = Guard::new() else { return };
    assert!(guard.run(&["spread", "apply", &guard.nic]).status.success());
    let Some(file) = guard.changed().into_iter().find(|p| p.starts_with("/sys")).map(Path::to_path_buf) else {
        return skip("this machine's plan has no RPS or XPS, which take any third value");
    };
    let (ours, old) = (fs::read_to_string(&file).unwrap(), guard.before[&file].clone());
    let third = ["0", "1", "3"].into_iter().find(|t| ![ours.trim(), old.trim()].contains(t)).unwrap();
    fs::write(&file, third).unwrap();
    ended(&guard.run(&["undo"]), 1);
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), third, "left alone");
    ended(&guard.run(&["undo", "--force"]), 0);
    assert_eq!(guard.changed(), Vec::<&Path>::new());
}

#[test]
fn every_saved_machine_is_planned_offline() {
    for tar in fixtures() {
        let name = tar.to_str().unwrap();
        let plan = evenkeel(&["spread", "plan", "--root", name, "--json"]);
        assert!(plan.status.success(), "{name}: {}", printed(&plan));
        let plan = json(&plan);
        assert_eq!(plan["schema"], "evenkeel.spread.plan/1");
        let changes = plan["changes"].as_array().unwrap().len();
        assert!(changes > 0, "{name}");
        let shell = evenkeel(&["spread", "--root", name, "--shell"]);
        let commands = printed(&shell).lines().filter(|l| !l.starts_with('#')).count();
        assert_eq!(commands, changes, "{name}: {}", printed(&shell));
    }
}

#[test]
fn the_sources_machine_gets_27_members_for_24_cores() {
    let saved = fixture("dual-socket-24cpu");
    let saved = saved.to_str().unwrap();
    let members: Value =
        serde_json::from_slice(&evenkeel(&["spread", "members", "--root", saved, "--json"]).stdout).unwrap();
    assert_eq!(members["schema"], "evenkeel.spread.members/1");
    assert_eq!((members["total"].as_u64(), members["cpus"].as_array().unwrap().len()), (Some(27), 24));
    let doubled = members["cpus"].as_array().unwrap().iter().filter(|c| c["members"] == 2);
    let doubled: Vec<u64> = doubled.map(|c| c["cpu"].as_u64().unwrap()).collect();
    assert_eq!(doubled, [0, 11, 23], "the first, the last physical core, the last");
    let near = printed(&evenkeel(&["spread", "members", "eth1", "--root", saved]));
    assert!(near.contains("15 members for 12 CPUs of node 1"), "{near}");
}

#[test]
fn a_long_plan_is_short_as_a_table_and_whole_on_demand() {
    let saved = fixture("mlx5-64q-128cpu");
    let saved = saved.to_str().unwrap();
    let table = printed(&evenkeel(&["spread", "plan", "--root", saved]));
    assert!(
        table.contains("enp129s0np0: 64 queues on 64 CPUs: 32 cores and 32 second threads of its node 1"),
        "{table}"
    );
    assert!(table.contains("rxtx 0-31 IRQ 201-232") && table.lines().count() < 20, "{table}");
    let full = printed(&evenkeel(&["spread", "plan", "--full", "--root", saved]));
    assert_eq!(full.lines().filter(|l| l.starts_with("en")).count(), 136 + 2, "{full}");
    assert!(full.contains("0,4,8,…,124 (32)"), "{full}");
}

#[test]
fn a_reader_that_went_away_stops_neither_apply_nor_undo() {
    let Some(guard) = Guard::new() else { return };
    // /dev/full refuses every write, as a terminal that is gone does.
    let deaf = |args: &[&str]| {
        let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::cargo_bin("evenkeel").unwrap();
        command.args(args).args(["--state", guard.state()]).stdout(full()).stderr(full()).status().unwrap()
    };
    // Done, and the loss told by the exit code.
    assert_eq!(deaf(&["spread", "apply", &guard.nic]).code(), Some(3));
    if guard.changed().is_empty() {
        return skip("this machine is spread already");
    }
    assert_eq!(deaf(&["undo", "--all"]).code(), Some(3));
    assert_eq!(guard.changed(), Vec::<&Path>::new());
}

/// The lines that a verb prints on a terminal of 50 columns.
fn narrow(args: &[&str]) -> Vec<String> {
    let job = format!("stty cols 50; '{}' {}", env!("CARGO_BIN_EXE_evenkeel"), args.join(" "));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &job, "/dev/null"]);
    let output = script.output().unwrap();
    ended(&output, 0);
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn a_plan_fits_a_narrow_terminal() {
    let saved = fixture("mlx5-64q-128cpu");
    let lines = narrow(&["spread", "plan", "--root", saved.to_str().unwrap()]);
    assert!(lines.iter().all(|line| line.chars().count() <= 50), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("enp129s0np0 ")), "the name is whole: {lines:#?}");
}

#[test]
fn a_dead_guardian_is_seen() {
    let Some(guard) = Guard::new() else { return };
    assert!(guard.run(&["spread", "apply", &guard.nic, "--commit-confirm", "300"]).status.success());
    assert!(printed(&guard.run(&["undo", "--list"])).contains("awaits confirm"));
    let guardian = guard.guardian().unwrap();
    let pid = nix::unistd::Pid::from_raw(guardian as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    guard.wait_until("the end of the guardian", |_| !lives(guardian));
    let list = printed(&guard.run(&["undo", "--list"]));
    assert!(list.contains("its guardian is dead"), "{list}");
    let lines = narrow(&["undo", "--list", "--state", guard.state()]);
    assert!(lines[0].contains("CHANGES") && lines[0].contains("COMMAND"), "no heading is broken: {lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 50), "{lines:#?}");
    // A session is taken back by its short name, and tells when it began and what made it.
    let listed: serde_json::Value = serde_json::from_slice(&guard.run(&["undo", "--list", "--json"]).stdout).unwrap();
    let session = listed["sessions"].as_array().and_then(|all| all.last()).unwrap();
    assert!(session["started"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{session}");
    assert_eq!(session["verb"], "spread apply");
    assert!(guard.run(&["undo", session["name"].as_str().unwrap()]).status.success());
    assert_eq!(guard.changed(), Vec::<&Path>::new());
}

#[test]
fn a_signal_in_mid_apply_takes_all_of_it_back() {
    let Some(guard) = Guard::new() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("strace sends the signal at a chosen system call, and is not installed");
    }
    let program = Command::cargo_bin("evenkeel").unwrap();
    // The third sync follows the first change.
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:signal=INT:when=3"])
        .arg(program.get_program())
        .args(["spread", "apply", &guard.nic, "--state", guard.state()])
        .output()
        .unwrap();
    assert_eq!(guard.changed(), Vec::<&Path>::new(), "{}", printed(&output));
    let announced = guard.records().iter().filter(|r| r["record"] == "pending").count();
    if announced > 0 {
        assert_eq!((announced, output.status.code()), (1, Some(3)), "{}", printed(&output));
        assert!(printed(&output).contains("interrupted. Nothing stays changed: 1 setting"), "{}", printed(&output));
    }
}

/// `nsenter --net` leaves /sys as it is: what would be read and written is another namespace's.
#[test]
fn a_sys_of_another_namespace_is_refused() {
    let Some(bed) = Bed::new("spreadns", &["a"]) else { return };
    let space = bed.space("a");
    let program = Command::cargo_bin("evenkeel").unwrap();
    let program = program.get_program().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tar = folder.path().join("m.tar");
    for args in [
        vec!["spread"],
        vec!["spread", "apply", "--dry-run"],
        vec!["spread", "status"],
        vec!["doctor"],
        vec!["snapshot", tar.to_str().unwrap()],
    ] {
        refused(
            &space.command(program).args(&args).output().unwrap(),
            3,
            &[&format!("ip netns exec {}", space.name())],
        );
    }
    assert!(!tar.exists());
    let own = Command::new("ip").args(["netns", "exec", space.name(), program, "doctor", "--only", "rings"]).output();
    assert_eq!(own.unwrap().status.code(), Some(0));
}

/// A pipe would be waited for without end; a copy of a later version is named; a garbled table is an error without control bytes.
#[test]
fn odd_copies_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    for verb in [vec!["spread", "plan"], vec!["doctor"], vec!["spread", "members"]] {
        ended(&evenkeel(&[&verb[..], &["--root", pipe.to_str().unwrap()]].concat()), 2);
    }
    let copy = folder.path().join("copy");
    let put = |file: &str, content: &str| {
        let path = copy.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    for (file, content) in [
        ("evenkeel/format", "99\n"),
        ("sys/devices/system/cpu/present", "0-1\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/class/net/lo/ifindex", "1\n"),
        ("proc/interrupts", "  CPU0 CPU1\n"),
    ] {
        put(file, content);
    }
    let root = copy.to_str().unwrap();
    let members = evenkeel(&["spread", "members", "--root", root]);
    assert!(members.status.success() && printed(&members).contains("format 99"), "{}", printed(&members));
    put("proc/interrupts", "\u{1b}[31mnothing\n");
    let garbled = evenkeel(&["spread", "plan", "--root", root]);
    ended(&garbled, 2);
    assert!(
        printed(&garbled).contains("proc/interrupts") && !printed(&garbled).contains('\u{1b}'),
        "{}",
        printed(&garbled)
    );
}

#[test]
fn a_session_of_another_namespace_is_undone_only_there() {
    let Some(bed) = Bed::new("spreadu", &["a"]) else { return };
    let space = bed.space("a");
    space.output("ip link add eku0 type veth peer name eku1");
    let state = bed.path("state");
    let state = ["--state", state.to_str().unwrap()];
    let inside = |args: &[&str]| {
        let output = space.run(|| evenkeel(&[args, &state].concat()));
        assert!(output.status.success(), "{args:?}: {}", printed(&output));
        printed(&output)
    };
    let rps = || space.read("/sys/class/net/eku0/queues/rx-0/rps_cpus");
    let before = rps();
    inside(&["spread", "apply", "eku0", "--rps", "on"]);
    assert_ne!(rps(), before);
    let outside = evenkeel(&[&["undo"], &state[..]].concat());
    refused(&outside, 3, &[&format!("ip netns exec {} evenkeel undo", space.name())]);
    assert_ne!(rps(), before, "the session stands");
    let listed =
        || json(&evenkeel(&[&["undo", "--list", "--json"], &state[..]].concat()))["sessions"][0]["state"].clone();
    assert_eq!(listed(), "stands");
    // The same session, of a namespace with a number that none has.
    let mut files = fs::read_dir(bed.path("state").join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|it| it == "jsonl")).unwrap();
    let record = fs::read_to_string(&file).unwrap();
    let begin: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    fs::write(&file, record.replacen(&format!("\"netns\":{}", begin["netns"]), "\"netns\":1", 1)).unwrap();
    assert_eq!(listed(), "namespace gone");
    refused(&evenkeel(&[&["undo"], &state[..]].concat()), 3, &["nothing is to be done"]);
    fs::write(&file, record).unwrap();
    assert!(inside(&["undo"]).contains("1 setting put back"));
    assert_eq!(rps(), before);
}
