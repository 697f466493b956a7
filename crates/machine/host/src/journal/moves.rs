//! Changes that come one at a time over a long while, and go together.

use std::collections::BTreeSet;

use super::{ApplyError, Journal, JournalError, Session, StepReport, UndoOptions};
use crate::knob::{Change, Knob, KnobError, Store};

/// The moves of one watch, so that they can be taken back. When the value is dropped, those are that were neither kept nor taken back.
#[derive(Debug)]
pub struct Moves<S: Store> {
    journal: Journal,
    store: S,
    command: String,
    sessions: Vec<String>,
    refused: BTreeSet<Knob>,
}

/// A move that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

model::classified!(MoveError; within: Journal Apply);

/// Result of taking the moves back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovesUndone {
    /// Each step, the last move first.
    pub steps: Vec<StepReport>,
    /// Moves that still stand, or were not noted as taken back, in words.
    pub left: Vec<String>,
}

impl<S: Store> Moves<S> {
    /// None yet; `command` is what each will be said to be made by.
    pub fn new(journal: Journal, store: S, command: String) -> Self {
        Self { journal, store, command, sessions: Vec::new(), refused: BTreeSet::new() }
    }

    /// True if a move of this was refused once.
    pub fn is_refused(&self, knob: &Knob) -> bool {
        self.refused.contains(knob)
    }

    /// Makes a move in a session of its own, so that one that is refused takes back nothing else. Says why it was refused.
    ///
    /// # Errors
    /// The journal cannot be written, or the change failed otherwise.
    pub fn make(&mut self, change: Change) -> Result<Option<String>, MoveError> {
        let writer = self.journal.lock_waiting()?;
        let mut session = Session::begin(&writer, &self.command)?;
        self.sessions.push(session.header.session.clone());
        let knob = change.knob.clone();
        let refused = match session.apply(&writer, &mut self.store, &[change]) {
            Ok(applied) => applied.refused.into_iter().next().map(|(_, why)| why),
            Err(ApplyError::Undone { source, .. }) if matches!(*source, KnobError::Gone { .. }) => {
                Some(source.to_string())
            }
            Err(error) => return Err(error.into()),
        };
        if refused.is_some() {
            self.refused.insert(knob);
        }
        Ok(refused)
    }

    /// Lets the moves stay; says how many.
    pub fn keep(&mut self) -> usize {
        std::mem::take(&mut self.sessions).len()
    }

    /// Takes the moves back, last first; one that cannot be taken back does not keep the others. A second call does nothing.
    ///
    /// # Errors
    /// The right to write to the journal cannot be had.
    pub fn roll_back(&mut self) -> Result<MovesUndone, JournalError> {
        let sessions = std::mem::take(&mut self.sessions);
        let mut undone = MovesUndone::default();
        if sessions.is_empty() {
            return Ok(undone);
        }
        let writer = self.journal.lock_waiting()?;
        let options = UndoOptions { in_order: true, ..UndoOptions::default() };
        for name in sessions.into_iter().rev() {
            let report = match self.journal.session(&name) {
                Ok(mut session) => session.undo(&writer, &mut self.store, options),
                Err(error) => {
                    undone.left.push(error.to_string());
                    continue;
                }
            };
            let complete = report.is_complete();
            undone.steps.extend(report.steps);
            undone.left.extend(report.unrecorded);
            if !complete {
                undone.left.push(format!("session {name} still stands"));
            }
        }
        Ok(undone)
    }
}

/// A panic, too, takes the moves back.
impl<S: Store> Drop for Moves<S> {
    fn drop(&mut self) {
        // Nobody hears it here; `undo --list` shows what still stands.
        let _ = self.roll_back();
    }
}
