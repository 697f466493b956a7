//! Parts of all tests of boxes with known answers: a tester on a box, and when its answers count.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind},
    sync::atomic::AtomicBool,
    time::Duration,
};

use bench::{
    Drain, Dut, Load, Order, Patience, Tester,
    methods::Bench,
    tester::{RealTester, TesterConfig},
};
use model::bench::{FrameSpec, Goal, Trial};
use rig::others::Watch;
use testbed::turn;

use crate::cores::cores;

/// A tester that sends `flows` flows one way.
pub(crate) fn one_way(dut: &Dut, flows: u32) -> RealTester<'_> {
    RealTester::new(dut, &cores(), TesterConfig { flows, both_ways: false }, None).unwrap()
}

/// The least frames of RFC 2544.
pub(crate) fn least() -> FrameSpec {
    FrameSpec::Size { bytes: 64 }
}

/// A drain that is patient with a busy machine.
pub(crate) fn drain() -> Drain {
    Drain { quiet: Duration::from_millis(30), longest: Duration::from_secs(3), slack: 0.03 }
}

/// The tester as the methods want it.
pub(crate) fn bench<'a>(tester: &'a mut dyn Tester, stop: &'a AtomicBool) -> Bench<'a> {
    // For the life of the test.
    let patience = Box::leak(Box::new(Patience::endless()));
    Bench { tester, frame: least(), drain: drain(), observe: false, void_repeats: 3, stop, patience }
}

/// An order of least frames, all of them stamped.
pub(crate) fn order(load: Load, duration: Duration) -> Order {
    Order { drain: drain(), ..crate::order::order(least(), load, duration) }
}

/// A goal that ignores the slower half of a load's trials.
pub(crate) fn goal(loss_ratio: f64, width: f64) -> Goal {
    let name = format!("{loss_ratio}");
    Goal { name, loss_ratio, exceed_ratio: 0.5, initial_s: 0.2, trial_s: 0.3, sum_s: 0.9, width, longest_s: 4.0 }
}

/// Makes the trial again while other work on this machine spoils it.
pub(crate) fn believed(tester: &mut dyn Tester, order: &Order) -> Trial {
    let mut reasons = Vec::new();
    for _ in 0..20 {
        let trial = tester.trial(order, &AtomicBool::new(false)).unwrap();
        match &trial.invalid {
            None => return trial,
            Some(reason) => reasons.push(reason.clone()),
        }
    }
    unbelieved(format!("no trial could be believed: {reasons:#?}"));
}

/// A test that got no answer, and its trials with their reasons.
struct Unbelieved(String);

/// Ends a test that got no answer.
pub(crate) fn unbelieved(trials: String) -> ! {
    panic_any(Unbelieved(trials))
}

/// Runs a test of what a quiet machine measures. On one on which other programs took so much of the CPUs that a run says so itself, the box and the
/// tester are slower than they are: no answer counts there, and neither does a lower one, or one that the slack of late trials raised. A higher one is a
/// fault there too.
pub(crate) fn on_a_quiet_machine(test: impl FnOnce()) {
    let Some(_alone) = turn() else { return };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let watch = Watch::start(0..cpus);
    let Err(panic) = catch_unwind(AssertUnwindSafe(test)) else { return };
    let Unbelieved(trials) = *panic.downcast().unwrap_or_else(|other| resume_unwind(other));
    let others = watch.warning();
    assert!(others.is_some(), "{trials}");
    println!("no answer: {}", others.unwrap_or_default());
}
