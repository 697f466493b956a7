//! The end of a run that has no prospect: its time is over, or no trial counts any more.

use std::{cell::RefCell, time::Duration};

use model::{bench::Trial, units};

/// A run may take so many times as long as was planned.
pub const PLANNED_TIME_FACTOR_MAX: f64 = 3.0;
/// After so many void trials in a row a further one would be void, too.
pub const VOID_TRIALS_MAX: u32 = 10;
/// Below this share of turns with nothing due, a sender cannot make good what it was held up.
pub(crate) const STRAINED_IDLE_SHARE: f64 = 0.5;

/// The time and the void trials that a run still has. A run has one, for all of its steps and boxes.
#[derive(Debug, Default)]
pub struct Patience(RefCell<State>);

#[derive(Debug, Default)]
struct State {
    /// The time that was planned for the steps so far, by the plan; none without a limit.
    planned: Option<Duration>,
    /// The time that the steps before this one took.
    spent: Duration,
    /// The beginning of this step, by the tester's clock.
    begun: Duration,
    /// The remedy if the time of this step is too short and no trial was void.
    too_slow: &'static str,
    void_in_a_row: u32,
    /// Void trials have no limit.
    endless: bool,
    /// The last trial, where it says why none counts.
    last: Option<Trouble>,
}

/// Fault of a void trial.
#[derive(Debug, Clone)]
struct Trouble {
    reason: String,
    cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The box holds units for longer than a trial waits.
    Buffers,
    /// The sender is too slow for the load.
    Sender,
    /// Something else has the CPUs.
    Others,
}

impl Cause {
    fn of(trial: &Trial) -> Self {
        if trial.after.undrained || trial.after.leftover > 0 {
            Self::Buffers
        } else if trial.intended_pps.is_some_and(|pps| pps > 0.0) && trial.pacing.idle_share < STRAINED_IDLE_SHARE {
            Self::Sender
        } else {
            Self::Others
        }
    }

    /// Remedy, as a command or a setting.
    const fn advice(self) -> &'static str {
        match self {
            Self::Buffers => "shorten the queues of the box, or wait longer for them with --preset study",
            Self::Sender => "give the sender a CPU of its own: --cpus",
            Self::Others => "end what else runs on the CPUs, or name others with --cpus",
        }
    }
}

impl Patience {
    /// Patience without an end.
    pub fn endless() -> Self {
        Self(RefCell::new(State { endless: true, ..State::default() }))
    }

    /// Begins a step of `planned_s` at `now`. It may also use the time that earlier steps have left. `too_slow` is the remedy if that is too short.
    pub(crate) fn begin(&self, planned_s: f64, now: Duration, too_slow: &'static str) {
        let mut state = self.0.borrow_mut();
        state.too_slow = too_slow;
        let planned = state.planned.unwrap_or_default() + Duration::from_secs_f64(planned_s.max(0.0));
        (state.planned, state.begun) = (Some(planned), now);
    }

    /// The step ends at `now`.
    pub(crate) fn end(&self, now: Duration) {
        let mut state = self.0.borrow_mut();
        let took = now.saturating_sub(state.begun);
        state.spent += took;
    }

    /// The time that is left at `now`; none without a limit.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let state = self.0.borrow();
        let spent = state.spent + now.saturating_sub(state.begun);
        Some(state.planned?.mul_f64(PLANNED_TIME_FACTOR_MAX).saturating_sub(spent))
    }

    pub(crate) fn note(&self, trial: &Trial) {
        let mut state = self.0.borrow_mut();
        let reason = match &trial.invalid {
            Some(reason) => reason.clone(),
            None if trial.after.undrained => format!(
                "the box still sent what it held {} after the last frame was sent",
                units::nanoseconds(trial.after.drained_ns as f64)
            ),
            None => {
                (state.void_in_a_row, state.last) = (0, None);
                return;
            }
        };
        state.void_in_a_row = if trial.invalid.is_some() { state.void_in_a_row + 1 } else { 0 };
        state.last = Some(Trouble { reason, cause: Cause::of(trial) });
    }

    /// True if so many trials in a row were void that the run is given up.
    pub fn is_exhausted(&self) -> bool {
        let state = self.0.borrow();
        !state.endless && state.void_in_a_row >= VOID_TRIALS_MAX
    }

    /// The message of a run that is given up after void trials.
    pub(crate) fn void_message(&self) -> String {
        let state = self.0.borrow();
        let (reason, advice) = state.trouble();
        format!("{VOID_TRIALS_MAX} trials in a row were void: {reason}; {advice}")
    }

    /// The message of a run whose time is over.
    pub(crate) fn time_message(&self) -> String {
        let state = self.0.borrow();
        let planned_s = state.planned.unwrap_or_default().as_secs_f64();
        let time = format!(
            "stopped after {} s, {PLANNED_TIME_FACTOR_MAX} times what was planned",
            units::grouped((planned_s * PLANNED_TIME_FACTOR_MAX).round() as u64)
        );
        match &state.last {
            Some(trouble) => format!("{time}: {}; {}", trouble.reason, trouble.cause.advice()),
            None => format!("{time}; {}", state.too_slow),
        }
    }
}

impl State {
    fn trouble(&self) -> (&str, &'static str) {
        self.last.as_ref().map_or(("", Cause::Others.advice()), |t| (&t.reason, t.cause.advice()))
    }
}
