//! Whole runs on simulated boxes: to the end, interrupted and gone on with, on boxes that die.

use std::{
    cell::Cell,
    collections::BTreeMap,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use model::{
    bench::{BenchRun, Setup, Status, Trial, Verdict},
    run::Machine,
};
use rig::{
    experiment::Control,
    progress::{self, Progress},
};

use super::*;
use crate::{BenchError, Meanwhile, Order, Tester, dut::Identity, methods::simulated::SimBox};

/// Boxes by key; each is as new whenever it is built, as a real one is.
struct SimBenches {
    boxes: BTreeMap<&'static str, SimBox>,
    made: Rc<Cell<u32>>,
    /// The box vanishes in this trial.
    gone_at: u32,
}

/// Counts what is really made.
struct Counting {
    inner: SimBox,
    made: Rc<Cell<u32>>,
    gone_at: u32,
}

impl Tester for Counting {
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError> {
        self.made.set(self.made.get() + 1);
        if self.made.get() == self.gone_at {
            return Err(BenchError::Machine("the second port is gone".into()));
        }
        self.inner.make(order, also, stop)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }
}

impl Benches for SimBenches {
    fn build(&mut self, key: &str) -> Result<StandingBox, BenchError> {
        let made = Rc::clone(&self.made);
        let tester = Counting { inner: self.boxes[key].clone(), made, gone_at: self.gone_at };
        Ok(StandingBox {
            tester: Box::new(tester),
            identity: Identity {
                key: key.to_owned(),
                name: key.to_owned(),
                what: format!("a simulated {key}"),
                settings: vec!["simulated = 1".into()],
            },
            ports: Vec::new(),
            addressing: String::new(),
            resets: vec![ResetWay { what: "off and on".into(), act: Box::new(|| Ok(())) }],
        })
    }
}

/// Sets the flag after so many trials.
struct StopAfter<'a> {
    trials: u32,
    stop: &'a AtomicBool,
    begun: Vec<String>,
}

impl Progress for StopAfter<'_> {
    fn begin(&mut self, step: &progress::Step) {
        self.begun.push(step.name.clone());
    }

    fn update(&mut self, _trial: &str) {
        self.trials = self.trials.saturating_sub(1);
        if self.trials == 0 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn line(&mut self, _text: &str) {}
}

fn benches() -> SimBenches {
    let of = |capacity_pps| SimBox { capacity_pps, ..SimBox::default() };
    SimBenches {
        boxes: BTreeMap::from([("wire", of(1e8)), ("router", of(8e5)), ("stateful", of(3e5)), ("dead", of(0.0))]),
        made: Rc::default(),
        gone_at: 0,
    }
}

fn saved(modes: &[&str], tests: &[Test]) -> Saved {
    let request = Request::simulated(modes, tests);
    let settings = Settings::of(&request).unwrap();
    let setup = Setup {
        preset: settings.name,
        goals: settings.preset.goals,
        ip_version: 4,
        flows: 1,
        rules: 25,
        rule_order: "study".into(),
        protocol: "UDP".into(),
        ..Setup::default()
    };
    let run = BenchRun {
        timestamp: host::machine::now(),
        ended: None,
        version: "0".into(),
        machine: Machine::default(),
        setup,
        modes: Vec::new(),
        status: Status::Partial { reason: "it has not begun".into(), begun: None },
        sources: Vec::new(),
        conclusion: String::new(),
        notes: Vec::new(),
    };
    Saved { run, request, done: Vec::new(), begun: None, remarks: Vec::new() }
}

/// Goes on with what is in `file` until `trials` more are made.
fn go(file: &mut RunFile, benches: &mut SimBenches, trials: u32) -> (Result<(), BenchError>, Vec<String>) {
    let stop = AtomicBool::new(false);
    let mut saved = load(file.path()).unwrap();
    let settings = Settings::of(&saved.request).unwrap();
    let mut watch = StopAfter { trials, stop: &stop, begun: Vec::new() };
    let control = &mut Control { stop: &stop, progress: &mut watch };
    let result = carry_out(&mut saved, &settings, benches, file, control);
    (result, watch.begun)
}

/// A file with a run in it that has not begun.
fn file(folder: &tempfile::TempDir, saved: &Saved) -> RunFile {
    let mut file = RunFile::create(&folder.path().join("run.json")).unwrap();
    file.keep(saved).unwrap();
    file
}

/// Without what no two runs share.
fn timeless(mut saved: Saved) -> Saved {
    saved.run.ended = None;
    saved.run.timestamp = String::new();
    saved
}

