//! A failure of rules.

use std::{fmt, io, path::PathBuf};

/// Something wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file's name, as the user gave it.
    pub file: String,
    /// 1 for the first.
    pub line: usize,
    /// Column in characters, 1 for the first.
    pub column: usize,
    pub what: String,
    /// The way to write it instead.
    pub instead: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a file says may be shown on a terminal, which must not obey it.
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, plain(&self.what))?;
        match &self.instead {
            Some(instead) => write!(f, "; {}", plain(instead)),
            None => Ok(()),
        }
    }
}

/// The text with control characters as they are escaped in source text.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// Rules that cannot be read, understood or compiled: where, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("{}", lines(.0))]
    Rules(Vec<Problem>),
    #[error("cannot read {what} from {}: {source}", path.display())]
    Read { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{given} rules, but the kernel's tables have room for {max}: join rules that do the same, or put their prefixes into one set"
    )]
    TooManyRules {
        /// Number of the rules, the management allow-list included.
        given: usize,
        max: usize,
    },
    #[error(
        "rule \"{rule}\" names the set \"{set}\", which does not exist: define it under [sets], or correct the name"
    )]
    UnknownSet { rule: String, set: String },
    #[error(
        "the rules divide the {field} into {classes} classes, and a table can number {max}: use fewer different conditions on it"
    )]
    TooManyClasses { field: &'static str, classes: usize, max: usize },
    #[error(
        "the {prefixes} IPv6 prefixes in the {field} do not fit a hash table: split the set, or use shorter prefixes"
    )]
    Crowded { field: &'static str, prefixes: usize },
    #[error("no counter is left for rule \"{rule}\": all {capacity} are in use")]
    NoCounter { rule: String, capacity: usize },
    #[error("cannot read the capture {}: {reason}", path.display())]
    Capture { path: PathBuf, reason: String },
}

model::classified!(RulesError: Usage);
