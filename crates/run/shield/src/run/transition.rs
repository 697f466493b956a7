//! Detection in the running shield: started, changed and ended as rules change, and what it learned is kept.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use bpf::filter::{Watch, WatchConfig};
use rules::{Rule, file::RuleFile};
use serve::ServeError;

use super::paths::Paths;
use crate::{
    detect::{Change, Detection, Learned},
    error::ShieldError,
    state_file::write_whole,
};

/// Period in which baselines are saved.
const KEEP_PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// The kernel's program counts, on each CPU.
    Kernel,
    /// A number of threads of this process count.
    Threads(usize),
}

impl Counting {
    fn watch(self, prefixes: usize) -> Result<Watch, ShieldError> {
        Ok(match self {
            Self::Kernel => Watch::create(prefixes)?,
            Self::Threads(threads) => Watch::create_for(prefixes, threads)?,
        })
    }
}

/// The change of detection that goes with a change of rules. Nothing has changed yet.
#[derive(Debug)]
pub(crate) enum Transition {
    /// Unchanged, or without detection before and after.
    Same,
    /// Nothing is protected any more.
    Gone,
    First(Box<Detection>),
    /// Changed: other prefixes, or other settings.
    Other(Box<Change>),
}

impl Transition {
    /// The transition to what `file` protects, and why limits are learned anew.
    pub(crate) fn to(
        file: &RuleFile,
        now: Option<&Detection>,
        interface: &str,
        paths: &Paths,
        counting: Counting,
    ) -> Result<(Self, Option<String>), ShieldError> {
        let protected = &file.rules.protected;
        let Some(now) = now else {
            if protected.is_empty() {
                return Ok((Self::Same, None));
            }
            let watch = counting.watch(protected.len())?;
            let mut first = Detection::start(interface, file.detection.clone(), protected, watch)?;
            let path = learned(paths);
            let memory = Duration::try_from_secs_f64(file.detection.baseline.memory_s).unwrap_or(Duration::MAX);
            let anew = match Learned::read(&path, monotonic(), memory) {
                Ok(learned) => {
                    learned.iter().for_each(|learned| first.recall(learned));
                    None
                }
                Err(why) => Some(format!("limits are learned anew: {} cannot be used: {why}", path.display())),
            };
            return Ok((Self::First(Box::new(first)), anew));
        };
        if protected.is_empty() {
            return Ok((Self::Gone, None));
        }
        let same = now.protected() == *protected;
        if same && *now.detector().config() == file.detection {
            return Ok((Self::Same, None));
        }
        // Maps of its own: what the old program still counts under a number is of another prefix.
        let watch = if same { None } else { Some(counting.watch(protected.len())?) };
        let change = now.prepare(file.detection.clone(), protected, watch)?;
        Ok((Self::Other(Box::new(change)), None))
    }

    /// The configuration for the program.
    pub(crate) fn config(&self, now: Option<&Detection>) -> Option<WatchConfig> {
        let now = || now.map(|now| now.watch().clone());
        match self {
            Self::Gone => None,
            Self::First(first) => Some(first.watch().clone()),
            Self::Other(change) => change.watch().cloned().or_else(now),
            Self::Same => now(),
        }
    }

    /// The mitigations that go on; none: all that hold.
    pub(crate) fn extra(&self, now: Option<&Detection>) -> Option<Vec<Rule>> {
        match self {
            Self::Same => None,
            Self::Gone | Self::First(_) => Some(Vec::new()),
            Self::Other(change) => now.map(|now| now.detector().rules_for(change.protected())),
        }
    }

    /// Returns whether other prefixes are protected from then on.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self {
            Self::Same => false,
            Self::Gone | Self::First(_) => true,
            Self::Other(change) => change.watch().is_some(),
        }
    }

    /// Carries it out: its program counts. Returns failures to report attacks that are no longer looked at.
    pub(crate) fn carry_out(self, detection: &mut Option<Detection>) -> Vec<ServeError> {
        match self {
            Self::Same => Vec::new(),
            Self::Gone => detection.take().map_or_else(Vec::new, Detection::end),
            Self::First(mut first) => {
                first.begin_now();
                *detection = Some(*first);
                Vec::new()
            }
            Self::Other(change) => detection.as_mut().map_or_else(Vec::new, |now| now.change(*change)),
        }
    }
}

fn learned(paths: &Paths) -> PathBuf {
    paths.state.join("learned.json")
}

fn monotonic() -> Duration {
    Duration::from_nanos(model::clock::monotonic_ns())
}

/// Writes down what was learned, if that is due. `kept`: when it was last done.
pub(crate) fn keep_at_times(kept: &mut Instant, detection: &Detection, paths: &Paths) -> Result<(), ShieldError> {
    if kept.elapsed() < KEEP_PERIOD {
        return Ok(());
    }
    *kept = Instant::now();
    keep(detection, paths)
}

/// Writes down what was learned.
pub(crate) fn keep(detection: &Detection, paths: &Paths) -> Result<(), ShieldError> {
    write_whole(&learned(paths), Learned::of(detection.detector(), monotonic()).text().as_bytes())
}