#[test]
fn every_test_of_every_box_is_made_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut benches = benches();
    let mut file = file(&folder, &saved(&["router", "stateful"], &Test::ALL));
    let (result, begun) = go(&mut file, &mut benches, u32::MAX);
    result.unwrap();
    assert_eq!(begun.len(), 2 + 2 * 2 * Test::ALL.len());
    assert_eq!(begun[..3], ["wire, 64, tester's ceiling", "wire, 1518, tester's ceiling", "router, 64, throughput"]);
    let saved = load(file.path()).unwrap();
    assert_eq!(saved.run.status, Status::Complete);
    let keys: Vec<&str> = saved.run.modes.iter().map(|m| m.key.as_str()).collect();
    assert_eq!(keys, ["wire", "router", "stateful"]);
    for (mode, rate) in [("router", 8e5), ("stateful", 3e5)] {
        let mode = saved.run.modes.iter().find(|m| m.key == mode).unwrap();
        assert_eq!((mode.what.as_str(), mode.settings.len()), (format!("a simulated {}", mode.key).as_str(), 1));
        for point in &mode.points {
            let pps = point.throughput.as_ref().unwrap().pps(0).unwrap();
            assert!((pps / rate - 1.0).abs() < 0.04, "{}: {pps}", mode.key);
            assert!(point.ceiling_pps.is_some() && !point.loss_curve.is_empty() && !point.latency.is_empty());
            assert!(point.back_to_back.is_some() && point.jitter.is_some() && point.recovery.is_some());
            assert_eq!(point.resets.len(), 1);
        }
    }
    let mut numbers: Vec<u32> =
        saved.run.modes.iter().flat_map(|m| &m.points).flat_map(|p| &p.trials).map(|t| t.number).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=benches.made.get()), "{numbers:?}");
    assert!(
        saved.run.conclusion.contains("-6") && saved.run.conclusion.contains("one direction"),
        "{}",
        saved.run.conclusion
    );
    assert!(answered(&saved.run));
}

#[test]
fn an_interrupted_run_goes_on_where_it_was_and_finds_the_same() {
    let tests = [Test::Throughput, Test::Latency];
    let whole = {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(&folder, &saved(&["router"], &tests));
        let mut benches = benches();
        go(&mut file, &mut benches, u32::MAX).0.unwrap();
        (timeless(load(file.path()).unwrap()), benches.made.get())
    };
    for every in [1, 3, 7, 1000] {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(&folder, &saved(&["router"], &tests));
        let mut benches = benches();
        loop {
            let made = benches.made.get();
            let (result, _) = go(&mut file, &mut benches, every);
            let now = load(file.path()).unwrap();
            match result {
                Ok(()) => break,
                Err(BenchError::Interrupted) => {
                    assert!(
                        matches!(&now.run.status, Status::Partial { reason, .. } if reason.contains("interrupted"))
                    );
                    assert!(benches.made.get() > made, "no trial is made twice, and each time one is made");
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(benches.made.get(), whole.1, "a stop after every {every} trials cost some");
        assert_eq!(timeless(load(file.path()).unwrap()), whole.0);
    }
}

#[test]
fn a_killed_process_leaves_a_whole_file_that_says_partial() {
    /// Keeps as a process does that is killed after so many trials: nothing of what comes later.
    struct Killed<'a>(&'a mut RunFile, u32);
    impl Keep for Killed<'_> {
        fn keep(&mut self, saved: &Saved) -> Result<(), BenchError> {
            self.1 = self.1.saturating_sub(1);
            if self.1 > 0 { self.0.keep(saved) } else { Ok(()) }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let begun = saved(&["router"], &[Test::Throughput]);
    let mut file = file(&folder, &begun);
    let (mut saved, stop) = (begun, AtomicBool::new(false));
    let settings = Settings::of(&saved.request).unwrap();
    let mut watch = StopAfter { trials: u32::MAX, stop: &stop, begun: Vec::new() };
    let mut benches = benches();
    let control = &mut Control { stop: &stop, progress: &mut watch };
    carry_out(&mut saved, &settings, &mut benches, &mut Killed(&mut file, 18), control).unwrap();
    let made = benches.made.get();
    let found = load(file.path()).unwrap();
    let Status::Partial { reason, .. } = &found.run.status else { panic!("{:?}", found.run.status) };
    assert!(reason.contains("has not ended"), "{reason}");
    assert_names_begun_step(file.path(), &found);
    go(&mut file, &mut benches, u32::MAX).0.unwrap();
    assert!(benches.made.get() < 2 * made, "the trials in the file are not made again");
    assert_eq!(timeless(load(file.path()).unwrap()), timeless(saved));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the run's file alone");
}

/// Reports name the step that was begun, and have its trials.
fn assert_names_begun_step(path: &std::path::Path, found: &Saved) {
    let begun = found.begun.as_ref().unwrap();
    assert_eq!(begun.step.to_string(), "router, 1518, throughput");
    let shown = load_run(path).unwrap();
    let Status::Partial { begun: Some(message), .. } = &shown.status else { panic!("{:?}", shown.status) };
    assert_eq!(
        (message.mode.as_str(), message.test.as_str(), message.trials),
        ("router", "throughput", begun.trials.len() as u32)
    );
    assert!(
        message.trials > 0 && message.to_string().contains("not finished: router, 1518, throughput, with"),
        "{message}"
    );
    let trials = |run: &BenchRun, mode| {
        let points = run.modes.iter().filter(|m| m.key == mode).flat_map(|m| &m.points);
        points.map(|p| p.trials.len()).collect::<Vec<_>>()
    };
    assert_eq!(trials(&shown, "router")[1], begun.trials.len());
    assert_eq!(trials(&shown, "wire"), trials(&found.run, "wire"));
}

#[test]
fn a_box_that_vanishes_leaves_a_partial_run_that_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(&folder, &saved(&["router"], &[Test::Throughput]));
    let mut benches = SimBenches { gone_at: 12, ..benches() };
    let (result, _) = go(&mut file, &mut benches, u32::MAX);
    assert!(matches!(result, Err(BenchError::Machine(_))));
    let found = load(file.path()).unwrap();
    let Status::Partial { reason, .. } = &found.run.status else { panic!("{:?}", found.run.status) };
    assert!(reason.contains("the second port is gone") && reason.contains(" of 4 steps"), "{reason}");
    benches.gone_at = 0;
    go(&mut file, &mut benches, u32::MAX).0.unwrap();
    assert_eq!(load(file.path()).unwrap().run.status, Status::Complete);
}

#[test]
fn a_box_that_forwards_nothing_is_a_finding_and_nothing_more_is_requested_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(&folder, &saved(&["dead"], &[Test::Latency, Test::Reset]));
    go(&mut file, &mut benches(), u32::MAX).0.unwrap();
    let found = load(file.path()).unwrap();
    let point = &found.run.modes[1].points[0];
    assert_eq!(point.throughput.as_ref().unwrap().verdict, Verdict::Nothing);
    assert!(point.latency.is_empty() && point.resets.is_empty() && !answered(&found.run));
    let of_latency = |r: &&String| r.starts_with("dead, 64, latency: ");
    assert_eq!(found.remarks.iter().filter(of_latency).count(), 1, "{:?}", found.remarks);
}

#[test]
fn a_lossy_box_and_one_that_holds_back_are_distinguished_from_fast_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(&folder, &saved(&["router", "stateful"], &[Test::Throughput, Test::Loss]));
    let mut benches = benches();
    benches.boxes.insert("router", SimBox { lose_one_in: 700, ..SimBox::default() });
    let deep = SimBox { capacity_pps: 2e5, buffer_units: 1e8, ..SimBox::default() };
    benches.boxes.insert("stateful", deep);
    go(&mut file, &mut benches, u32::MAX).0.unwrap();
    let run = load(file.path()).unwrap().run;
    let point = |mode: &str| &run.modes.iter().find(|m| m.key == mode).unwrap().points[0];
    assert!(matches!(point("router").throughput.as_ref().unwrap().verdict, Verdict::SameLoss { .. }));
    let pps = point("stateful").throughput.as_ref().unwrap().pps(0).unwrap();
    assert!((1.94e5..=2.08e5).contains(&pps), "{pps}");
    let highest = point("stateful").loss_curve[0];
    assert!(highest.loss_ratio == 0.0 && highest.late_ratio > 0.9, "{highest:?}");
    assert!(run.notes.iter().any(|n| n.contains("holds back")), "{:?}", run.notes);
    assert!(!answered(&run));
}

