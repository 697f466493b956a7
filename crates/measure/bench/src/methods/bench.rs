//! The tester, the frames and the making of trials, for every method.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use model::bench::{FrameSpec, Trial};

use crate::{BenchError, Drain, Load, Meanwhile, Order, Patience, Stamping, Tester, patience::STRAINED_IDLE_SHARE};

/// True if a box still lives is tried at this rate, for so long.
const LEAST_PPS: f64 = 100.0;
const TRIAL_TIME_MIN: Duration = Duration::from_millis(300);
/// From this share of units on that come back to the port that sent them, the box loops.
const LOOP_SHARE_MIN: f64 = 0.01;

/// A tester with the frames that it is to send, and how.
pub struct Bench<'a> {
    pub tester: &'a mut dyn Tester,
    pub frame: FrameSpec,
    pub drain: Drain,
    /// True if the box is observed.
    pub observe: bool,
    pub void_repeats: u32,
    /// Set from outside to stop: the next trial is not begun.
    pub stop: &'a AtomicBool,
    /// The time and the void trials that the run still has.
    pub patience: &'a Patience,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer<T> {
    Measured(T),
    /// The measurement failed, or makes no sense here.
    Not {
        reason: String,
    },
}

impl<T> Answer<T> {
    pub(super) fn not(reason: impl Into<String>) -> Self {
        Self::Not { reason: reason.into() }
    }

    /// The measurement, if there is one.
    pub fn measured(self) -> Option<T> {
        match self {
            Self::Measured(it) => Some(it),
            Self::Not { .. } => None,
        }
    }
}

/// A trial, made again while it could not be believed.
#[derive(Debug, Clone, PartialEq)]
pub enum Tried {
    Good(Box<Trial>),
    /// None that counts; this is the last.
    Void {
        trial: Box<Trial>,
        reason: String,
    },
}

impl Bench<'_> {
    /// An order for these frames, with sampled stamps and without probes.
    pub(crate) fn order(&self, purpose: impl Into<String>, load: Load, duration: Duration) -> Order {
        Order {
            purpose: purpose.into(),
            frame: self.frame.clone(),
            load,
            duration,
            probes: None,
            stamping: Stamping::Sampled,
            drain: Drain {
                longest: self
                    .left()
                    .map_or(self.drain.longest, |left| left.saturating_sub(duration).min(self.drain.longest)),
                ..self.drain
            },
            observe: self.observe,
        }
    }

    /// The time that the run still has; none without a limit.
    fn left(&self) -> Option<Duration> {
        self.patience.left(self.tester.now())
    }

    /// The reason why a trial of `duration` cannot be made any more: the time of the run is over.
    pub(super) fn late(&self, duration: Duration) -> Option<String> {
        self.left().filter(|left| left.is_zero() || *left < duration).map(|_| self.patience.time_message())
    }

    /// Makes the trial, and again while it is void.
    pub(super) fn attempt(&mut self, order: &Order) -> Result<Tried, BenchError> {
        self.attempt_with(order, None)
    }

    /// An attempt with something done meanwhile.
    pub(crate) fn attempt_with(
        &mut self,
        order: &Order,
        meanwhile: Option<Meanwhile<'_>>,
    ) -> Result<Tried, BenchError> {
        let mut repeats = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            if let Some(reason) = self.late(order.duration) {
                return Err(BenchError::GivenUp(reason));
            }
            let trial = self.tester.make(order, meanwhile, self.stop)?;
            refuse_loops(&trial)?;
            self.patience.note(&trial);
            if self.patience.is_exhausted() {
                return Err(BenchError::GivenUp(self.patience.void_message()));
            }
            // A load that is too much for the sender stays so.
            let beyond_sender =
                trial.intended_pps.is_some_and(|pps| pps > 0.0) && trial.pacing.idle_share < STRAINED_IDLE_SHARE;
            match &trial.invalid {
                None => return Ok(Tried::Good(Box::new(trial))),
                Some(reason) if repeats >= self.void_repeats || (beyond_sender && repeats > 0) => {
                    let reason = reason.clone();
                    return Ok(Tried::Void { trial: Box::new(trial), reason });
                }
                Some(_) => repeats += 1,
            }
        }
    }

    /// After a trial through which nothing came, of a box that has forwarded before: whether it still does at the least load.
    pub(super) fn require_life(&mut self, trial: &Trial) -> Result<(), BenchError> {
        let total = trial.total();
        if total.sent == 0 || total.received > 0 {
            return Ok(());
        }
        let order = self.order("is the box still alive", Load::Pps(LEAST_PPS), TRIAL_TIME_MIN);
        match self.attempt(&order)? {
            Tried::Good(trial) if trial.total().received == 0 => Err(BenchError::Machine(format!(
                "the box under test forwarded before, and now nothing comes through, not even {LEAST_PPS} units per second: it died on the \
                 way; bring it up again, and go on with the run"
            ))),
            _ => Ok(()),
        }
    }
}

/// A box that sends units back to where they came from is wired or set up wrongly: no figure of it means anything.
fn refuse_loops(trial: &Trial) -> Result<(), BenchError> {
    let total = trial.total();
    if total.looped as f64 <= total.sent as f64 * LOOP_SHARE_MIN {
        return Ok(());
    }
    Err(BenchError::Machine(format!(
        "the box under test loops: {} of {} frames came back to the port that sent them; check its routes, its bridge and the cables",
        total.looped, total.sent
    )))
}
