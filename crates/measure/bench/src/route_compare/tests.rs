//! Whole comparisons on simulated boxes.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bpf::Allocated;
use model::{bench::Trial, run::Machine};
use rig::{
    experiment::Control,
    progress::{self, Progress},
};

use super::*;
use crate::{BenchError, Meanwhile, Order, Tester, dut::Identity, methods::simulated::SimBox, run::StandingBox};

/// Boxes by key.
#[derive(Default)]
struct SimStage {
    built: Vec<(u32, String)>,
    /// The box that this machine cannot build.
    lacking: &'static str,
    /// The kernel counts no memory.
    uncounted: bool,
    /// Something counts memory now.
    counting: Rc<Cell<bool>>,
    /// The trials for which something did, and those for which nothing did.
    trials: Rc<RefCell<[Vec<String>; 2]>>,
}

/// Notes whether memory is counted during a trial.
struct Noting {
    inner: SimBox,
    counting: Rc<Cell<bool>>,
    trials: Rc<RefCell<[Vec<String>; 2]>>,
}

impl Tester for Noting {
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError> {
        let which = usize::from(!self.counting.get());
        self.trials.borrow_mut()[which].push(order.purpose.clone());
        self.inner.make(order, also, stop)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }
}

/// While it lives, memory is counted.
struct Alive(Rc<Cell<bool>>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Stage for SimStage {
    fn build(&mut self, cores: u32, key: &str) -> Result<StandingBox, BenchError> {
        self.built.push((cores, key.to_owned()));
        if key == self.lacking {
            return Err(BenchError::Machine(format!("no {key} here")));
        }
        let capacity_pps = f64::from(cores)
            * match key {
                "wire" => 1e7,
                "router" => 8e5,
                "route-standard" => 7.8e5,
                "route" => 2e6,
                _ => 1.5e6,
            };
        Ok(StandingBox {
            tester: Box::new(Noting {
                inner: SimBox { capacity_pps, ..SimBox::default() },
                counting: Rc::clone(&self.counting),
                trials: Rc::clone(&self.trials),
            }),
            identity: Identity { key: key.into(), name: key.into(), what: key.into(), settings: Vec::new() },
            ports: Vec::new(),
            addressing: String::new(),
            resets: Vec::new(),
        })
    }

    fn count(&self, _cores: u32) -> StartCount {
        let (uncounted, counting) = (self.uncounted, Rc::clone(&self.counting));
        Box::new(move || {
            if uncounted {
                return Err(BenchError::Machine("no tracepoint".into()));
            }
            counting.set(true);
            let alive = Alive(Rc::clone(&counting));
            Ok(Box::new(move || {
                let _counts = &alive;
                Ok(Allocated::default())
            }))
        })
    }
}

struct Watching<'a> {
    begun: Vec<String>,
    stop_at: usize,
    stop: &'a AtomicBool,
}

impl Progress for Watching<'_> {
    fn begin(&mut self, step: &progress::Step) {
        self.begun.push(step.name.clone());
        self.stop.store(self.begun.len() == self.stop_at, Ordering::Relaxed);
    }

    fn update(&mut self, _text: &str) {}

    fn line(&mut self, _text: &str) {}
}

fn compare(
    stage: &mut SimStage,
    cpus: &str,
    stop_at: usize,
) -> Result<Option<model::route_compare::RouteCompare>, BenchError> {
    let plan = Plan::new(Options {
        ways: Forwarding::ALL.to_vec(),
        cpus: cpus.parse().unwrap(),
        duration: Duration::from_millis(300),
        rounds: 3,
        loads: 4,
        loss_ratio: None,
    })
    .unwrap();
    let stop = AtomicBool::new(false);
    let mut watching = Watching { begun: Vec::new(), stop_at, stop: &stop };
    carry_out(&plan, Machine::default(), stage, &mut Control { stop: &stop, progress: &mut watching })
}

#[test]
fn each_way_is_found_and_laid_beside_no_program_on_as_many_cores() {
    let mut stage = SimStage::default();
    let run = compare(&mut stage, "0-2", 0).unwrap().unwrap();
    let keys: Vec<(&str, u32)> = run.configurations.iter().map(|w| (w.mode.as_str(), w.cores)).collect();
    let modes = ["none", "standard", "routed", "stateful"];
    assert_eq!(keys, [1, 2].map(|n| modes.map(|m| (m, n))).concat());
    for way in &run.configurations {
        assert_eq!((way.rounds.len(), way.setup.ceilings_pps.len(), way.setup.at_ceiling.len()), (3, 3, 3));
        // Four loads, and the throughput.
        assert_eq!(way.setup.steps.len(), 5, "{}", way.setup.key);
        assert!(way.setup.steps.is_sorted_by(|a, b| a.intended_pps <= b.intended_pps) && way.answered());
        assert!(
            way.round_trip_ns.is_some()
                && way.delay_p99_ns.is_some()
                && way.reference_p99_ns.is_some()
                && way.allocations.is_some()
        );
        assert_eq!(way.gain.is_none(), way.mode == "none");
    }
    let gain = |key: &str| run.configurations.iter().find(|w| w.setup.key == key).unwrap().gain.unwrap();
    assert!(gain("routed-1").significant && (gain("routed-1").ratio - 2.5).abs() < 0.1, "{:?}", gain("routed-1"));
    assert!(!gain("standard-2").significant, "2.5 % less is within what the search can tell");
    assert!(run.skipped.is_empty() && !run.sources.is_empty());
    for words in ["On one core: no program ", "On two cores: ", "routed 1.9", "no difference that can be told"] {
        assert!(run.conclusion.contains(words), "{words}: {}", run.conclusion);
    }
    // The ways take turns.
    assert_eq!(stage.built[..2], [(1, "wire".to_owned()), (2, "wire".to_owned())]);
    assert_eq!(stage.built[2], stage.built[10]);
}

#[test]
fn memory_is_counted_in_trials_of_its_own() {
    let stage = &mut SimStage::default();
    compare(stage, "0-1", 0).unwrap().unwrap();
    let [with, without] = &*stage.trials.borrow();
    assert!(with.len() == 12 && with.iter().all(|why| why == "memory of each packet"), "{with:?}");
    assert!(without.len() > 100 && without.iter().all(|why| why != "memory of each packet"));
}

#[test]
fn what_cannot_be_had_is_left_out_with_its_reason() {
    let mut stage = SimStage { lacking: "route-stateful", uncounted: true, ..SimStage::default() };
    let run = compare(&mut stage, "0-1", 0).unwrap().unwrap();
    assert_eq!(run.configurations.len(), 3);
    assert!(run.configurations.iter().all(|w| w.allocations.is_none()));
    let reasons: Vec<&str> = run.skipped.iter().map(|l| l.reason.as_str()).collect();
    assert!(
        reasons[0].contains("three CPUs") && reasons[1..] == ["no tracepoint", "no route-stateful here"],
        "{reasons:?}"
    );
    let tried = stage.built.iter().filter(|(_, key)| key == "route-stateful").count();
    assert_eq!(tried, 1, "it is not tried again");
}

#[test]
fn a_tester_that_is_gone_is_an_error_and_a_stop_is_an_end() {
    let mut stage = SimStage { lacking: "wire", ..SimStage::default() };
    assert!(compare(&mut stage, "0-1", 0).is_err());
    assert!(compare(&mut SimStage::default(), "0-1", 3).unwrap().is_none());
}
