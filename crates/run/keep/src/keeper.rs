//! Keeping: files planned on the machine that is there, made through the journal, and compared with what it reads.

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

/// A driver may reset settings for so long after a change of the machine: that is nobody else's write.
const SETTLE_PERIOD: Duration = Duration::from_secs(3);

/// Keeps what the files of a folder ask for.
pub struct Keeper<P> {
    folder: Folder,
    journal: Journal,
    store: Box<dyn Store>,
    planner: P,
    files: Files,
    fingerprint: Option<Fingerprint>,
    /// Of each good file, in their order.
    plans: Vec<FilePlan>,
    /// The machine as it was last seen; none: all is to be planned anew.
    state: Option<State>,
    memory: Memory,
    log: Log,
    next_pass: Instant,
    settles_until: Instant,
}

/// The plan of a file, and what was made of it.
#[derive(Debug, Default)]
struct FilePlan {
    planned: Planned,
    /// The settings and the values that they read as.
    kept: BTreeMap<Knob, String>,
}

impl<P> fmt::Debug for Keeper<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("folder", &self.folder).field("plans", &self.plans).finish_non_exhaustive()
    }
}

impl<P: Planner> Keeper<P> {
    /// Nothing is read or changed yet.
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

    /// Learns from the journal what earlier processes of this boot have set.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn recall(&mut self) -> Result<(), KeepError> {
        for session in crate::off::sessions(&self.journal, None)? {
            self.memory.take(&session);
        }
        Ok(())
    }

    /// The interfaces and interrupts of which something is kept: a reading has their queues and requests.
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

    /// Does what the machine, as it was read at `seen`, asks for; gives the events.
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

    /// Has all be read and planned anew at the next look.
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
