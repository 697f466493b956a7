//! Taking a session back, last change first.

use std::fmt;

use serde::Serialize;

use super::{JournalError, Record, Session, Writer};
use crate::knob::{Change, KnobError, Store};

/// How to undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UndoOptions {
    /// Put the old value back even where somebody else has written since.
    pub force: bool,
    /// Look only: say what would be done.
    pub dry_run: bool,
}

/// What undo found at one knob, and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StepState {
    /// The old value was put back (with a dry run: would be).
    Restored,
    /// The old value was there already.
    AlreadyOld,
    /// Interface, interrupt or thread are gone, and the setting with them.
    Gone,
    /// Somebody else has written `found`; nothing was touched, and undo stopped here.
    Foreign {
        /// The value that is there.
        found: String,
    },
    /// Somebody else had written `found`; it was overwritten with the old value, as told.
    Forced {
        /// The value that was there.
        found: String,
    },
    /// Reading or writing failed; undo stopped here.
    Failed {
        /// Why.
        error: String,
    },
}

/// One step of an undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepReport {
    /// The change that was taken back.
    pub change: Change,
    /// What was found and done.
    #[serde(flatten)]
    pub state: StepState,
}

/// What an undo did, in the order in which it went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UndoReport {
    /// The steps; the last one is where it stopped, if it did.
    pub steps: Vec<StepReport>,
}

impl UndoReport {
    /// Whether it went through to the session's beginning.
    pub fn is_complete(&self) -> bool {
        !self.steps.iter().any(|s| matches!(s.state, StepState::Foreign { .. } | StepState::Failed { .. }))
    }

    /// How many values were put back.
    pub fn restored(&self) -> usize {
        self.steps.iter().filter(|s| matches!(s.state, StepState::Restored | StepState::Forced { .. })).count()
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { knob, old, new, .. } = &self.change;
        let (old, new) = (knob.shown(old), knob.shown(new));
        match &self.state {
            StepState::Restored => write!(f, "{knob}: {new} -> {old}"),
            StepState::AlreadyOld => write!(f, "{knob}: is {old} already"),
            StepState::Gone => write!(f, "{knob}: is not there any more, nothing to put back"),
            StepState::Foreign { found } => write!(
                f,
                "{knob}: somebody else has written {} since (we wrote {new}, before that it was {old}); left alone",
                knob.shown(found)
            ),
            StepState::Forced { found } => {
                write!(f, "{knob}: {} -> {old} (somebody else had written it; we wrote {new})", knob.shown(found))
            }
            StepState::Failed { error } => f.write_str(error),
        }
    }
}

impl Session {
    /// Puts back what this session changed, last change first, and stops at a value that somebody else has written
    /// since, unless forced. Steps are noted in the journal one by one, so that an undo that is cut short can be
    /// repeated.
    pub fn undo(
        &mut self,
        _writer: &Writer,
        store: &mut dyn Store,
        options: UndoOptions,
    ) -> Result<UndoReport, JournalError> {
        let mut report = UndoReport::default();
        for step in (0..self.steps.len()).rev() {
            if self.steps[step].undone.is_some() {
                continue;
            }
            let change = self.steps[step].change.clone();
            // In a dry run nothing is written, so of several steps on one knob only the last can be compared with the
            // machine; the earlier ones would follow it.
            let later = self.steps[step + 1..].iter().any(|s| s.undone.is_none() && s.change.knob == change.knob);
            let state = if options.dry_run && later {
                StepState::Restored
            } else {
                self.take_back(step, store, options).unwrap_or_else(|e| StepState::Failed { error: e.to_string() })
            };
            let report_step = StepReport { change, state };
            let stop = matches!(report_step.state, StepState::Foreign { .. } | StepState::Failed { .. });
            if !stop && !options.dry_run {
                let number = u32::try_from(step).unwrap_or(u32::MAX);
                self.record(Record::Undone { step: number, note: report_step.to_string() })?;
            }
            report.steps.push(report_step);
            if stop {
                break;
            }
        }
        Ok(report)
    }

    fn take_back(&self, step: usize, store: &mut dyn Store, options: UndoOptions) -> Result<StepState, KnobError> {
        let step = &self.steps[step];
        let Change { knob, old, new, .. } = &step.change;
        let found = match store.read(knob) {
            Ok(found) => found,
            Err(KnobError::Gone { .. }) => return Ok(StepState::Gone),
            Err(error) => return Err(error),
        };
        if knob.same(&found, old) {
            return Ok(StepState::AlreadyOld);
        }
        // A write that failed or never reported may have happened all the same.
        let is_ours = knob.same(&found, step.ours()) || knob.same(&found, new);
        let state = match (is_ours, options.force) {
            (true, _) => StepState::Restored,
            (false, true) => StepState::Forced { found },
            (false, false) => return Ok(StepState::Foreign { found }),
        };
        if !options.dry_run {
            store.write(knob, old)?;
            let now = store.read(knob)?;
            if !knob.same(&now, old) {
                return Ok(StepState::Failed {
                    error: format!("{knob}: wrote {} back, but it reads {}", knob.shown(old), knob.shown(&now)),
                });
            }
        }
        Ok(state)
    }
}
