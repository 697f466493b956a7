//! Detection in the running shield: what it sees is told, what it answers with holds, what it learns is kept.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use bpf::filter::{Watch, WatchConfig};
use model::{
    shield::{AttackStatus, SourceStatus},
    shield_event::{Happened, ShieldEvent},
};
use rules::{Prefix, Rule, file::RuleFile};
use serve::ServeError;

use super::places::{Places, write_whole};
use crate::{
    detect::{Change, Learned, Seen, Sentry},
    error::ShieldError,
};

/// Sources that are told of.
const SOURCES: usize = 8;
/// What was learned is written down this often.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// Who watches, and what is shown of it.
#[derive(Debug)]
pub(crate) struct Watchman {
    pub(crate) sentry: Sentry,
    protected: Vec<Prefix>,
    pub(crate) attacks: Vec<AttackStatus>,
    kept: Instant,
}

/// Who counts what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// The kernel's program, on each CPU.
    Kernel,
    /// So many threads of this process.
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

/// What becomes of the watchman when rules change. Nothing has become of it yet.
#[derive(Debug)]
pub(crate) enum Plan {
    /// It stays as it is, or there is none and is to be none.
    Same,
    /// Nothing is protected any more.
    Gone,
    /// The first one.
    First(Box<Watchman>),
    /// It is to watch something else, or otherwise.
    Other(Box<Change>),
}

impl Plan {
    /// For what `file` protects. `notes`: what there is to say about it.
    pub(crate) fn of(
        now: Option<&Watchman>,
        interface: &str,
        file: &RuleFile,
        places: &Places,
        counting: Counting,
        notes: &mut Vec<String>,
    ) -> Result<Self, ShieldError> {
        let protected = &file.rules.protected;
        let Some(watchman) = now else {
            return Ok(match Watchman::start(interface, file, places, counting, notes)? {
                Some(watchman) => Self::First(Box::new(watchman)),
                None => Self::Same,
            });
        };
        if protected.is_empty() {
            return Ok(Self::Gone);
        }
        let same = watchman.protected == *protected;
        if same && *watchman.sentry.detector().config() == file.detection {
            return Ok(Self::Same);
        }
        // Maps of its own: what the old program still counts under a number is of another prefix.
        let watch = if same { None } else { Some(counting.watch(protected.len())?) };
        let change = watchman.sentry.prepare(file.detection.clone(), protected, watch)?;
        Ok(Self::Other(Box::new(change)))
    }

    /// What the program is to be told.
    pub(crate) fn config(&self, now: Option<&Watchman>) -> Option<WatchConfig> {
        match self {
            Self::Gone => None,
            Self::First(watchman) => Some(watchman.config()),
            Self::Other(change) => change.watch().cloned().or_else(|| now.map(Watchman::config)),
            Self::Same => now.map(Watchman::config),
        }
    }

    /// The mitigations that go on; none: all that hold.
    pub(crate) fn extra(&self, now: Option<&Watchman>) -> Option<Vec<Rule>> {
        match self {
            Self::Same => None,
            Self::Gone | Self::First(_) => Some(Vec::new()),
            Self::Other(change) => now.map(|now| now.sentry.detector().rules_for(change.protected())),
        }
    }

    /// Whether other prefixes are protected from now on.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self {
            Self::Same => false,
            Self::Gone | Self::First(_) => true,
            Self::Other(change) => change.watch().is_some(),
        }
    }

    /// Its program counts. What could not be told of attacks that nobody looks at any more.
    pub(crate) fn carry_out(self, watchman: &mut Option<Watchman>) -> Vec<ServeError> {
        match self {
            Self::Same => {}
            Self::Gone => {
                if let Some(mut gone) = watchman.take() {
                    let troubles = gone.sentry.end_attacks(&[]);
                    gone.sentry.end_metrics();
                    gone.sentry.let_end();
                    return troubles;
                }
            }
            Self::First(mut first) => {
                first.sentry.begin_now();
                *watchman = Some(*first);
            }
            Self::Other(change) => {
                if let Some(watchman) = watchman {
                    return watchman.change(*change);
                }
            }
        }
        Vec::new()
    }
}

/// Where what was learned is kept.
fn learned(places: &Places) -> PathBuf {
    places.state.join("learned.json")
}

