//! A plan as lines: each setting with its value, the value to be, and the reason.

use host::knob::{Change, Knob, Plan};
use serde::{Deserialize, Serialize};

use crate::summary::NicSummary;

/// A line of the plan's table: a setting, its present and its new value, and the reason. Lines that change nothing are there too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub nic: String,
    /// The setting, such as `rxtx 3 IRQ 45`.
    pub what: String,
    /// The present value, for people.
    pub old: String,
    /// The planned value, for people.
    pub new: String,
    pub reason: String,
    pub changes: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpreadPlan {
    #[serde(flatten)]
    pub plan: Plan,
    pub rows: Vec<Row>,
    /// Each NIC in a few numbers.
    pub nics: Vec<NicSummary>,
    /// Each setting with its planned value, also those that have it already.
    #[serde(skip)]
    pub targets: Vec<Change>,
}

impl SpreadPlan {
    /// Adds a line, and a change where old and new differ.
    pub(crate) fn set(&mut self, nic: &str, what: String, knob: Knob, old: String, new: String, reason: String) {
        let changes = !knob.same(&old, &new);
        self.rows.push(Row {
            nic: nic.to_owned(),
            what,
            old: knob.shown(&old),
            new: knob.shown(&new),
            reason: reason.clone(),
            changes,
        });
        let target = Change { knob, old, new, reason };
        if changes {
            self.plan.changes.push(target.clone());
        }
        self.targets.push(target);
    }

    /// Adds a line for something that stays as it is.
    pub(crate) fn keep(&mut self, nic: &str, what: String, old: String, reason: String) {
        self.rows.push(Row { nic: nic.to_owned(), what, new: old.clone(), old, reason, changes: false });
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if !self.plan.warnings.contains(&warning) {
            self.plan.warnings.push(warning);
        }
    }
}
