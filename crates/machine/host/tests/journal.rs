//! The journal on a model of the machine: apply, undo, crashes, and writers that are not ours.

mod knobs;

use std::{collections::BTreeMap, fs, io::Write};

use host::{
    Root,
    journal::{
        ApplyError, Guardian, Journal, JournalError, Session, StepState, UndoOptions, UndoReport, Verdict, short_name,
    },
    knob::{Change, Knob, KnobError, Store},
};
use proptest::prelude::*;

use knobs::{Model, change, changes, irq, journal, machine};

/// A machine whose first interrupts were given these values by a session, and what is written down of it.
struct Applied {
    folder: tempfile::TempDir,
    journal: Journal,
    model: Model,
    session: Session,
}

impl Applied {
    fn new(values: &[&str]) -> Self {
        let (folder, journal) = journal();
        let mut model = machine(values.len() as u32);
        let session = apply(&journal, &mut model, values);
        Self { folder, journal, model, session }
    }

    fn undo(&mut self, options: UndoOptions) -> UndoReport {
        self.session.undo(&self.journal.lock().unwrap(), &mut self.model, options)
    }

    fn is_as_before(&self) -> bool {
        self.model.values == machine(self.model.values.len() as u32).values
    }
}

/// A session that gives the first interrupts these values.
fn apply(journal: &Journal, model: &mut Model, values: &[&str]) -> Session {
    let writer = journal.lock().unwrap();
    let mut session = Session::begin(&writer, "test").unwrap();
    session.apply(&writer, model, &changes(values)).unwrap();
    session
}

/// Appends a line to the only session file, as a process that then dies would have done.
fn append(journal: &Journal, line: &str) {
    let session = &journal.sessions().unwrap()[0];
    let path = journal.folder().join(format!("{}.jsonl", session.header.session));
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn undo_of_apply_is_nothing(steps in prop::collection::vec((0u32..5, 1u32..256), 1..12)) {
        let (_folder, journal) = journal();
        let (mut model, writer) = (machine(5), journal.lock().unwrap());
        let before = model.values.clone();
        let changes: Vec<Change> = steps.iter().map(|(n, mask)| change(irq(*n), &format!("{mask:x}"))).collect();
        let mut session = Session::begin(&writer, "test").unwrap();
        session.apply(&writer, &mut model, &changes).unwrap();
        for (n, mask) in steps {
            let last = changes.iter().rev().find(|c| c.knob == irq(n)).unwrap();
            prop_assert!(irq(n).same(&model.values[&irq(n)], &last.new), "{mask}");
        }
        // As another process would read it.
        let mut session = journal.session(&session.header.session).unwrap();
        let report = session.undo(&writer, &mut model, UndoOptions::default());
        prop_assert!(report.is_complete());
        prop_assert_eq!(&model.values, &before);
        prop_assert!(!journal.sessions().unwrap()[0].is_open());
    }
}

#[test]
fn a_refused_write_takes_the_earlier_ones_back_and_names_the_reason() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(3), journal.lock().unwrap());
    let before = model.values.clone();
    model.refuses = Some(irq(2));
    let mut session = Session::begin(&writer, "test").unwrap();
    let error = session.apply(&writer, &mut model, &changes(&["1", "2", "4"])).unwrap_err();
    assert!(matches!(error, ApplyError::Undone { restored: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("IRQ 2") && error.to_string().contains("Nothing stays changed"), "{error}");
    assert_eq!(model.values, before);
}

#[test]
fn a_crash_between_the_record_and_its_outcome_is_undone_whether_or_not_the_write_happened() {
    for written in [false, true] {
        let (_folder, journal) = journal();
        let (mut model, writer) = (machine(2), journal.lock().unwrap());
        let mut session = Session::begin(&writer, "test").unwrap();
        session.apply(&writer, &mut model, &[change(irq(0), "1")]).unwrap();
        append(
            &journal,
            "{\"record\":\"pending\",\"step\":1,\"change\":{\"knob\":{\"kind\":\"irq_affinity\",\"irq\":1},\
             \"old\":\"ff\",\"new\":\"2\",\"reason\":\"a test\"}}\n",
        );
        // And a record that the crash tore: the change it announces was never begun.
        append(&journal, "{\"record\":\"pending\",\"step\":2,\"chan");
        if written {
            model.values.insert(irq(1), "2".into());
        }
        let mut session = journal.sessions().unwrap().remove(0);
        assert_eq!(session.steps.len(), 2);
        let report = session.undo(&writer, &mut model, UndoOptions::default());
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.restored(), if written { 2 } else { 1 });
        assert_eq!(model.values, machine(2).values);
        assert!(!journal.sessions().unwrap()[0].is_open(), "the torn tail must not spoil the records behind it");
    }
}

