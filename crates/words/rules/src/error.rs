//! What can go wrong with rules.

use std::{fmt, io, path::PathBuf};

use model::{Classified, ErrorClass};

/// Something wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file's name, as the user gave it.
    pub file: String,
    /// 1 for the first.
    pub line: usize,
    /// In characters, 1 for the first.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
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

/// With control characters as they are escaped in source text.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// Rules that cannot be read, understood or compiled: where, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// Files of rules or sets say what cannot be understood.
    #[error("{}", lines(.0))]
    Rules(Vec<Problem>),
    /// A file cannot be read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    Read {
        /// What it was to hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// More rules than rows have bits.
    #[error(
        "{given} rules, but the kernel's tables have room for {max}: join rules that do the same, or put their prefixes into one set"
    )]
    TooManyRules {
        /// How many there are, the management allow-list included.
        given: usize,
        /// How many there may be.
        max: usize,
    },
    /// A rule names a set that is not there.
    #[error(
        "rule \"{rule}\" names the set \"{set}\", which does not exist: define it under [sets], or correct the name"
    )]
    UnknownSet {
        /// The rule's name.
        rule: String,
        /// The set's name.
        set: String,
    },
    /// The values of a field fall into more classes than a table can number.
    #[error(
        "the rules divide the {field} into {classes} classes, and a table can number {max}: use fewer different conditions on it"
    )]
    TooManyClasses {
        /// The field, in words.
        field: &'static str,
        /// How many classes there would be.
        classes: usize,
        /// How many there may be.
        max: usize,
    },
    /// No hash table holds the IPv6 prefixes of a field.
    #[error(
        "the {prefixes} IPv6 prefixes in the {field} do not fit a hash table: split the set, or use shorter prefixes"
    )]
    Crowded {
        /// The field, in words.
        field: &'static str,
        /// How many prefixes are longer than 32 bits.
        prefixes: usize,
    },
    /// No counter is left for a rule.
    #[error("no counter is left for rule \"{rule}\": all {capacity} are in use")]
    NoCounter {
        /// The rule's name.
        rule: String,
        /// Counters there are.
        capacity: usize,
    },
    /// A saved capture cannot be opened or read.
    #[error("cannot read the capture {}: {reason}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Classified for RulesError {
    /// The user wrote them, and can write others.
    fn class(&self) -> ErrorClass {
        ErrorClass::Usage
    }
}