#[test]
fn a_tester_that_cannot_be_trusted_measures_no_box() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(&folder, &saved(&["router"], &[Test::Throughput]));
    let mut benches = benches();
    let steady = benches.boxes["wire"].clone();
    benches.boxes.insert("wire", SimBox { void_trials: u32::MAX, ..steady.clone() });
    let (result, begun) = go(&mut file, &mut benches, u32::MAX);
    let message = result.unwrap_err().to_string();
    assert!(
        message.contains("--cpus") && message.contains("the sender was late"),
        "the reason and the way out: {message}"
    );
    assert_eq!(begun.len(), 2, "no box is built");
    benches.boxes.insert("wire", steady);
    go(&mut file, &mut benches, u32::MAX).0.unwrap();
    assert!(answered(&load(file.path()).unwrap().run));
}

#[test]
fn what_is_no_run_is_distinguished_from_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.json");
    let message = |text: &str| {
        std::fs::write(&path, text).unwrap();
        load(&path).unwrap_err().to_string()
    };
    assert!(
        message("{").contains("cut off")
            && message("nonsense").contains("is not JSON")
            && !message("x").contains("line 1")
    );
    assert!(message("{}").contains("names no schema"));
    assert!(message(r#"{"schema": "evenkeel.top/1"}"#).contains("`evenkeel.top/1`"));
    assert!(message(r#"{"schema": "evenkeel.bench/1", "timestamp": 3}"#).contains("damaged"));
    std::fs::remove_file(&path).unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("cannot read the run"));
    for wrong in ["none/x", ""] {
        let message = RunFile::create(&folder.path().join(wrong)).unwrap_err();
        assert!(matches!(&message, crate::BenchError::Save(host::file::FileError::Io { .. })), "{message}");
    }
    assert!(RunFile::create(std::path::Path::new("/dev/null")).is_err());
}
