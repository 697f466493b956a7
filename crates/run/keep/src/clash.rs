//! Contradictions between files: another value for the same setting of the same interface.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use crate::{
    folder::IntentFile,
    intent::{Coalescing, Pattern, Spread, Steering, Switch},
};

/// The place of a key in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}: `{}`", self.file.display(), self.line, self.key)
    }
}

/// A table of a file: the file's number, the table's number, and its content.
type Table<'a> = (usize, usize, &'a Spread);

/// The message that refuses a new file for a contradiction with another file; none: there is no contradiction.
pub(crate) fn beside(new: &IntentFile, others: &[IntentFile]) -> Option<String> {
    for mine in &new.intents.spread {
        for file in others {
            let clash = |(at, theirs)| Some((at, contradiction(mine, theirs)?));
            let Some((at, (key, [mine, theirs]))) = file.intents.spread.iter().enumerate().find_map(clash) else {
                continue;
            };
            return Some(format!(
                "{} is not written: its `{key}` would be {mine}, and {}, line {} has {theirs} for the same {}. Change that file, or take it \
                 back: evenkeel keep off {}",
                new.name,
                file.path.display(),
                file.place("spread", at, key).line,
                scope(key),
                file.name
            ));
        }
    }
    None
}

/// The numbers of files that contradict another file, each with its problem.
pub(crate) fn find(files: &[IntentFile]) -> BTreeMap<usize, String> {
    let tables: Vec<Table<'_>> = files
        .iter()
        .enumerate()
        .flat_map(|(file, it)| it.intents.spread.iter().enumerate().map(move |(table, spread)| (file, table, spread)))
        .collect();
    let mut found = BTreeMap::new();
    for (at, one) in tables.iter().enumerate() {
        for other in &tables[at + 1..] {
            let Some((key, values)) = contradiction(one.2, other.2) else { continue };
            let place = |(file, table, _): &Table<'_>| files[*file].place("spread", *table, key);
            let say = |this: &Table<'_>, that: &Table<'_>, mine: &str, theirs: &str| {
                format!(
                    "{} is {mine} here, and {theirs} in {} for the same {}; write one value{}",
                    place(this),
                    place(that),
                    scope(key),
                    if key == "rfs" { "" } else { ", or other interfaces" }
                )
            };
            found.entry(one.0).or_insert_with(|| say(one, other, &values[0], &values[1]));
            found.entry(other.0).or_insert_with(|| say(other, one, &values[1], &values[0]));
        }
    }
    found
}

/// The first key by which two tables set the same thing to different values, and both values.
fn contradiction(one: &Spread, other: &Spread) -> Option<(&'static str, [String; 2])> {
    // The table of socket flows is the machine's.
    if let (Some(a), Some(b)) = (one.rfs, other.rfs)
        && a != b
    {
        return Some(("rfs", [a, b].map(|flows| flows.to_string())));
    }
    if !may_meet(one, other) {
        return None;
    }
    let values = |spread: &Spread| {
        let all = || "not given".to_owned();
        let threaded = spread.threaded.map(|switch| if switch == Switch::On { "on" } else { "off" }.to_owned());
        [
            ("cpus", Some(spread.cpus.as_ref().map_or_else(all, ToString::to_string))),
            ("except", Some(spread.except.as_ref().map_or_else(all, ToString::to_string))),
            ("rps", Some(steering(spread.rps))),
            ("xps", Some(steering(spread.xps))),
            ("threaded", threaded),
        ]
    };
    for ((key, a), (_, b)) in values(one).into_iter().zip(values(other)) {
        if let (Some(a), Some(b)) = (a, b)
            && a != b
        {
            return Some((key, [a, b]));
        }
    }
    for Coalescing(field, a) in &one.coalesce {
        let same = other.coalesce.iter().find(|Coalescing(of, b)| of == field && b != a);
        if let Some(Coalescing(_, b)) = same {
            return Some(("coalesce", [a, b].map(|value| format!("{}={value}", field.as_str()))));
        }
    }
    None
}

/// The object that a key sets something of.
fn scope(key: &str) -> &'static str {
    if key == "rfs" { "machine" } else { "interface" }
}

fn steering(steering: Steering) -> String {
    match steering {
        Steering::Auto => "auto",
        Steering::On => "on",
        Steering::Off => "off",
    }
    .to_owned()
}

/// True if both tables can select the same interface, as far as the files alone tell.
fn may_meet(one: &Spread, other: &Spread) -> bool {
    let is_same = |a: &Option<String>, b: &Option<String>| match (a, b) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        _ => false,
    };
    let meets = |a: &Pattern, b: &Pattern| a == b || a.matches(b.as_str()) || b.matches(a.as_str());
    let names = one.interfaces.iter().any(|a| other.interfaces.iter().any(|b| meets(a, b)));
    names
        || is_same(&one.mac, &other.mac)
        || is_same(&one.driver, &other.driver)
        || one.is_for_all()
        || other.is_for_all()
}
