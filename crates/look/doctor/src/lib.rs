//! Findings about a machine: checks with evidence, verdict, fix, risk and gain.
//!
//! [`Evidence`] is gathered once; every [`Check`] of the table in [`checks`] looks at it and answers with [`Outcome`]s; [`diagnose`] makes a
//! [`Diagnosis`] of them, and [`fix_plan`] a plan of changes for the journal.

pub mod ack;
pub mod check;
pub mod checks;
pub mod compare;
pub mod evidence;
pub mod nodes;
pub mod outcome;
pub mod place;
pub mod plan;
pub mod rewritten;
pub mod role;

use model::doctor::{CheckRow, Report, Unreadable};

pub use check::Check;
pub use evidence::{Evidence, Watched};
pub use outcome::Outcome;
pub use plan::{SelectError, Selection, fix_plan};

/// The answer of one check about one object.
#[derive(Debug, Clone)]
pub struct Entry {
    pub check: &'static Check,
    pub outcome: Outcome,
}

/// Every answer, the gravest first.
#[derive(Debug, Clone)]
pub struct Diagnosis {
    pub entries: Vec<Entry>,
    /// The same for reports.
    pub report: Report,
}

/// Runs the selected checks over the evidence.
pub fn diagnose(evidence: &Evidence, only: &Selection) -> Diagnosis {
    let mut entries: Vec<Entry> = Vec::new();
    for check in checks::all().filter(|c| only.has_check(c.id)) {
        let answers = match check.roles.is_empty() || check.roles.contains(&evidence.role) {
            true => (check.run)(evidence),
            false => vec![Outcome::not_applicable(format!("not a question for a {}", evidence.role))],
        };
        if answers.is_empty() {
            let outcome = Outcome::not_applicable("nothing here that the check could be about");
            entries.push(Entry { check, outcome });
        }
        let meant = answers.into_iter().filter(|o| o.object.is_none() || only.has(check.id, o.object.as_deref()));
        entries.extend(meant.map(|outcome| {
            let outcome = evidence.set_aside(check.id, evidence.without_read_only(outcome));
            Entry { check, outcome }
        }));
    }
    entries.sort_by_key(|e| e.outcome.verdict);
    let report = Report {
        hostname: evidence.host.hostname.clone(),
        kernel: evidence.host.kernel.clone(),
        role: evidence.role,
        role_guessed: evidence.role_guessed,
        role_reasons: evidence.role_reasons.clone(),
        watched_s: evidence.watched.as_ref().map(|w| w.rates.interval_s),
        findings: entries.iter().map(|e| e.check.finding(&e.outcome)).collect(),
        unreadable: evidence
            .all_unreadable()
            .into_iter()
            .map(|(source, reason)| Unreadable { source, reason })
            .collect(),
    };
    Diagnosis { entries, report }
}

/// The table of checks, for lists.
pub fn rows() -> Vec<CheckRow> {
    let row = |c: &'static Check| CheckRow {
        check: c.id.to_owned(),
        group: c.group.to_owned(),
        question: c.question.to_owned(),
        evidence: c.reads.to_owned(),
        fix: c.fix.to_owned(),
        risk: c.risk.to_owned(),
        roles: c.roles.to_vec(),
    };
    checks::all().map(row).collect()
}
