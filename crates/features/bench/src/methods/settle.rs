//! A tester that leaves the box alone for a while before each trial (RFC 2544, section 23).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use model::bench::Trial;

use crate::{BenchError, Order, Tester};

/// How soon it notices that it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Waits before each trial but the first.
pub struct Settling<T> {
    inner: T,
    settle: Duration,
    begun: bool,
}

impl<T: Tester> Settling<T> {
    /// Waits for `settle` before each trial of `inner` but the first.
    pub fn new(inner: T, settle: Duration) -> Self {
        Self { inner, settle, begun: false }
    }

    fn wait(&mut self, stop: &AtomicBool) -> Result<(), BenchError> {
        let until = Instant::now() + if self.begun { self.settle } else { Duration::ZERO };
        self.begun = true;
        while !stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK));
        }
        Err(BenchError::Interrupted)
    }
}

impl<T: Tester> Tester for Settling<T> {
    fn trial(&mut self, order: &Order, stop: &AtomicBool) -> Result<Trial, BenchError> {
        self.wait(stop)?;
        self.inner.trial(order, stop)
    }

    fn trial_with(
        &mut self,
        order: &Order,
        after: Duration,
        meanwhile: &(dyn Fn() -> Result<(), BenchError> + Sync),
        stop: &AtomicBool,
    ) -> Result<Trial, BenchError> {
        self.wait(stop)?;
        self.inner.trial_with(order, after, meanwhile, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, methods::simulated::SimBox};

    #[test]
    fn it_waits_between_trials_and_stops_when_told() {
        let order = SimBox::default().with(|b| Ok::<_, BenchError>(b.order("x", Load::Idle, Duration::ZERO))).unwrap();
        let mut tester = Settling::new(SimBox::default(), Duration::from_millis(30));
        let go = AtomicBool::new(false);
        let begun = Instant::now();
        tester.trial(&order, &go).unwrap();
        tester.trial(&order, &go).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
        let stop = AtomicBool::new(true);
        assert!(matches!(tester.trial(&order, &stop), Err(BenchError::Interrupted)));
    }
}
