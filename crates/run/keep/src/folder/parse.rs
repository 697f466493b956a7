//! The text of a file of intents, and the places of its keys.

use std::path::Path;

use super::IntentFile;
use crate::{clash::Place, intent::Intents};

/// Parses a file. The error names file, line and key of its first problem.
pub(super) fn parse(
    name: &str,
    path: &Path,
    text: String,
    check: &impl Fn(&str) -> Result<(), String>,
) -> Result<IntentFile, String> {
    let shown = path.display();
    let intents: Intents = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = line_of(&text, at);
        let key = key_of(&text, at).map_or_else(String::new, |key| format!("`{key}`: "));
        format!("{shown}, line {line}: {key}{}", error.message().trim().replace('\n', ", "))
    })?;
    let file = IntentFile { name: name.to_owned(), intents, text, path: path.to_owned() };
    for (at, doctor) in file.intents.doctor.iter().enumerate() {
        let place = file.place("doctor", at, "checks");
        if doctor.checks.is_empty() {
            return Err(format!("{place}: names no check; write such as checks = [\"rings\"]"));
        }
        for name in &doctor.checks {
            check(name).map_err(|why| format!("{place}: {why}"))?;
        }
    }
    if file.intents.spread.is_empty() && file.intents.doctor.is_empty() {
        return Err(format!("{shown}, line 1: asks for nothing; write a table [[spread]] or [[doctor]]"));
    }
    Ok(file)
}

impl IntentFile {
    /// The place of a key in table number `at` of a kind, or that of the table if it lacks the key.
    pub(crate) fn place(&self, kind: &str, at: usize, key: &str) -> Place {
        let header = format!("[[{kind}]]");
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let starts = lines.iter().enumerate().filter(|(_, line)| line.starts_with(&header)).map(|(number, _)| number);
        let start = starts.clone().nth(at).unwrap_or(0);
        let is_key = |line: &&str| line.split_once('=').is_some_and(|(word, _)| word.trim() == key);
        let table = lines.iter().skip(start + 1).take_while(|line| !line.starts_with('['));
        let line = table.clone().position(is_key).map_or(start, |below| start + 1 + below);
        Place { file: self.path.clone(), line: line + 1, key: key.to_owned() }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// The key in the line of byte `at`.
fn key_of(text: &str, at: usize) -> Option<&str> {
    let line = text.lines().nth(line_of(text, at) - 1)?;
    let (key, _) = line.split_once('=')?;
    Some(key.trim()).filter(|key| !key.is_empty() && !key.starts_with('#'))
}
