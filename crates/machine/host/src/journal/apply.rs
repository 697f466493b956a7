//! Making changes: announced on disk, written, read back.

use model::{Classified, ErrorClass};

use super::{JournalError, Outcome, Record, Session, UndoOptions, Writer, undo::UndoReport};
use crate::knob::{Change, KnobError, Store};

/// The outcome of a list of changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Changes that were written.
    pub written: u32,
    /// Changes that were not needed: the knob had the new value already.
    pub idle: u32,
    /// Knobs that read back something other than what was written (a driver that rounds).
    pub rounded: Vec<(Change, String)>,
    /// Interrupts whose affinity nobody can write, with the reason; they stay as they are.
    pub refused: Vec<(Change, String)>,
}

impl Applied {
    /// Adds what was made of further changes.
    pub fn add(&mut self, more: Self) {
        self.written += more.written;
        self.idle += more.idle;
        self.rounded.extend(more.rounded);
        self.refused.extend(more.refused);
    }
}

/// A list of changes that could not be made to its end.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{source}. {}", rolled_back(*.restored))]
    Journal { source: JournalError, restored: usize },
    #[error("{source}. Putting the earlier changes back failed too ({problem}); run `evenkeel undo {session}`")]
    JournalStuck { source: JournalError, session: String, problem: Box<KnobError> },
    #[error("{source}. {}", rolled_back(*.restored))]
    Undone { source: Box<KnobError>, restored: usize },
    #[error("{source}. Putting the earlier changes back failed too ({problem}); run `evenkeel undo {session}`")]
    Stuck { source: Box<KnobError>, session: String, problem: String },
}

impl Classified for ApplyError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Journal { source, .. } => source.class(),
            Self::Undone { source, .. } => source.class(),
            Self::Stuck { .. } | Self::JournalStuck { .. } => ErrorClass::Internal,
        }
    }
}

fn rolled_back(restored: usize) -> String {
    match restored {
        0 => "Nothing was changed".to_owned(),
        n => format!("Nothing stays changed: {n} earlier changes of this session were put back"),
    }
}

impl Session {
    /// Makes the changes in order. When one fails, all that this session has changed so far is put back; only interrupts
    /// that cannot be directed at all are left out.
    pub fn apply(&mut self, writer: &Writer, store: &mut dyn Store, changes: &[Change]) -> Result<Applied, ApplyError> {
        self.make_all(writer, store, changes, false)
    }

    /// The same behind a setting of the device that may have reset these knobs: what undo puts back is the old value that
    /// the change names (if it names one), and not the one that is there now.
    pub fn apply_after_reset(
        &mut self,
        writer: &Writer,
        store: &mut dyn Store,
        changes: &[Change],
    ) -> Result<Applied, ApplyError> {
        self.make_all(writer, store, changes, true)
    }

    fn make_all(
        &mut self,
        writer: &Writer,
        store: &mut dyn Store,
        changes: &[Change],
        after_reset: bool,
    ) -> Result<Applied, ApplyError> {
        let mut applied = Applied::default();
        for change in changes {
            match self.make(store, change, after_reset, &mut applied) {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.is_fixed_irq() => applied.refused.push((change.clone(), error.to_string())),
                Ok(Err(source)) => return Err(self.back_out(writer, store, source)),
                Err(source) => return Err(self.back_out_unwritten(store, source)),
            }
        }
        Ok(applied)
    }

    /// Makes one change. The outer error is the journal's, the inner one the knob's.
    fn make(
        &mut self,
        store: &mut dyn Store,
        change: &Change,
        after_reset: bool,
        applied: &mut Applied,
    ) -> Result<Result<(), KnobError>, JournalError> {
        let knob = &change.knob;
        // The plan may be old: what is put back later is what is there now.
        let old = match store.read(knob) {
            Ok(old) => old,
            Err(error) => return Ok(Err(error)),
        };
        if knob.same(&old, &change.new) {
            applied.idle += 1;
            return Ok(Ok(()));
        }
        let old = if after_reset && !change.old.is_empty() { change.old.clone() } else { old };
        let step = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        self.record(Record::Pending { step, change: Change { old, ..change.clone() } })?;
        let result = store.write(knob, &change.new).and_then(|()| store.read(knob));
        let outcome = match &result {
            Ok(read_back) => Outcome::Done { read_back: read_back.clone() },
            Err(error) => Outcome::Failed { error: error.to_string() },
        };
        self.record(Record::Ended { step, outcome })?;
        Ok(result.map(|read_back| {
            applied.written += 1;
            if !knob.same(&read_back, &change.new) {
                applied.rounded.push((change.clone(), read_back));
            }
        }))
    }

    fn back_out(&mut self, writer: &Writer, store: &mut dyn Store, source: KnobError) -> ApplyError {
        let source = Box::new(source);
        let report = self.undo(writer, store, UndoOptions::default());
        match report.is_complete() {
            true => ApplyError::Undone { source, restored: report.restored() },
            false => self.stuck(source, &report),
        }
    }

    /// Puts the changes back without the journal, which cannot be written. It names them still; a later undo finds the old
    /// values and does nothing.
    fn back_out_unwritten(&self, store: &mut dyn Store, source: JournalError) -> ApplyError {
        let mut restored = 0;
        for step in self.steps.iter().rev().filter(|s| s.undone.is_none()) {
            let (knob, old) = (&step.change.knob, &step.change.old);
            let back = store.read(knob).and_then(|now| match knob.same(&now, old) {
                true => Ok(0),
                false => store.write(knob, old).map(|()| 1),
            });
            match back {
                Ok(n) => restored += n,
                Err(problem) => {
                    let session = self.header.session.clone();
                    return ApplyError::JournalStuck { source, session, problem: Box::new(problem) };
                }
            }
        }
        ApplyError::Journal { source, restored }
    }

    fn stuck(&self, source: Box<KnobError>, report: &UndoReport) -> ApplyError {
        let problem = report.steps.last().map_or_else(String::new, ToString::to_string);
        ApplyError::Stuck { source, session: self.header.session.clone(), problem }
    }
}
