//! Kept settings that another program has written.

use std::time::Instant;

use host::{
    journal::{Transaction, settings},
    knob::{Change, Knob, KnobError},
};

use super::{Keeper, pass::Stuck};
use crate::{
    drift::{Answer, Process, likely, writers},
    intent::Drift,
    off::session_command,
    planner::Planner,
    status::EventKind,
};

/// A kept setting that has another value.
struct Foreign {
    knob: Knob,
    kept: String,
    found: String,
}

impl<P: Planner> Keeper<P> {
    /// Reads each kept setting, and restores or leaves foreign values according to the file's [`Drift`].
    pub(super) fn follow_drift(&mut self, now: Instant) {
        for at in 0..self.plans.len() {
            let foreign = self.foreign(at, now);
            if foreign.is_empty() {
                continue;
            }
            let (name, drift) = (self.files.good[at].name.clone(), self.files.good[at].intents.drift);
            if now < self.settles_until {
                let message =
                    format!("{} reset after the last change of the machine: set again", settings(foreign.len()));
                self.set_back(&name, &foreign, EventKind::Set, &message);
                continue;
            }
            let running = writers();
            match drift {
                Drift::Leave => {
                    foreign.iter().for_each(|it| self.memory.leave(&it.knob, &it.found));
                    let message = format!("{}: left as it is", phrase(&foreign, &running));
                    self.log.add(EventKind::Left, &name, message, None);
                }
                Drift::Restore => self.contest(&name, foreign, &running, now),
            }
        }
    }

    /// The settings of a file that differ from their kept values, without those that are left alone.
    fn foreign(&mut self, at: usize, now: Instant) -> Vec<Foreign> {
        let mut foreign = Vec::new();
        for (knob, kept) in &self.plans[at].kept {
            if self.memory.contests.rest(knob, now).is_some() {
                continue;
            }
            match self.store.read(knob) {
                Ok(found) if knob.same(&found, kept) || self.memory.is_left(knob, &found) => {}
                Ok(found) => foreign.push(Foreign { knob: knob.clone(), kept: kept.clone(), found }),
                // The next pass plans for the machine without this interface or interrupt.
                Err(KnobError::Gone { .. }) => self.next_pass = now,
                Err(_) => {}
            }
        }
        foreign
    }

    /// Restores the settings that have no other owner.
    fn contest(&mut self, name: &str, foreign: Vec<Foreign>, running: &[Process], now: Instant) {
        let judge = |it: &Foreign| self.memory.contests.judge(&it.knob, now) == Answer::Restore;
        let (restored, rests): (Vec<Foreign>, Vec<Foreign>) = foreign.into_iter().partition(judge);
        if !rests.is_empty() {
            let message = format!(
                "{}: written again each time it was set back; left alone for 10 minutes, then tried once. Stop the other owner, or take the \
                 setting out of the file",
                phrase(&rests, running)
            );
            self.log.add(EventKind::Contested, name, message, None);
        }
        if !restored.is_empty() {
            let message = format!("{}: set back", phrase(&restored, running));
            self.set_back(name, &restored, EventKind::Restored, &message);
        }
    }

    /// Writes the kept values; undo restores the values from before the first change.
    fn set_back(&mut self, name: &str, foreign: &[Foreign], event: EventKind, message: &str) {
        let begun = Instant::now();
        let change = |it: &Foreign| Change {
            knob: it.knob.clone(),
            old: self.memory.original(&it.knob, &it.found),
            new: it.kept.clone(),
            reason: "kept".to_owned(),
        };
        let changes: Vec<Change> = foreign.iter().map(change).collect();
        let mut write = || {
            let writer = self.journal.lock().map_err(Stuck::from)?;
            let mut session = Transaction::begin(&writer, &session_command(name)).map_err(Stuck::from)?.session;
            let applied = session.apply_after_reset(&writer, &mut *self.store, &changes);
            self.memory.take(&session);
            applied.map_err(|error| Stuck::Failed(error.to_string()))
        };
        match write() {
            Ok(applied) => {
                self.memory.note(&applied);
                let took = begun.elapsed().as_secs_f64() * 1e3;
                self.log.add(event, name, message.to_owned(), Some(took));
            }
            // The next look tries again.
            Err(Stuck::Locked(_)) => {}
            Err(Stuck::Failed(why)) => self.log.stands(EventKind::Failed, name, &why),
        }
    }
}

/// `IRQ 36 affinity is CPU 0 instead of CPU 1 (likely irqbalance, process 9), and 3 more settings`
fn phrase(foreign: &[Foreign], running: &[Process]) -> String {
    let Some(first) = foreign.first() else { return String::new() };
    let Foreign { knob, kept, found } = first;
    let who = likely(knob, running).unwrap_or_else(|| "it is not known by whom".to_owned());
    let more = match foreign.len() - 1 {
        0 => String::new(),
        1 => ", and 1 more setting".to_owned(),
        many => format!(", and {many} more settings"),
    };
    format!("{knob} is {} instead of {} ({who}){more}", knob.phrase(found), knob.phrase(kept))
}