fn monotonic() -> Duration {
    Duration::from_nanos(model::clock::monotonic_ns())
}

impl Watchman {
    /// For what the file protects; none: nothing is.
    fn start(
        interface: &str,
        file: &RuleFile,
        places: &Places,
        counting: Counting,
        notes: &mut Vec<String>,
    ) -> Result<Option<Self>, ShieldError> {
        let protected = file.rules.protected.clone();
        if protected.is_empty() {
            return Ok(None);
        }
        let watch = counting.watch(protected.len())?;
        let mut sentry = Sentry::start(interface, file.detection.clone(), &protected, watch)?;
        let path = learned(places);
        let memory = Duration::try_from_secs_f64(file.detection.baseline.memory_s).unwrap_or(Duration::MAX);
        match Learned::read(&path, monotonic(), memory) {
            Ok(None) => {}
            Ok(Some(learned)) => sentry.recall(&learned),
            Err(why) => notes.push(format!("what is usual is learned anew, {} is not used: {why}", path.display())),
        }
        Ok(Some(Self { sentry, protected, attacks: Vec::new(), kept: Instant::now() }))
    }

    fn change(&mut self, change: Change) -> Vec<ServeError> {
        self.protected = change.protected().to_vec();
        let troubles = self.sentry.change(change);
        let names: Vec<String> = self.protected.iter().map(|p| format!("{}/{}", p.address, p.len)).collect();
        self.attacks.retain(|attack| names.contains(&attack.prefix));
        troubles
    }

    /// Writes down what was learned, if that is due.
    pub(crate) fn keep(&mut self, places: &Places) -> Result<(), ShieldError> {
        if self.kept.elapsed() < KEEP_EVERY { Ok(()) } else { self.keep_now(places) }
    }

    /// Writes down what was learned.
    pub(crate) fn keep_now(&mut self, places: &Places) -> Result<(), ShieldError> {
        self.kept = Instant::now();
        write_whole(&learned(places), Learned::of(self.sentry.detector(), monotonic()).text().as_bytes())
    }

    pub(crate) fn config(&self) -> WatchConfig {
        self.sentry.watch().clone()
    }

    /// Takes down what is shown of it.
    pub(crate) fn note(&mut self, seen: &Seen) {
        for event in &seen.events {
            self.note_event(event);
        }
        for attack in &mut self.attacks {
            attack.since_s = self.sentry.since_s(attack.number).unwrap_or(attack.since_s);
        }
    }

    /// Who sends most just now.
    pub(crate) fn sources(&self) -> Vec<SourceStatus> {
        let name = |prefix: Prefix| match prefix.len {
            32 => prefix.address.to_string(),
            len => format!("{}/{len}", prefix.address),
        };
        let top = self.sentry.heavy().top(SOURCES).into_iter();
        top.map(|(prefix, pps)| SourceStatus { source: name(prefix), pps }).collect()
    }

    fn note_event(&mut self, event: &ShieldEvent) {
        let at = self.attacks.iter().position(|attack| attack.number == event.attack);
        let at = at.unwrap_or_else(|| {
            self.attacks.push(AttackStatus {
                number: event.attack,
                prefix: event.prefix.clone(),
                class: String::new(),
                since_s: 0.0,
                mitigation: "nothing yet".to_owned(),
                shadow: false,
            });
            self.attacks.len() - 1
        });
        let attack = &mut self.attacks[at];
        (attack.class, attack.since_s) = (event.class.to_string(), event.since_s);
        match &event.what {
            Happened::Began(_) | Happened::Turned { .. } => {}
            Happened::Mitigating { step, steps, shadow, action, .. } => {
                attack.mitigation = format!("step {step} of {steps}: {action}");
                attack.shadow = *shadow;
            }
            Happened::Shadowed { would_apply_pps, legitimate_part, .. } => {
                let legitimate = legitimate_part.map_or_else(String::new, |part| {
                    format!(", {} of the traffic of known sources", model::units::percent(part))
                });
                attack.mitigation = format!("would apply to {}{legitimate}", model::units::pps(*would_apply_pps));
            }
            Happened::Exhausted { through_pps } => {
                attack.mitigation += &format!("; {} still come through", model::units::pps(*through_pps));
            }
            Happened::Ended { .. } => {
                self.attacks.remove(at);
            }
        }
    }
}
