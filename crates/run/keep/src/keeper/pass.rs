//! Planning of the files, and the changes that a plan requires.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use host::{
    journal::{JournalError, Transaction, TransactionError, settings},
    knob::{Change, Knob},
};

use super::{FilePlan, Keeper};
use crate::{
    memory::Memory,
    off::session_command,
    planner::{Planned, Planner},
    status::EventKind,
};

/// Period after which all files are planned without a visible change of the machine.
const PASS_PERIOD: Duration = Duration::from_secs(60);
/// Time until the next pass if another process held the journal.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

impl<P: Planner> Keeper<P> {
    /// Plans each file and makes the changes that are due.
    pub(super) fn pass(&mut self, cause: &str, seen: Instant) {
        self.next_pass = seen + PASS_PERIOD;
        for bad in &self.files.bad {
            self.log.stands(EventKind::Refused, &bad.name, &bad.problem);
        }
        let Some(planned) = self.plan() else { return };
        let mut plans = self.plans_of(planned);
        for at in 0..plans.len() {
            let name = self.files.good[at].name.clone();
            let targets = &plans[at].planned.targets;
            let changes: Vec<Change> =
                targets.iter().filter(|change| self.memory.is_due(change, seen)).cloned().collect();
            if changes.is_empty() || self.memory.has_failed(&name, &changes) {
                continue;
            }
            match self.make(at, &name, &changes) {
                Ok(0) => {}
                Ok(written) => {
                    let message = format!("{} written, since {cause}", settings(written as usize));
                    self.log.add(EventKind::Set, &name, message, Some(seen.elapsed().as_secs_f64() * 1e3));
                    if changes.iter().any(|change| change.knob.resets_queues())
                        && let Some(planned) = self.plan()
                    {
                        // Drivers may request other interrupts for new queues.
                        plans = self.plans_of(planned);
                    }
                }
                Err(Stuck::Locked(why)) => {
                    self.log.stands(EventKind::Failed, &name, &why);
                    self.next_pass = seen + RETRY_PERIOD;
                }
                Err(Stuck::Failed(why)) => {
                    self.memory.fail(&name, &changes);
                    plans[at].planned.problem = Some(why);
                }
            }
        }
        for (file, plan) in self.files.good.iter().zip(&mut plans) {
            // A failure stays the file's problem until other changes are tried.
            let earlier = self.plans.iter().zip(&self.files.good).find(|(_, other)| other.name == file.name);
            let changes: Vec<Change> =
                plan.planned.targets.iter().filter(|change| self.memory.is_due(change, seen)).cloned().collect();
            if plan.planned.problem.is_none() && self.memory.has_failed(&file.name, &changes) {
                plan.planned.problem = earlier.and_then(|(plan, _)| plan.planned.problem.clone());
            }
            for pending in &plan.planned.pending {
                self.log.stands(EventKind::Pending, &file.name, pending);
            }
            if let Some(problem) = &plan.planned.problem {
                self.log.stands(EventKind::Failed, &file.name, problem);
            }
            // A failed session was rolled back, so that its file keeps nothing.
            if plan.planned.problem.is_none() {
                plan.kept = plan.kept_values(&self.memory);
            }
            let (before, now) = (earlier.map_or(0, |(plan, _)| plan.kept.len()), plan.kept.len());
            if plan.planned.pending.is_empty() && plan.planned.problem.is_none() && 0 < now && now < before {
                let message = format!("{cause}: {} kept now, {before} before", settings(now));
                self.log.add(EventKind::Fewer, &file.name, message, None);
            }
        }
        self.plans = plans;
        self.log.end_pass();
    }

    /// The plans of the good files; none, with an event, if the machine cannot be read.
    pub(super) fn plan(&mut self) -> Option<Vec<Planned>> {
        match self.planner.plan(&self.files.good) {
            Ok(planned) => Some(planned),
            Err(why) => {
                self.log.stands(EventKind::Failed, "", &why);
                self.state = None;
                None
            }
        }
    }

    /// Assigns each setting to the first file that plans it. A setting that a fix of the doctor changed stays kept after its finding is gone.
    pub(super) fn plans_of(&mut self, planned: Vec<Planned>) -> Vec<FilePlan> {
        let mut taken: BTreeMap<Knob, (String, String)> = BTreeMap::new();
        let mut plans = Vec::new();
        for (at, mut planned) in planned.into_iter().enumerate() {
            let file = &self.files.good[at];
            if !file.intents.doctor.is_empty()
                && let Some(earlier) = self.plans.get(at)
            {
                let is_new = |knob: &Knob| !planned.targets.iter().any(|target| target.knob == *knob);
                let fixes = earlier.kept.iter().filter(|(knob, _)| is_new(knob));
                let still: Vec<Change> = fixes
                    .filter_map(|(knob, new)| {
                        let old = self.store.read(knob).ok()?;
                        let reason = "a fix that was made before".to_owned();
                        Some(Change { knob: knob.clone(), old, new: new.clone(), reason })
                    })
                    .collect();
                planned.targets.extend(still);
            }
            let (targets, warnings) = (std::mem::take(&mut planned.targets), &mut planned.warnings);
            planned.targets = targets
                .into_iter()
                .filter(|target| {
                    let first =
                        taken.entry(target.knob.clone()).or_insert_with(|| (file.name.clone(), target.new.clone()));
                    let is_own = first.0 == file.name;
                    if !is_own && !target.knob.same(&first.1, &target.new) {
                        warnings.push(format!(
                            "{}: `{}` has it as {}, which holds",
                            target.knob,
                            first.0,
                            target.knob.phrase(&first.1)
                        ));
                    }
                    is_own
                })
                .collect();
            plans.push(FilePlan { planned, kept: BTreeMap::new() });
        }
        plans
    }

    /// Applies changes of a file in one session. Returns the number of settings written.
    fn make(&mut self, at: usize, name: &str, changes: &[Change]) -> Result<u32, Stuck> {
        let writer = self.journal.lock().map_err(Stuck::from)?;
        let mut transaction = Transaction::begin(&writer, &session_command(name)).map_err(Stuck::from)?;
        let (planner, good, memory) = (&mut self.planner, &self.files.good, &self.memory);
        let replan = || {
            let planned = planner.plan(good)?.into_iter().nth(at).unwrap_or_default();
            let now = Instant::now();
            Ok::<_, String>(planned.targets.into_iter().filter(|change| memory.is_due(change, now)).collect())
        };
        let made = transaction.make(&mut *self.store, changes, &false.into(), replan);
        self.memory.take(&transaction.session);
        match made {
            Ok(applied) => {
                self.memory.note(&applied);
                Ok(applied.written)
            }
            Err(TransactionError::Apply(error)) => Err(Stuck::Failed(error.to_string())),
            Err(TransactionError::Replan(why, back)) => Err(Stuck::Failed(format!("{why}. {back}"))),
            Err(TransactionError::Stopped(back)) => Err(Stuck::Failed(back.to_string())),
        }
    }
}

impl FilePlan {
    pub(super) fn kept_values(&self, memory: &Memory) -> BTreeMap<Knob, String> {
        let of = |target: &Change| Some((target.knob.clone(), memory.kept_value(target)?));
        self.planned.targets.iter().filter_map(of).collect()
    }
}

/// Changes that could not be made.
pub(super) enum Stuck {
    /// Another process changes the machine.
    Locked(String),
    Failed(String),
}

impl From<JournalError> for Stuck {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Locked { .. } => Self::Locked(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
