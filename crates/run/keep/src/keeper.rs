//! The keeper: it plans the files on this machine, applies the plans through the journal, and compares them with the settings it reads.

mod drift;
mod pass;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use host::{
    journal::Journal,
    knob::{Knob, Live, Store},
};

use crate::{
    KeepError,
    folder::{Files, Fingerprint, Folder},
    log::Log,
    memory::Memory,
    planner::{Planned, Planner},
    state::State,
    status::{Event, EventKind},
};

/// Differences within this time after a change of the machine count as a reset by the driver, not as a foreign write.
const SETTLE_PERIOD: Duration = Duration::from_secs(3);

/// Keeps the intents of a folder.
pub struct Keeper<P> {
    folder: Folder,
    journal: Journal,
    store: Box<dyn Store>,
    planner: P,
    files: Files,
    fingerprint: Option<Fingerprint>,
    /// A plan per good file, in the files' order.
    plans: Vec<FilePlan>,
    /// The machine at the last look; none: the next look plans all files.
    state: Option<State>,
    memory: Memory,
    log: Log,
    next_pass: Instant,
    settles_until: Instant,
}

/// The plan of a file and the settings it keeps.
#[derive(Debug, Default)]
struct FilePlan {
    planned: Planned,
    /// The kept settings with the values that they read as.
    kept: BTreeMap<Knob, String>,
}

impl<P> fmt::Debug for Keeper<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("folder", &self.folder).field("plans", &self.plans).finish_non_exhaustive()
    }
}

impl<P: Planner> Keeper<P> {
    /// A keeper that has read and changed nothing yet.
    pub fn new(folder: Folder, journal: Journal, planner: P) -> Self {
        Self::with_store(folder, journal, planner, Box::new(Live))
    }

    pub(crate) fn with_store(folder: Folder, journal: Journal, planner: P, store: Box<dyn Store>) -> Self {
        let now = Instant::now();
        Self {
            folder,
            journal,
            store,
            planner,
            files: Files::default(),
            fingerprint: None,
            plans: Vec::new(),
            state: None,
            memory: Memory::default(),
            log: Log::default(),
            next_pass: now,
            settles_until: now,
        }
    }

    /// Reads from the journal the changes of earlier processes of this boot.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn recall(&mut self) -> Result<(), KeepError> {
        for session in crate::off::sessions(&self.journal, None)? {
            self.memory.take(&session);
        }
        Ok(())
    }

    /// The interfaces and interrupts with kept settings, whose queues and requests [`State`] has to contain.
    pub fn interests(&self) -> (BTreeSet<String>, BTreeSet<u32>) {
        let (mut names, mut irqs) = (BTreeSet::new(), BTreeSet::new());
        for knob in self.plans.iter().flat_map(|plan| plan.kept.keys()) {
            match knob {
                Knob::IrqAffinity { irq } => drop(irqs.insert(*irq)),
                other => names.extend(other.interface().map(str::to_owned)),
            }
        }
        (names, irqs)
    }

    /// Plans all files if `state`, which was read at `seen`, or a file has changed; else restores foreign writes. Returns the events.
    pub fn look(&mut self, state: State, seen: Instant) -> Vec<Event> {
        let fingerprint = self.folder.fingerprint();
        let is_edited = self.fingerprint.as_ref() != Some(&fingerprint);
        let change = self.state.as_ref().map(|earlier| state.change_since(earlier));
        if is_edited {
            self.fingerprint = Some(fingerprint);
            self.read_files();
        }
        let cause = match change {
            None => Some("all files were read".to_owned()),
            Some(None) if is_edited => Some("the files were edited".to_owned()),
            Some(change) => change,
        };
        self.state = Some(state);
        match cause {
            Some(cause) => {
                self.memory.begin_anew();
                self.settles_until = seen + SETTLE_PERIOD;
                self.pass(&cause, seen);
            }
            None if seen >= self.next_pass => self.pass("a look at all settings found differences", seen),
            None => self.follow_drift(seen),
        }
        self.log.take_fresh()
    }

    /// Lets the next look read and plan all files.
    pub fn begin_anew(&mut self) {
        (self.state, self.fingerprint) = (None, None);
    }

    fn read_files(&mut self) {
        match self.folder.read(|name| self.planner.check(name)) {
            Ok(files) => self.files = files,
            Err(error) => {
                self.files = Files::default();
                self.log.stands(EventKind::Refused, "", &error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests;
