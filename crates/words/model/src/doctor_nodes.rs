//! The findings of `evenkeel doctor` on many machines, and their differences.

use serde::{Deserialize, Serialize};

use crate::doctor::{Report, Verdict};

/// The answers of many machines. The body of `evenkeel.doctor.nodes/1`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Nodes {
    /// Each machine, in the order in which they were given.
    pub nodes: Vec<Node>,
    /// The differences of those that answered.
    pub comparison: Comparison,
}

/// Report of a machine, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, as it was given (a file's name in a comparison of files).
    pub node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// The reason why nothing was found, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The differences of machines. The body of `evenkeel.doctor.compare/1`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The machines, in the order of the cells of each row.
    pub nodes: Vec<String>,
    /// Every value and every verdict that at least one machine has.
    pub rows: Vec<Row>,
    /// The machines that stand alone, the gravest first.
    pub outliers: Vec<Outlier>,
}

/// A value, or a verdict, over all machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub check: String,
    /// The check's subject, when that is not the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The value's name; none for the verdict of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The value of each machine; none where it has no such thing.
    pub cells: Vec<Option<String>>,
    /// Value of more than half of the machines that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub majority: Option<String>,
}

impl Row {
    /// True if those that have it do not all agree.
    pub fn differs(&self) -> bool {
        let mut there = self.cells.iter().flatten();
        let first = there.next();
        there.any(|cell| Some(cell) != first)
    }
}

/// A machine that differs from what most others agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlier {
    pub node: String,
    pub check: String,
    /// The check's subject, when that is not the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The value's name; none for the verdict of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub value: String,
    pub majority: String,
    /// The number of others that have that.
    pub agree: usize,
    pub others: usize,
    /// The check's answer for this machine.
    pub verdict: Verdict,
    /// The change that puts it right there, in one line, where the check knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}