#[test]
fn a_value_that_somebody_else_wrote_stops_undo_and_is_named() {
    let mut it = Applied::new(&["1", "2", "4"]);
    it.model.values.insert(irq(1), "80".into());
    let report = it.undo(UndoOptions::default());
    assert!(!report.is_complete());
    let values: Vec<&str> = it.model.values.values().map(String::as_str).collect();
    assert_eq!(
        values,
        ["1", "80", "ff"],
        "the last was put back, the foreign value left alone, and there undo stopped"
    );
    let text = report.steps.last().unwrap().to_string();
    assert!(text.contains(" CPU 7 since") && text.contains("wrote CPU 1, before that it was CPUs 0-7"), "{text}");

    it.session = it.journal.sessions().unwrap().remove(0);
    let report = it.undo(UndoOptions { force: true, ..UndoOptions::default() });
    assert!(matches!(report.steps[0].state, StepState::Forced { .. }));
    assert!(it.is_as_before());
}

#[test]
fn a_dry_run_changes_neither_the_machine_nor_the_journal() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(1), journal.lock().unwrap());
    let mut session = Session::begin(&writer, "test").unwrap();
    session.apply(&writer, &mut model, &[change(irq(0), "1"), change(irq(0), "2")]).unwrap();
    let report = session.undo(&writer, &mut model, UndoOptions { dry_run: true, ..UndoOptions::default() });
    assert!(report.is_complete());
    assert_eq!(report.restored(), 2);
    assert_eq!(model.values[&irq(0)], "2");
    assert!(journal.sessions().unwrap()[0].is_open());
}

#[test]
fn a_knob_that_vanished_needs_no_undo() {
    let mut it = Applied::new(&["1"]);
    it.model.values.clear();
    let report = it.undo(UndoOptions::default());
    assert!(matches!(report.steps[0].state, StepState::Gone));
    assert!(report.is_complete());
}

#[test]
fn a_second_writer_is_turned_away_by_name() {
    let (_folder, journal) = journal();
    let _writer = journal.lock().unwrap();
    let error = journal.lock().unwrap_err();
    assert!(
        matches!(&error, JournalError::Locked { holder } if holder.contains(&std::process::id().to_string())),
        "{error}"
    );
}

#[test]
fn damage_inside_a_file_is_named_with_its_line() {
    let (_folder, journal) = journal();
    let writer = journal.lock().unwrap();
    Session::begin(&writer, "test").unwrap();
    append(&journal, "rubbish\n{\"record\":\"confirmed\"}\n");
    let error = journal.sessions().unwrap_err();
    assert!(matches!(error, JournalError::Damaged { line: 2, .. }), "{error}");
}

/// A model whose second write comes with the loss of the journal: a folder stands where the session's file was.
struct LosesJournal<'a>(Model, &'a Journal, u32);

impl Store for LosesJournal<'_> {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        self.0.read(knob)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        self.2 += 1;
        if self.2 == 2 {
            let session = &self.1.sessions().unwrap()[0];
            let path = self.1.folder().join(format!("{}.jsonl", session.header.session));
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        }
        self.0.write(knob, value)
    }
}

#[test]
fn a_journal_lost_in_mid_apply_leaves_nothing_changed() {
    let (_folder, journal) = journal();
    let writer = journal.lock().unwrap();
    let mut session = Session::begin(&writer, "test").unwrap();
    let mut store = LosesJournal(machine(3), &journal, 0);
    let error = session.apply(&writer, &mut store, &changes(&["1"; 3])).unwrap_err();
    assert!(matches!(error, ApplyError::Journal { restored: 2, .. }), "{error}");
    assert!(error.to_string().contains("Nothing stays changed: 2 earlier changes"), "{error}");
    assert_eq!(store.0.values, machine(3).values);
}

