//! Trials and their outcomes.

use std::{fmt::Display, time::Instant};

use model::selftest::{Group, Outcome, Row};
use sys::privilege::{Capability, require};

use crate::Place;

/// The remedy for a missing capability.
pub(crate) const BE_ROOT: &str = "run it as root, outside of containers and user namespaces";

/// The name of the need that makes the lab, and reason and remedy of trials that cannot run without it.
pub(crate) const LAB: &str = "network namespaces, veth";
pub(crate) const NO_LAB: &str = "there is no lab of network namespaces";
pub(crate) const LAB_FIX: &str = "see `network namespaces, veth`";

/// The name of the need without which no map and no program can be loaded, and the remedy of trials that depend on it.
pub(crate) const CALL: &str = "system call bpf";
const CALL_FIX: &str = "see `system call bpf`";

/// The outcome of a trial, as its row shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tried {
    pub outcome: Outcome,
    pub reason: String,
    pub fix: Option<String>,
}

impl Tried {
    pub(crate) fn works(reason: impl Display) -> Self {
        Self { outcome: Outcome::Works, reason: reason.to_string(), fix: None }
    }

    /// The trial worked in part or by a substitute; `fix` names it.
    pub(crate) fn limited(reason: impl Display, fix: impl Display) -> Self {
        Self { outcome: Outcome::Limited, reason: reason.to_string(), fix: Some(fix.to_string()) }
    }

    pub(crate) fn fails(reason: impl Display, fix: impl Display) -> Self {
        Self { outcome: Outcome::Fails, reason: reason.to_string(), fix: Some(fix.to_string()) }
    }

    pub(crate) fn untried(reason: impl Display, fix: impl Display) -> Self {
        Self { outcome: Outcome::Untried, reason: reason.to_string(), fix: Some(fix.to_string()) }
    }

    /// Works if all frames arrived.
    pub(crate) fn arrived(count: u64, sent: u64, fix: &str) -> Self {
        let reason = format!("{count} of {sent} frames arrived");
        if count >= sent { Self::works(reason) } else { Self::fails(reason, fix) }
    }
}

/// A need of verbs, and its trial.
pub(crate) struct Need {
    pub name: &'static str,
    pub verbs: &'static [&'static str],
    /// Capabilities without which the trial does not run.
    pub capabilities: &'static [Capability],
    pub trial: fn(&Place<'_>) -> Result<Tried, String>,
    /// The remedy after a failure.
    pub fix: &'static str,
}

impl Need {
    /// Runs the trial, unless a capability is missing or the time is over.
    pub(crate) fn tried(&self, place: &Place<'_>) -> Tried {
        match require(self.name, self.capabilities) {
            Err(_) => Tried::untried(missing(self.capabilities), BE_ROOT),
            Ok(()) if place.time_is_over() => no_time(),
            Ok(()) => (self.trial)(place).unwrap_or_else(|reason| self.refused(place, reason)),
        }
    }

    fn refused(&self, place: &Place<'_>, reason: String) -> Tried {
        let fix = match place.user_namespace {
            true => BE_ROOT,
            false if self.name != CALL && place.bpf.is_err() && self.capabilities.contains(&Capability::CAP_BPF) => {
                CALL_FIX
            }
            false => self.fix,
        };
        match place.bed() {
            Err(why) if why == reason && self.name != LAB => Tried::untried(NO_LAB, LAB_FIX),
            _ => Tried::fails(reason, fix),
        }
    }
}

/// A row of the table, before its trial.
pub(crate) struct Trial<'a> {
    pub name: String,
    pub run: Box<dyn FnOnce() -> Row + 'a>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(
        group: Group,
        name: impl Into<String>,
        verbs: &'a [&'a str],
        tries: impl FnOnce() -> Tried + 'a,
    ) -> Self {
        let name = name.into();
        let row_name = name.clone();
        let run = move || {
            let began = Instant::now();
            let tried = tries();
            Row {
                group,
                name: row_name,
                verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
                outcome: tried.outcome,
                reason: tried.reason,
                fix: tried.fix,
                duration_s: began.elapsed().as_secs_f64(),
            }
        };
        Self { name, run: Box::new(run) }
    }
}

pub(crate) fn no_time() -> Tried {
    Tried::untried("the time was over", "run it again when the machine is less busy")
}

fn missing(needed: &[Capability]) -> String {
    let missing = needed.iter().filter(|&&one| require("", &[one]).is_err());
    let names: Vec<String> = missing.map(ToString::to_string).collect();
    format!("it needs {}", names.join(", "))
}

/// The error in one line.
pub(crate) fn words(error: impl Display) -> String {
    host::ssh::last_words(&error.to_string())
}
