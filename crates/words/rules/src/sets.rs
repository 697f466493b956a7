//! Named sets of prefixes.

use std::path::{Path, PathBuf};

use super::{
    keys::{self, Entry, Fault},
    rule::{Prefix, PrefixSet},
    words::{self, Wrong},
};
use crate::{
    error::{Problem, RulesError},
    prefixes::{BadLine, OnBadLine, SetError, read_set},
};

/// The source of a set's prefixes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SetSource {
    /// Prefixes of the file of rules.
    pub prefixes: Vec<Prefix>,
    /// Files of prefixes, one on a line.
    pub files: Vec<PathBuf>,
    /// Lines that are no prefixes are passed over (and told), not refused.
    pub skip_bad: bool,
    /// Byte offset of the set's name.
    pub at: usize,
}

impl SetSource {
    /// From the keys of a table `[sets.NAME]` at byte offset `at`; faults are noted.
    pub fn from_entries(entries: &[Entry], at: usize, faults: &mut Vec<Fault>) -> Self {
        let mut source = Self { at, ..Self::default() };
        for entry in entries {
            match entry.key.text.as_str() {
                "prefixes" => {
                    for word in &entry.words {
                        match words::prefix(&word.text) {
                            Ok(prefix) => source.prefixes.push(prefix),
                            Err(wrong) => faults.push((word.at, wrong)),
                        }
                    }
                }
                "file" => source.files = entry.words.iter().map(|word| word.text.clone().into()).collect(),
                "bad-line" => match entry.words[0].text.as_str() {
                    "refuse" => {}
                    "skip" => source.skip_bad = true,
                    other => faults.push((
                        entry.words[0].at,
                        Wrong::new(
                            format!("`{other}` does not say what to do with a bad line"),
                            "write \"refuse\" (the whole file of rules, the default) or \"skip\"",
                        ),
                    )),
                },
                other => faults.push((
                    entry.key.at,
                    Wrong::new(
                        format!("a set has no key `{other}`"),
                        keys::instead_of(other, &["file", "prefixes", "bad-line"]),
                    ),
                )),
            }
        }
        if !entries.iter().any(|entry| ["file", "prefixes"].contains(&entry.key.text.as_str())) {
            faults.push((at, Wrong::new("a set of nothing", "write file = \"…\" or prefixes = [\"…\"]")));
        }
        source
    }
}

/// True if a set can be called so.
pub fn name(text: &str) -> Result<(), Wrong> {
    if text.chars().any(char::is_control) {
        let what = format!("`{text}` cannot be a set's name: it has control characters");
        return Err(Wrong::new(what, "write letters, digits and - _ . : /"));
    }
    Ok(())
}

const NAMED: usize = 20;

/// Reads a set; relative files are found from `folder`. Also the lines that were passed over.
///
/// # Errors
/// A file that cannot be read, or lines of it that are no prefixes.
pub fn load(source: &SetSource, folder: &Path) -> Result<(PrefixSet, Vec<Problem>), RulesError> {
    let (mut prefixes, mut skipped) = (source.prefixes.clone(), Vec::new());
    let on_bad = if source.skip_bad { OnBadLine::Skip } else { OnBadLine::Refuse };
    for file in &source.files {
        match read_set(&folder.join(file), on_bad) {
            Ok((set, bad)) => {
                prefixes.extend(set.prefixes);
                skipped.extend(problems(bad));
            }
            Err(SetError::Read { path, source }) => {
                return Err(RulesError::Read { what: "a set of prefixes", path, source });
            }
            Err(SetError::Lines { lines }) => return Err(RulesError::Rules(problems(lines))),
        }
    }
    Ok((sorted(prefixes), skipped))
}

/// The first of the bad lines, and how many more there are.
fn problems(bad: Vec<BadLine>) -> Vec<Problem> {
    let more = bad.len().saturating_sub(NAMED);
    let mut problems: Vec<_> = bad
        .into_iter()
        .take(NAMED)
        .map(|BadLine { file, line, column, why }| Problem { file, line, column, what: why, instead: None })
        .collect();
    if let (1.., Some(last)) = (more, problems.last_mut()) {
        last.instead = Some(format!("and {more} more bad lines"));
    }
    problems
}

fn sorted(mut prefixes: Vec<Prefix>) -> PrefixSet {
    prefixes.sort_unstable();
    prefixes.dedup();
    PrefixSet { prefixes }
}
