//! Verbs that measure, on a machine where other programs may run meanwhile.

use std::{process::Output, thread};

use rig::others::Watch;
use testbed::printed;

/// Runs of a verb that a busy machine has refused before it is asked no more.
const TRIES_MAX: u32 = 5;

/// The first run that is not refused (exit code 3). `None`, and a line why, if all were and other programs did take the CPUs; fails if they did not.
pub(crate) fn unless_busy(run: impl Fn() -> Output) -> Option<Output> {
    let cpus = thread::available_parallelism().map_or(1, usize::from) as u32;
    let watch = Watch::start(0..cpus);
    let mut reasons = Vec::new();
    for _ in 0..TRIES_MAX {
        let ran = run();
        if ran.status.code() != Some(3) {
            return Some(ran);
        }
        reasons.push(printed(&ran));
    }
    let others = watch.warning();
    let named = reasons.iter().all(|reason| reason.contains(" took "));
    assert!(others.is_some() && named, "{others:?}: {reasons:#?}");
    println!("no answer: {}", others.unwrap_or_default());
    None
}
