//! The report of `evenkeel selftest`.

use serde::{Deserialize, Serialize};

/// Name of the schema.
pub const SCHEMA: &str = "selftest";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// RFC 3339, UTC.
    pub timestamp: String,
    /// The version of evenkeel.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// The machine's kind, such as `x86_64`.
    pub architecture: String,
    /// The name in /etc/os-release.
    pub distribution: Option<String>,
    /// CPUs that are online.
    pub cpus: u32,
    pub is_root: bool,
    /// True in a user namespace, whose capabilities do not count for many system calls.
    pub user_namespace: bool,
    /// The interface whose driver was read.
    pub interface: Option<String>,
    pub duration_s: f64,
    pub rows: Vec<Row>,
}

/// A need, a property or a verb, with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub group: Group,
    pub name: String,
    /// The verbs with this need.
    pub verbs: Vec<String>,
    pub outcome: Outcome,
    /// The answer of the kernel or of the verb; may be empty for a row that works.
    pub reason: String,
    /// The remedy; none for a row that works.
    pub fix: Option<String>,
    pub duration_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Parts of the kernel, and programs.
    Needs,
    /// Properties of the interface's driver.
    Interface,
    /// Verbs, each run once.
    Verbs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Works,
    /// The row works in part or by a substitute, which its fix names.
    Limited,
    Fails,
    /// A privilege or another need is missing.
    Untried,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Limited => "works less",
            Self::Fails => "does not work",
            Self::Untried => "not tried",
        }
    }
}

impl SelfTest {
    pub fn count(&self, outcome: Outcome) -> usize {
        self.rows.iter().filter(|row| row.outcome == outcome).count()
    }

    /// True if no row fails or is untried.
    pub fn all_works(&self) -> bool {
        self.rows.iter().all(|row| matches!(row.outcome, Outcome::Works | Outcome::Limited))
    }

    pub fn nothing_tried(&self) -> bool {
        self.rows.iter().all(|row| row.outcome == Outcome::Untried)
    }
}