#[test]
fn two_sessions_never_share_a_file() {
    let (_folder, journal) = journal();
    let writer = journal.lock().unwrap();
    for _ in 0..50 {
        Session::begin(&writer, "test").unwrap();
    }
    assert_eq!(journal.sessions().unwrap().len(), 50);
}

#[test]
fn a_session_has_a_short_name_as_long_as_it_is_the_only_one() {
    let (_folder, journal) = journal();
    let writer = journal.lock().unwrap();
    let full = Session::begin(&writer, "evenkeel test").unwrap().header.session;
    let short = short_name(&full);
    assert!(short.len() == 6 && full.contains(&format!("{short}-")), "{full}: {short}");
    for name in [short, &full] {
        assert_eq!(journal.session(name).unwrap().header.session, full);
    }
    for name in [&short[1..], "", "../x"] {
        assert!(matches!(journal.session(name), Err(JournalError::NoSuchSession { .. })), "{name}");
    }
    let file = |name: &str| journal.folder().join(format!("{name}.jsonl"));
    fs::copy(file(&full), file(&format!("9{short}-1"))).unwrap();
    let error = journal.session(short).unwrap_err();
    assert!(matches!(error, JournalError::SeveralSessions { .. }) && error.to_string().contains(&full), "{error}");
}

#[test]
fn an_earlier_session_waits_for_the_later_one_on_the_same_knob() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(2), journal.lock().unwrap());
    let mut first = Session::begin(&writer, "first").unwrap();
    first.apply(&writer, &mut model, &[change(irq(0), "2"), change(irq(1), "2")]).unwrap();
    let mut second = Session::begin(&writer, "second").unwrap();
    second.apply(&writer, &mut model, &[change(irq(0), "ff")]).unwrap();
    let report = first.undo(&writer, &mut model, UndoOptions { go_on: true, ..UndoOptions::default() });
    let by = StepState::Superseded { by: second.header.session.clone() };
    assert_eq!(report.steps.iter().map(|s| &s.state).collect::<Vec<_>>(), [&StepState::Restored, &by]);
    assert!(!report.is_complete() && first.is_open(), "it must stay open until the later one is taken back");
    assert!(second.undo(&writer, &mut model, UndoOptions::default()).is_complete());
    assert!(first.undo(&writer, &mut model, UndoOptions::default()).is_complete());
    assert_eq!(model.values, machine(2).values);
}

#[test]
fn an_undo_that_goes_on_leaves_only_the_foreign_value() {
    let mut it = Applied::new(&["1", "2", "4"]);
    it.model.values.insert(irq(2), "80".into());
    let report = it.undo(UndoOptions { go_on: true, ..UndoOptions::default() });
    assert!(!report.is_complete());
    let left: Vec<&str> = it.model.values.values().map(String::as_str).collect();
    assert_eq!(left, ["ff", "ff", "80"]);
}

#[test]
fn a_ring_that_resets_the_interrupts_is_not_the_last_word() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(2), journal.lock().unwrap());
    let ring = Knob::Ring { nic: "x".into(), direction: host::knob::Direction::Rx };
    model.values.insert(ring.clone(), "256".into());
    let before = model.values.clone();
    let mut session = Session::begin(&writer, "test").unwrap();
    session.apply(&writer, &mut model, &[change(ring, "512")]).unwrap();
    assert_eq!(model.values[&irq(0)], "f", "reset by the driver");
    let others: Vec<Change> = (0..2).map(|n| Change { old: "ff".into(), ..change(irq(n), "1") }).collect();
    session.apply_after_reset(&writer, &mut model, &others).unwrap();
    let report = session.undo(&writer, &mut model, UndoOptions::default());
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(model.values, before);
}

#[test]
fn an_interrupt_that_nobody_can_write_does_not_stop_the_others() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(3), journal.lock().unwrap());
    model.managed = Some(irq(1));
    let mut session = Session::begin(&writer, "test").unwrap();
    let applied = session.apply(&writer, &mut model, &changes(&["1"; 3])).unwrap();
    assert_eq!((applied.written, applied.refused.len()), (2, 1));
    assert_eq!(applied.refused[0].0.knob, irq(1));
    assert!(session.undo(&writer, &mut model, UndoOptions::default()).is_complete());
    assert_eq!(model.values, machine(3).values);
}

