//! The findings of `evenkeel doctor`: checks with evidence, verdict, fix, risk and gain.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The purpose of the machine: it decides which setting is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Forwards packets between its interfaces.
    Router,
    /// Forwards packets and judges them by rules.
    Firewall,
    /// Reads packets that are not meant for it.
    Capture,
    /// Ends connections: web, database, storage, workstation.
    Server,
    /// A node of a closed network whose members trust each other.
    Cluster,
}

impl Role {
    pub const ALL: [Self; 5] = [Self::Router, Self::Firewall, Self::Capture, Self::Server, Self::Cluster];

    /// Its name, as it is given on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Firewall => "firewall",
            Self::Capture => "capture",
            Self::Server => "server",
            Self::Cluster => "cluster",
        }
    }

    /// True if packets pass through the machine rather than end on it.
    pub fn forwards(self) -> bool {
        matches!(self, Self::Router | Self::Firewall)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Costs packets or correctness: change it.
    Bad,
    /// Costs speed: worth changing.
    Improve,
    /// Worth changing, but somebody has seen it and set it aside.
    Acknowledged,
    /// The evidence could not be had.
    Unknown,
    Good,
    /// Nothing here that the check could be about, or not for this role.
    NotApplicable,
}

impl Verdict {
    /// Every verdict, the gravest first.
    pub const ALL: [Self; 6] =
        [Self::Bad, Self::Improve, Self::Acknowledged, Self::Unknown, Self::Good, Self::NotApplicable];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Improve => "improve",
            Self::Acknowledged => "acknowledged",
            Self::Unknown => "unknown",
            Self::Good => "good",
            Self::NotApplicable => "not applicable",
        }
    }

    /// True if something should change.
    pub fn is_finding(self) -> bool {
        matches!(self, Self::Bad | Self::Improve)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// All that was found on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub hostname: String,
    pub kernel: String,
    /// The purpose of the machine.
    pub role: Role,
    /// The role was guessed and not given.
    pub role_guessed: bool,
    /// The grounds of the guess; empty when the role was given.
    #[serde(default)]
    pub role_reasons: Vec<String>,
    /// The interval over which live counters were watched, in seconds; none for a saved copy.
    pub watched_s: Option<f64>,
    /// The findings: the gravest first, then in the order of the table of checks.
    pub findings: Vec<Finding>,
    /// Unread sources, and the reasons; the checks that needed them say `unknown`.
    #[serde(default)]
    pub unreadable: Vec<Unreadable>,
}

impl Report {
    /// The number of findings with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|f| f.verdict == verdict).count()
    }

    /// True if anything should change.
    pub fn has_findings(&self) -> bool {
        self.findings.iter().any(|f| f.verdict.is_finding())
    }
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unreadable {
    pub source: String,
    /// The reason, and what to do about it.
    pub reason: String,
}

/// Result of a check for an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The check's name, such as `rings`.
    pub check: String,
    /// Its subject, when that is not the whole machine: an interface, a queue, a process.
    pub object: Option<String>,
    /// The group of checks it belongs to.
    pub group: String,
    pub question: String,
    pub evidence: Vec<String>,
    pub verdict: Verdict,
    /// Its importance, in one sentence.
    pub reason: String,
    /// Values that the check read, by subject, so that machines can be compared: `receive ring`, `512`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Comparable>,
    /// The change that puts it right.
    pub fix: Option<Fix>,
}

/// A value that a check read: machines of one kind should agree on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Comparable {
    /// Its name, such as `receive ring`.
    pub subject: String,
    /// The value, such as `512`.
    pub value: String,
}

/// The change that puts a finding right.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Fix {
    /// Settings that `--fix` makes and `undo` takes back; empty when a person must act.
    pub changes: Vec<Setting>,
    /// The fix as shell commands, or as advice behind `#`.
    pub shell: Vec<String>,
    pub risk: String,
    /// Measured effect, where this program has measured it.
    pub gain: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The setting, such as `eth0 rx ring`.
    pub knob: String,
    pub from: String,
    pub to: String,
    /// Both are sets of CPUs, as lists (`0-7`); a command may write them as masks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cpus: bool,
}

/// A check by itself, for lists of what there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRow {
    pub check: String,
    pub group: String,
    pub question: String,
    pub evidence: String,
    pub fix: String,
    pub risk: String,
    /// The roles it is for; empty: all.
    pub roles: Vec<Role>,
}
