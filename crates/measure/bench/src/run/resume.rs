//! A tester that remembers: trials that an interrupted run has made are not made again.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use model::bench::Trial;

use crate::{BenchError, Load, Meanwhile, Order, Tester};

/// Called with each trial as soon as it has ended, whether it counts or not.
pub(super) type OnTrial<'a> = &'a mut dyn FnMut(&Trial) -> Result<(), BenchError>;

/// Answers from earlier trials while the same ones are ordered in the same order; from then on the inner tester makes them. A search that gets
/// the same results orders the same loads, and so goes on where it was interrupted.
pub(super) struct ResumedTester<'a> {
    inner: &'a mut dyn Tester,
    before: VecDeque<Trial>,
    number: u32,
    on_trial: OnTrial<'a>,
}

impl<'a> ResumedTester<'a> {
    /// `before`: the step's trials so far. `number`: that of the step's first trial. `on_trial` hears of all trials, those of before too.
    pub(super) fn new(inner: &'a mut dyn Tester, before: Vec<Trial>, number: u32, on_trial: OnTrial<'a>) -> Self {
        Self { inner, before: before.into(), number, on_trial }
    }

    /// The trial of before that answers `order`, if there is one.
    fn recall(&mut self, order: &Order) -> Option<Trial> {
        let trial = self.before.pop_front()?;
        if answers(&trial, order) {
            return Some(trial);
        }
        // Something else is wanted than at that time: what follows belongs to another course of things.
        self.before.clear();
        None
    }
}

impl Tester for ResumedTester<'_> {
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError> {
        let mut trial = match self.recall(order) {
            Some(trial) => trial,
            None if stop.load(Ordering::Relaxed) => return Err(BenchError::Interrupted),
            None => self.inner.make(order, also, stop)?,
        };
        trial.number = self.number;
        self.number += 1;
        (self.on_trial)(&trial)?;
        Ok(trial)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }
}

/// True if `trial` was made for an order like this one.
fn answers(trial: &Trial, order: &Order) -> bool {
    let same_load = match (&order.load, trial.intended_pps) {
        (Load::Pps(pps), Some(wanted)) => (pps - wanted).abs() <= 1e-6 * pps.abs().max(1.0),
        (Load::Pps(_), None) | (Load::Max | Load::Burst(_), Some(_)) => false,
        // What else there is to tell is in the purpose.
        _ => true,
    };
    same_load && trial.purpose == order.purpose && trial.frame == order.frame
}
