//! Taking a session back, last change first.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{Session, Step, Writer};
use crate::knob::{Change, Knob, KnobError, Store};

/// The order and the limits of an undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UndoOptions {
    /// Put the old value back even where somebody else has written since.
    pub force: bool,
    /// Look only: say what would be done.
    pub dry_run: bool,
    /// Leave a value that somebody else wrote, or that cannot be written, and go on with the others.
    pub go_on: bool,
    /// The later sessions have been taken back just before this one, or with a dry run would have been.
    pub in_order: bool,
}

/// The finding of undo at one knob, and its action.
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
    /// A later session that still stands has changed the knob again; nothing was touched.
    Superseded { by: String },
    /// Somebody else had written `found`; it was overwritten with the old value, as told.
    Forced {
        /// The value that was there.
        found: String,
    },
    /// Reading or writing failed; undo stopped here.
    Failed { error: String },
}

/// A step of an undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepReport {
    /// The change that was taken back.
    pub change: Change,
    /// The findings and the actions.
    #[serde(flatten)]
    pub state: StepState,
}

/// The steps of an undo, in the order in which it went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UndoReport {
    /// The steps; the last one is where it stopped, if it did.
    pub steps: Vec<StepReport>,
    /// The reason why the journal could not note all of this, if it could not: it still names what was put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unrecorded: Option<String>,
}

impl StepState {
    /// True if the knob is not as it was.
    fn is_left(&self) -> bool {
        matches!(self, Self::Foreign { .. } | Self::Failed { .. } | Self::Superseded { .. })
    }

    fn is_put_back(&self) -> bool {
        matches!(self, Self::Restored | Self::Forced { .. })
    }
}

impl UndoReport {
    /// True if it went through to the session's beginning.
    pub fn is_complete(&self) -> bool {
        !self.steps.iter().any(|s| s.state.is_left())
    }

    /// The number of values that were put back.
    pub fn restored(&self) -> usize {
        self.steps.iter().filter(|s| s.state.is_put_back()).count()
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { knob, old, new, .. } = &self.change;
        let (old, new) = (knob.phrase(old), knob.phrase(new));
        match &self.state {
            StepState::Restored => write!(f, "{knob}: {new} -> {old}"),
            StepState::AlreadyOld => write!(f, "{knob}: already {old}"),
            StepState::Gone => write!(f, "{knob}: is not there any more, nothing to put back"),
            StepState::Foreign { found } => write!(
                f,
                "{knob}: somebody else has written {} since; left alone (evenkeel wrote {new}, before that it was {old})",
                knob.phrase(found)
            ),
            StepState::Forced { found } => {
                write!(
                    f,
                    "{knob}: {} -> {old} (somebody else had written it; evenkeel wrote {new})",
                    knob.phrase(found)
                )
            }
            StepState::Superseded { by } => write!(
                f,
                "{knob}: session {by} has changed it since and still stands; take that one back first (evenkeel undo {by})"
            ),
            StepState::Failed { error } => f.write_str(error),
        }
    }
}

impl Session {
    /// Puts back what this session changed, last change first, and stops at a value that somebody else has written
    /// since, unless forced or told to go on. Steps are noted in the journal one by one, so that an undo that is cut short
    /// can be repeated; a journal that cannot be written stops nothing and is reported.
    pub fn undo(&mut self, writer: &Writer, store: &mut dyn Store, options: UndoOptions) -> UndoReport {
        let (later, mut report) = (writer.journal().standing_after(self), UndoReport::default());
        for step in (0..self.steps.len()).rev() {
            if self.steps[step].undone.is_some() {
                continue;
            }
            let change = self.steps[step].change.clone();
            let again = |s: &Step| s.undone.is_none() && s.change.knob == change.knob;
            let by = later.iter().find(|l| self.header.netns == l.header.netns && l.steps.iter().any(again));
            // In a dry run nothing is written, so of several steps on one knob only the last can be compared with the
            // machine; the earlier ones would follow it.
            let follows = self.steps[step + 1..].iter().any(again) || (options.in_order && by.is_some());
            let state = match by {
                _ if options.dry_run && follows => StepState::Restored,
                Some(by) if !options.in_order && !options.force => {
                    StepState::Superseded { by: by.header.session.clone() }
                }
                _ => self.roll_back(step, store, options).unwrap_or_else(|e| failed(&e)),
            };
            let report_step = StepReport { change, state };
            let left = report_step.state.is_left();
            if !left
                && !options.dry_run
                && let Err(error) = self.note_undone(step, report_step.to_string())
            {
                report.unrecorded.get_or_insert_with(|| error.to_string());
            }
            report.steps.push(report_step);
            if left && !options.go_on {
                break;
            }
        }
        if !options.dry_run {
            put_back_again(&mut report, store);
        }
        report
    }

    fn roll_back(&self, step: usize, store: &mut dyn Store, options: UndoOptions) -> Result<StepState, KnobError> {
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
        if options.dry_run { Ok(state) } else { write_back(store, knob, old, state) }
    }
}

/// Some drivers reset their queues, and what was set on them, when a setting of the device is written; and that is put back
/// last. So every other knob that was put back is read once more, and written where it has drifted.
fn put_back_again(report: &mut UndoReport, store: &mut dyn Store) {
    if !report.steps.iter().any(|s| s.state.is_put_back() && s.change.knob.resets_queues()) {
        return;
    }
    // Of several steps on one knob the last one here is the first that was made: its old value is the one from before.
    let mut targets: BTreeMap<Knob, Change> = BTreeMap::new();
    for step in report.steps.iter().filter(|s| s.state.is_put_back() || s.state == StepState::AlreadyOld) {
        targets.insert(step.change.knob.clone(), step.change.clone());
    }
    // What was left alone stays so.
    report.steps.iter().filter(|s| s.state.is_left()).for_each(|s| {
        targets.remove(&s.change.knob);
    });
    for (knob, change) in targets.into_iter().filter(|(knob, _)| !knob.resets_queues()) {
        let state = match store.read(&knob) {
            Ok(now) if knob.same(&now, &change.old) => continue,
            Ok(_) => write_back(store, &knob, &change.old, StepState::Restored).unwrap_or_else(|e| failed(&e)),
            Err(KnobError::Gone { .. }) => continue,
            Err(error) => failed(&error),
        };
        report.steps.push(StepReport { change, state });
    }
}

/// Writes the old value and reads it back; `state` if it is there then.
fn write_back(store: &mut dyn Store, knob: &Knob, old: &str, state: StepState) -> Result<StepState, KnobError> {
    store.write(knob, old)?;
    let now = store.read(knob)?;
    if knob.same(&now, old) {
        return Ok(state);
    }
    Ok(StepState::Failed {
        error: format!("{knob}: wrote {} back, but it reads {}", knob.phrase(old), knob.phrase(&now)),
    })
}

fn failed(error: &KnobError) -> StepState {
    StepState::Failed { error: error.to_string() }
}
