//! A tester that leaves the box alone for a while before each trial (RFC 2544, section 23).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use model::bench::Trial;
use rig::window::pause;

use crate::{BenchError, Meanwhile, Order, Tester};

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
}

impl<T: Tester> Tester for Settling<T> {
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError> {
        let settle = if self.begun { self.settle } else { Duration::ZERO };
        self.begun = true;
        pause(settle, stop);
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        self.inner.make(order, also, stop)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{Load, methods::simulated::SimBox};

    #[test]
    fn it_waits_between_trials_and_stops_on_request() {
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