/// Runs in a mount namespace of a thread's own, where a tiny disk is mounted on a folder.
fn on_a_disk_of_its_own(what: impl FnOnce(&std::path::Path, &dyn Fn(&[&str])) + Send + 'static) {
    let Some(()) = testbed::privileged() else { return };
    let run = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS | nix::sched::CloneFlags::CLONE_FS).unwrap();
        let mount = |args: &[&str]| assert!(std::process::Command::new("mount").args(args).status().unwrap().success());
        mount(&["--make-rprivate", "/"]);
        let folder = tempfile::tempdir().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=64k,mode=700", "ek", folder.path().to_str().unwrap()]);
        what(folder.path(), &mount);
        nix::mount::umount2(folder.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn a_full_disk_does_not_stand_in_the_way_of_undo() {
    on_a_disk_of_its_own(|folder, _| {
        let journal = Journal::at(Some(folder));
        // So many that the records of their undoing need another page.
        let mut model = machine(60);
        let mut session = apply(&journal, &mut model, &["1"; 60]);
        fs::write(journal.folder().join("lock"), "").unwrap();
        assert!(fs::write(folder.join("ballast"), vec![0; 1 << 20]).is_err(), "the disk is full");
        let report = session.undo(&journal.lock().unwrap(), &mut model, UndoOptions::default());
        assert!(report.is_complete() && report.restored() == 60, "{report:?}");
        assert!(report.unrecorded.as_ref().is_some_and(|why| why.contains("No space")), "{:?}", report.unrecorded);
        assert_eq!(model.values, machine(60).values);
    });
}

#[test]
fn a_disk_that_became_read_only_does_not_stand_in_the_way_of_undo_and_is_reported() {
    on_a_disk_of_its_own(|folder, mount| {
        let journal = Journal::at(Some(folder));
        let mut model = machine(3);
        let mut session = apply(&journal, &mut model, &["1"; 3]);
        mount(&["-o", "remount,ro", folder.to_str().unwrap()]);
        let writer = journal.lock().unwrap();
        assert!(matches!(journal.lock(), Err(JournalError::Locked { .. })), "one at a time here, too");
        let report = session.undo(&writer, &mut model, UndoOptions::default());
        assert!(report.is_complete());
        assert!(report.unrecorded.as_ref().is_some_and(|why| why.contains("Read-only")), "{report:?}");
        assert_eq!(model.values, machine(3).values);
        assert!(!session.is_open() && journal.sessions().unwrap()[0].is_open());
    });
}

#[test]
fn a_guardian_acts_though_the_journal_is_gone_and_a_value_is_foreign() {
    let Applied { folder: _folder, journal, mut model, session } = Applied::new(&["1"; 3]);
    model.values.insert(irq(2), "80".into());
    fs::write(journal.folder().join("0-0.jsonl"), "damage of another session\n").unwrap();
    let guardian = Guardian::arm(Root::from_files(BTreeMap::new()), Vec::new(), 0);
    let loaded = journal.session(&session.header.session).unwrap();
    fs::remove_dir_all(journal.folder()).unwrap();
    let Verdict::Reverted { report, .. } = guardian.watch(&journal, loaded, &mut model) else { panic!() };
    assert_eq!(report.restored(), 2, "{report:?}");
    assert!(!report.is_complete() && report.unrecorded.is_some());
}

#[test]
fn a_session_of_another_network_namespace_says_so() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (Model::default(), journal.lock().unwrap());
    let rps = Knob::RpsCpus { nic: "x".into(), queue: 0 };
    model.values.insert(rps.clone(), "0".into());
    let mut session = Session::begin(&writer, "test").unwrap();
    session.apply(&writer, &mut model, &[change(rps, "1")]).unwrap();
    assert_eq!(session.other_netns(), None);
    session.header.netns = session.header.netns.map(|n| n + 1);
    assert_eq!(session.other_netns(), session.header.netns);
}

#[test]
fn a_relative_folder_is_the_same_one_for_every_process() {
    assert!(Journal::at(Some("ek-state".as_ref())).folder().is_absolute());
}

#[test]
fn a_guardian_does_not_wait_for_ever_for_a_lock_that_another_process_keeps() {
    let Applied { folder: _folder, journal, mut model, session } = Applied::new(&["1", "2"]);
    let kept = fs::File::open(journal.folder().join("lock")).unwrap();
    let kept = nix::fcntl::Flock::lock(kept, nix::fcntl::FlockArg::LockExclusive).unwrap();
    let guardian = Guardian::arm(Root::from_files(BTreeMap::new()), Vec::new(), 0);
    let loaded = journal.session(&session.header.session).unwrap();
    let Verdict::Reverted { report, .. } = guardian.watch(&journal, loaded, &mut model) else { panic!() };
    assert!(report.is_complete() && report.restored() == 2, "{report:?}");
    assert_eq!(model.values, machine(2).values);
    drop(kept);
}

