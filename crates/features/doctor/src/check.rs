//! What a check is, and what it answers.

use host::knob::{Change, Knob};
use model::doctor::{Comparable, Finding, Fix, Role, Setting, Verdict};

use crate::evidence::Evidence;

/// One check: a row of the table in [`crate::checks`], and a small function.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Its name, as `--only` and `--fix` take it.
    pub id: &'static str,
    /// The group it belongs to.
    pub group: &'static str,
    /// What it asks, as a question.
    pub asks: &'static str,
    /// What it reads.
    pub reads: &'static str,
    /// What its fix sets.
    pub fix: &'static str,
    /// What may go wrong with the fix.
    pub risk: &'static str,
    /// The roles it is for; empty: all.
    pub roles: &'static [Role],
    /// Looks at the evidence: an answer for each object, or one for the machine. No answer means that there is nothing here
    /// that the check could be about.
    pub run: fn(&Evidence) -> Vec<Outcome>,
}

/// The answer of a check about one object.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What it is about, when that is not the whole machine.
    pub object: Option<String>,
    /// What the check thinks.
    pub verdict: Verdict,
    /// What it read.
    pub evidence: Vec<String>,
    /// Why it matters, in one sentence.
    pub why: String,
    /// Settings that would put it right.
    pub changes: Vec<Change>,
    /// What a person has to do, as commands or sentences, where no knob does it.
    pub advice: Vec<String>,
    /// What may go wrong, where it differs from what the table says.
    pub risk: Option<String>,
    /// What it read as values by subject, on which machines of one kind should agree.
    pub values: Vec<Comparable>,
}

impl Outcome {
    fn new(verdict: Verdict, why: impl Into<String>) -> Self {
        Self {
            object: None,
            verdict,
            evidence: Vec::new(),
            why: why.into(),
            changes: Vec::new(),
            advice: Vec::new(),
            risk: None,
            values: Vec::new(),
        }
    }

    /// As it should be.
    pub fn good(why: impl Into<String>) -> Self {
        Self::new(Verdict::Good, why)
    }

    /// It costs speed.
    pub fn improve(why: impl Into<String>) -> Self {
        Self::new(Verdict::Improve, why)
    }

    /// It costs packets or correctness.
    pub fn bad(why: impl Into<String>) -> Self {
        Self::new(Verdict::Bad, why)
    }

    /// The evidence could not be had.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, why)
    }

    /// There is nothing here that the check could be about.
    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::new(Verdict::NotApplicable, why)
    }

    /// Says what it is about.
    #[must_use]
    pub fn on(mut self, object: impl Into<String>) -> Self {
        self.object = Some(object.into());
        self
    }

    /// Adds a piece of evidence.
    #[must_use]
    pub fn saw(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// Adds a value for the comparison of machines: `holds("receive ring", 512)`.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "numbers and texts alike, without a borrow at every call")]
    pub fn holds(mut self, subject: impl Into<String>, value: impl ToString) -> Self {
        self.values.push(Comparable { subject: subject.into(), value: value.to_string() });
        self
    }

    /// Adds a setting to the fix.
    #[must_use]
    pub fn set(mut self, knob: Knob, old: impl Into<String>, new: impl Into<String>) -> Self {
        let reason = self.why.clone();
        self.changes.push(Change { knob, old: old.into(), new: new.into(), reason });
        self
    }

    /// Adds what a person has to do: a command, or a sentence behind `#`.
    #[must_use]
    pub fn advise(mut self, line: impl Into<String>) -> Self {
        self.advice.push(line.into());
        self
    }

    /// Says what may go wrong, where it differs from what the table says.
    #[must_use]
    pub fn risk(mut self, risk: impl Into<String>) -> Self {
        self.risk = Some(risk.into());
        self
    }

    /// The finding, for reports.
    pub fn finding(&self, check: &Check) -> Finding {
        let has_fix = !self.changes.is_empty() || !self.advice.is_empty();
        let fix = has_fix.then(|| Fix {
            changes: self.changes.iter().map(setting).collect(),
            shell: self.changes.iter().map(Change::shell).chain(self.advice.iter().cloned()).collect(),
            risk: self.risk.clone().unwrap_or_else(|| check.risk.to_owned()),
            gain: None,
        });
        Finding {
            check: check.id.to_owned(),
            object: self.object.clone(),
            group: check.group.to_owned(),
            asks: check.asks.to_owned(),
            evidence: self.evidence.clone(),
            verdict: self.verdict,
            why: self.why.clone(),
            values: self.values.clone(),
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
