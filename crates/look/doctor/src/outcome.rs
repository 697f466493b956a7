//! Answer of a check about an object.

use host::knob::{Change, Knob};
use model::doctor::{Comparable, Verdict};

/// The answer of a check about one object.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Object, when that is not the whole machine.
    pub object: Option<String>,
    pub verdict: Verdict,
    pub evidence: Vec<String>,
    /// Reason of the verdict, in one sentence.
    pub why: String,
    /// Settings that would put it right.
    pub changes: Vec<Change>,
    /// Advice for a person, as commands or sentences, where no knob does it.
    pub advice: Vec<String>,
    /// Risk, where it differs from that of the table.
    pub risk: Option<String>,
    /// Values that the check read, by subject, on which machines of one kind should agree.
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

    pub fn good(why: impl Into<String>) -> Self {
        Self::new(Verdict::Good, why)
    }

    /// An outcome that costs speed.
    pub fn improve(why: impl Into<String>) -> Self {
        Self::new(Verdict::Improve, why)
    }

    /// Costs packets or correctness.
    pub fn bad(why: impl Into<String>) -> Self {
        Self::new(Verdict::Bad, why)
    }

    /// The evidence could not be had.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, why)
    }

    /// An outcome where there is nothing that the check could be about.
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
}