#[test]
fn nobody_else_can_open_the_lock_or_read_a_session() {
    use std::os::unix::fs::PermissionsExt;
    let state = tempfile::tempdir().unwrap();
    // As an earlier version left it.
    fs::create_dir(state.path().join("journal")).unwrap();
    fs::set_permissions(state.path().join("journal"), fs::Permissions::from_mode(0o755)).unwrap();
    let journal = Journal::at(Some(state.path()));
    let session = Session::begin(&journal.lock().unwrap(), "test").unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(journal.folder()), 0o700);
    assert_eq!(mode(&journal.folder().join("lock")), 0o600);
    assert_eq!(mode(&journal.folder().join(format!("{}.jsonl", session.header.session))), 0o600);
}

#[test]
fn a_journal_that_somebody_else_could_have_written_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let Applied { folder: state, journal, session, .. } = Applied::new(&["1"]);
    let name = session.header.session.clone();
    let refused = || {
        matches!(journal.sessions(), Err(JournalError::Foreign(_)))
            && matches!(journal.session(&name), Err(JournalError::Foreign(_)))
    };
    let file = journal.folder().join(format!("{name}.jsonl"));
    for path in [state.path(), journal.folder(), &file] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(), "{} is for all to write to", path.display());
        fs::set_permissions(path, before).unwrap();
        if nix::unistd::geteuid().is_root() {
            chown(path, Some(65534), None).unwrap();
            assert!(refused(), "{} belongs to somebody else", path.display());
            assert!(path == file || journal.lock().is_err());
            chown(path, Some(0), None).unwrap();
        }
    }
    journal.session(&name).unwrap();
    let away = state.path().join("away");
    fs::rename(&file, &away).unwrap();
    symlink(&away, &file).unwrap();
    assert!(journal.session(&name).is_err(), "a session is no link");
}

#[test]
fn a_session_that_names_a_file_outside_of_the_knobs_is_damaged() {
    for knob in [
        r#"{"kind":"sysctl","path":"../../tmp/ek-planted"}"#,
        r#"{"kind":"sysctl","path":"/etc/shadow"}"#,
        r#"{"kind":"mtu","nic":"../../../tmp/ek"}"#,
    ] {
        let (_folder, journal) = journal();
        Session::begin(&journal.lock().unwrap(), "test").unwrap();
        let change = format!(r#"{{"knob":{knob},"old":"planted","new":"1","reason":"x"}}"#);
        append(&journal, &format!("{{\"record\":\"pending\",\"step\":0,\"change\":{change}}}\n"));
        let error = journal.sessions().unwrap_err();
        assert!(matches!(error, JournalError::Damaged { line: 2, .. }), "{knob}: {error}");
    }
}

#[test]
fn a_guardian_leaves_the_group_that_the_end_of_a_login_would_end() {
    const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let mine = || fs::read_to_string("/proc/self/cgroup").unwrap();
    if std::env::var_os("EK_GUARDIAN_GROUP").is_some() {
        assert!(mine().contains("/ek-guardian-"), "{}", mine());
        host::journal::leave_control_group().unwrap();
        assert!(!mine().contains("/ek-guardian-"), "{}", mine());
        return;
    }
    let folder = HIERARCHIES.iter().map(std::path::Path::new).find(|path| path.join("cgroup.procs").exists());
    let Some(group) = folder.map(|path| path.join(format!("ek-guardian-{}", std::process::id()))) else {
        return eprintln!("skipped: no control groups");
    };
    if let Err(e) = fs::create_dir(&group) {
        return eprintln!("skipped: no control group can be made: {e}");
    }
    let script = "echo $$ > \"$1/cgroup.procs\" && exec \"$0\" --exact \"$2\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(&group)
        .arg("a_guardian_leaves_the_group_that_the_end_of_a_login_would_end")
        .env("EK_GUARDIAN_GROUP", "1")
        .output()
        .unwrap();
    fs::remove_dir(&group).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}
