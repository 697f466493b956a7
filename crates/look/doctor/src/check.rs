//! The shape of a check.

use host::knob::Change;
use model::doctor::{Finding, Fix, Role, Setting};

use crate::{evidence::Evidence, outcome::Outcome};

/// A check: a row of the table in [`crate::checks`], and a small function.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Name of the check, as `--only` and `--fix` take it.
    pub id: &'static str,
    pub group: &'static str,
    pub question: &'static str,
    pub reads: &'static str,
    pub fix: &'static str,
    /// Risk of the fix.
    pub risk: &'static str,
    /// The roles it is for; empty: all.
    pub roles: &'static [Role],
    /// Looks at the evidence: an answer for each object, or one for the machine. No answer means that there is nothing here
    /// that the check could be about.
    pub run: fn(&Evidence) -> Vec<Outcome>,
}

impl Check {
    /// The finding that an answer of this check makes, for reports.
    pub fn finding(&self, outcome: &Outcome) -> Finding {
        let has_fix = !outcome.changes.is_empty() || !outcome.advice.is_empty();
        let fix = has_fix.then(|| Fix {
            changes: outcome.changes.iter().map(setting).collect(),
            shell: outcome.changes.iter().map(Change::shell).chain(outcome.advice.iter().cloned()).collect(),
            risk: outcome.risk.clone().unwrap_or_else(|| self.risk.to_owned()),
            gain: None,
        });
        Finding {
            check: self.id.to_owned(),
            object: outcome.object.clone(),
            group: self.group.to_owned(),
            question: self.question.to_owned(),
            evidence: outcome.evidence.clone(),
            verdict: outcome.verdict,
            reason: outcome.why.clone(),
            values: outcome.values.clone(),
            fix,
        }
    }
}

fn setting(change: &Change) -> Setting {
    Setting {
        knob: change.knob.to_string(),
        from: change.knob.shown(&change.old),
        to: change.knob.shown(&change.new),
        cpus: change.knob.cpus(&change.new).is_some(),
    }
}
