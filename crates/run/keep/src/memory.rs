//! The history of single settings between two plans.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use host::{
    journal::{Applied, Session},
    knob::{Change, Knob},
};

use crate::drift::Contests;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The values from before the first change, which undo restores whoever has written since.
    originals: BTreeMap<Knob, String>,
    /// Values that a driver rounded: the value written and the value read back.
    rounded: BTreeMap<Knob, (String, String)>,
    /// Settings that the kernel does not let change, such as the affinity of managed interrupts.
    refused: BTreeSet<Knob>,
    /// Foreign values that are left as they are.
    left: BTreeMap<Knob, String>,
    /// The changes that failed, by file.
    failed: BTreeMap<String, Vec<Change>>,
    pub(crate) contests: Contests,
}

impl Memory {
    /// Forgets refusals, failures and foreign values, after a change of the machine.
    pub(crate) fn begin_anew(&mut self) {
        self.rounded.clear();
        self.refused.clear();
        self.left.clear();
        self.failed.clear();
    }

    /// Takes over the changes of a session of the journal.
    pub(crate) fn take(&mut self, session: &Session) {
        for step in session.steps.iter().filter(|step| step.undone.is_none()) {
            self.originals.entry(step.change.knob.clone()).or_insert_with(|| step.change.old.clone());
        }
    }

    pub(crate) fn note(&mut self, applied: &Applied) {
        for (change, read) in &applied.rounded {
            self.rounded.insert(change.knob.clone(), (change.new.clone(), read.clone()));
        }
        self.refused.extend(applied.refused.iter().map(|(change, _)| change.knob.clone()));
    }

    pub(crate) fn fail(&mut self, file: &str, changes: &[Change]) {
        self.failed.insert(file.to_owned(), changes.to_vec());
    }

    pub(crate) fn has_failed(&self, file: &str, changes: &[Change]) -> bool {
        self.failed.get(file).is_some_and(|failed| failed == changes)
    }

    pub(crate) fn leave(&mut self, knob: &Knob, found: &str) {
        self.left.insert(knob.clone(), found.to_owned());
    }

    /// True if a setting still has a foreign value that is left.
    pub(crate) fn is_left(&self, knob: &Knob, now: &str) -> bool {
        self.left.get(knob).is_some_and(|value| knob.same(value, now))
    }

    /// True if a change of the plan is to be made now.
    pub(crate) fn is_due(&self, change: &Change, now: Instant) -> bool {
        let knob = &change.knob;
        let is_rounded = self
            .rounded
            .get(knob)
            .is_some_and(|(new, read)| knob.same(new, &change.new) && knob.same(read, &change.old));
        !change.is_idle()
            && !is_rounded
            && !self.refused.contains(knob)
            && !self.is_left(knob, &change.old)
            && self.contests.rest(knob, now).is_none()
    }

    /// The value that a setting reads as after the plan was applied; none: the kernel refuses to change it.
    pub(crate) fn kept_value(&self, target: &Change) -> Option<String> {
        let rounded = self.rounded.get(&target.knob).filter(|(new, _)| target.knob.same(new, &target.new));
        (!self.refused.contains(&target.knob))
            .then(|| rounded.map_or_else(|| target.new.clone(), |(_, read)| read.clone()))
    }

    /// The value that undo restores.
    pub(crate) fn original(&self, knob: &Knob, found: &str) -> String {
        self.originals.get(knob).map_or_else(|| found.to_owned(), Clone::clone)
    }
}
