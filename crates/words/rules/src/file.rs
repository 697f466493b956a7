//! The file of rules: TOML, every problem of it named by line and column.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use model::input;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    detection,
    keys::{self, Entry, Fault, SetNames, Word},
    management::Management,
    rule::{Action, MANAGEMENT_MAX, Prefix, RULES_MAX, Rule, Rules, Verdict},
    sets::{self, SetSource},
    toml_words::{self, Text},
    words::{self, Wrong},
};
use crate::{
    detect::DetectConfig,
    error::{Problem, RulesError},
};

const FILE_RULES_MAX: usize = RULES_MAX - MANAGEMENT_MAX;

const TOP: &[&str] = &["default", "malformed", "protect", "management", "detection", "sets", "rule"];
/// Unknown names that get a proposal.
const NEAREST_MAX: usize = 20;
const RULES_INSTEAD: &str = "begin each rule by a line [[rule]]";
const BEFORE_ROUTER: &str =
    "take it out, or run a shield before the router: evenkeel shield run INTERFACE --rules FILE";
const SETS_INSTEAD: &str = "write [sets.NAME] with file = \"…\" or prefixes = [\"…\"]";

/// The contents of a file: the rules, and what is to be known before they can be put in front of an interface.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleFile {
    /// The rules of the file; those of the management allow-list are yet to be put before them.
    pub rules: Rules,
    /// The addresses and ports that always come in.
    pub management: Management,
    /// The limits of an attack on what is protected, and the measures against it.
    pub detection: DetectConfig,
    /// The lines that were passed over (`bad_line = "skip"`).
    pub skipped: Vec<Problem>,
}

/// Reads a file of rules and the sets that it names.
pub fn read(path: &Path) -> Result<RuleFile, RulesError> {
    read_as(path, Keeper::Shield)
}

fn read_as(path: &Path, keeper: Keeper) -> Result<RuleFile, RulesError> {
    let text = input::read(path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| std::io::Error::other("this is not text (UTF-8), as TOML is"))
    });
    let text = text.map_err(|source| RulesError::Read { what: "the rules", path: path.to_owned(), source })?;
    parse_as(&text, &path.display().to_string(), path.parent().unwrap_or(Path::new("")), keeper)
}

/// As [`read`], for a router's port: what protects hosts is refused, with its place.
///
/// # Errors
/// As for [`read`]; `protect`, `[detection]` and rules that challenge.
pub fn read_for_router(path: &Path) -> Result<RuleFile, RulesError> {
    read_as(path, Keeper::Router)
}

/// Program that applies the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    Shield,
    /// Judges packet by packet: watches nothing, and answers nobody.
    Router,
}

/// The rules that `text` says; files of sets are found from the working directory.
///
/// # Errors
/// Every problem with its place, up to the first kind that hides others.
pub fn parse(text: &str, name: &str) -> Result<Rules, RulesError> {
    parse_in(text, name, Path::new("")).map(|file| file.rules)
}

/// As [`parse`], with all that the file says; files of sets are found from `folder`.
pub fn parse_in(text: &str, name: &str, folder: &Path) -> Result<RuleFile, RulesError> {
    parse_as(text, name, folder, Keeper::Shield)
}

fn parse_as(text: &str, name: &str, folder: &Path, keeper: Keeper) -> Result<RuleFile, RulesError> {
    let text = Text { name, text };
    let (table, errors) = DeTable::parse_recoverable(text.text);
    if !errors.is_empty() {
        let fault = |error: &toml::de::Error| {
            let wrong = Wrong { what: error.message().trim().replace('\n', ", "), instead: None };
            (error.span().map_or(0, |span| span.start), wrong)
        };
        return Err(RulesError::Rules(text.problems(errors.iter().map(fault).collect())));
    }
    let mut reader = Reader { text, keeper, faults: Vec::new(), used: Vec::new(), sources: BTreeMap::new() };
    let mut file = reader.top(table.get_ref());
    reader.sets_exist();
    if !reader.faults.is_empty() {
        return Err(RulesError::Rules(text.problems(reader.faults)));
    }
    let mut problems = Vec::new();
    for (name, source) in reader.sources {
        match sets::load(&source, folder) {
            Ok((set, skipped)) => {
                file.rules.sets.insert(name, set.into());
                file.skipped.extend(skipped);
            }
            Err(RulesError::Rules(more)) => problems.extend(more),
            Err(error @ RulesError::Read { .. }) => {
                problems.push(text.problem((source.at, Wrong { what: error.to_string(), instead: None })));
            }
            Err(error) => return Err(error),
        }
    }
    if problems.is_empty() { Ok(file) } else { Err(RulesError::Rules(problems)) }
}

struct Reader<'a> {
    text: Text<'a>,
    keeper: Keeper,
    faults: Vec<Fault>,
    used: SetNames,
    sources: BTreeMap<String, SetSource>,
}

impl Reader<'_> {
    /// The value of `result`, its fault noted.
    fn note<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn top(&mut self, table: &DeTable<'_>) -> RuleFile {
        let mut file = RuleFile::default();
        file.rules.malformed = Verdict::Drop;
        for (key, value) in table {
            match key.get_ref().as_ref() {
                word @ ("protect" | "detection") if self.keeper == Keeper::Router => {
                    let what = format!("`{word}` watches hosts for attacks, which a router's rules do not");
                    self.faults.push((key.span().start, Wrong::new(what, BEFORE_ROUTER)));
                }
                "default" => file.rules.default = self.verdict(value),
                "malformed" => file.rules.malformed = self.verdict(value),
                "protect" => file.rules.protected = self.prefixes(value),
                "management" => {
                    if let Some(entries) = self.entries(value, "write [management] with from = [\"…\"]") {
                        file.management = Management::from_entries(&entries, &mut self.faults);
                    }
                }
                "detection" => file.detection = detection::read(value, &mut self.faults),
                "sets" => self.sets(value),
                "rule" => file.rules.rules = self.rules(value),
                other => {
                    let instead = if keys::KEYS.contains(&other) {
                        "it belongs to a rule: begin one by a line [[rule]]".to_owned()
                    } else if other == "rules" {
                        RULES_INSTEAD.to_owned()
                    } else {
                        keys::instead_of(other, TOP)
                    };
                    self.faults.push((key.span().start, Wrong::new(format!("the file has no key `{other}`"), instead)));
                }
            }
        }
        file
    }

    fn entries(&mut self, value: &Spanned<DeValue<'_>>, instead: &str) -> Option<Vec<Entry>> {
        let table = toml_words::table(value, instead);
        let table = self.note(table)?;
        toml_words::entries(table).map_err(|faults| self.faults.extend(faults)).ok()
    }

    fn verdict(&mut self, value: &Spanned<DeValue<'_>>) -> Verdict {
        let verdict = match value.get_ref().as_str() {
            Some("pass") => Ok(Verdict::Pass),
            Some("drop") => Ok(Verdict::Drop),
            _ => Err((value.span().start, Wrong::new("not a verdict", "write \"pass\" or \"drop\""))),
        };
        self.note(verdict).unwrap_or_default()
    }

    fn prefixes(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Prefix> {
        let words = toml_words::values(value);
        let words = self.note(words).unwrap_or_default();
        words.iter().filter_map(|word| self.note(words::prefix(&word.text).map_err(|wrong| (word.at, wrong)))).collect()
    }

    fn sets(&mut self, value: &Spanned<DeValue<'_>>) {
        let table = toml_words::table(value, SETS_INSTEAD);
        let Some(table) = self.note(table) else { return };
        for (name, value) in table {
            if let Err(wrong) = sets::name(name.get_ref()) {
                self.faults.push((name.span().start, wrong));
            }
            let Some(entries) = self.entries(value, SETS_INSTEAD) else {
                // It is there, though with faults.
                self.sources.insert(name.get_ref().to_string(), SetSource::default());
                continue;
            };
            let source = SetSource::from_entries(&entries, name.span().start, &mut self.faults);
            self.sources.insert(name.get_ref().to_string(), source);
        }
    }

    fn rules(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Rule> {
        let Some(array) = value.get_ref().as_array() else {
            self.faults.push((value.span().start, Wrong::new("rules are a list of tables", RULES_INSTEAD)));
            return Vec::new();
        };
        let mut rules: Vec<Rule> = Vec::new();
        let mut places = self.text.places();
        // Names and the lines where they came first.
        let mut names: HashMap<String, usize> = HashMap::new();
        for value in array {
            let at = value.span().start;
            let Some(entries) = self.entries(value, RULES_INSTEAD) else { continue };
            let (line, _) = places.of(at);
            // Also of a rule with other faults: all are told at once.
            let named = entries.iter().find(|entry| entry.key.text == "name").and_then(|entry| entry.words.first());
            if let Some(word) = named {
                match names.get(&word.text) {
                    Some(first) => self.second(word, *first),
                    None => drop(names.insert(word.text.clone(), line)),
                }
            }
            match keys::rule(&entries, at) {
                Ok((mut rule, sets)) => {
                    self.suits(&rule, &entries, at);
                    rule.line = Some(line);
                    self.used.extend(sets);
                    rules.push(rule);
                }
                Err(faults) => self.faults.extend(faults),
            }
        }
        if let Some(beyond) = array.get(FILE_RULES_MAX) {
            let wrong = Wrong::new(
                format!("{} rules; the kernel's tables have room for {FILE_RULES_MAX}", array.len()),
                "join rules that do the same, or put their prefixes into one set",
            );
            self.faults.push((beyond.span().start, wrong));
        }
        rules
    }

    /// Refuses rules of a router that answer SYNs.
    fn suits(&mut self, rule: &Rule, entries: &[Entry], at: usize) {
        if self.keeper == Keeper::Router && rule.action == Action::Challenge {
            let word = entries.iter().find(|entry| entry.key.text == "action").and_then(|entry| entry.words.first());
            let what = format!("rule `{}` answers SYNs in place of a server, which a router's rules do not", rule.name);
            self.faults.push((word.map_or(at, |word| word.at), Wrong::new(what, BEFORE_ROUTER)));
        }
    }

    fn second(&mut self, name: &Word, first: usize) {
        let wrong = Wrong::new(
            format!("a second rule named `{}` (the first: line {first})", name.text),
            "give it another name: counters are kept by name",
        );
        self.faults.push((name.at, wrong));
    }

    /// Every set that a rule names is there.
    fn sets_exist(&mut self) {
        let known: BTreeSet<&str> = self.sources.keys().map(String::as_str).collect();
        let missing = self.used.iter().filter(|(name, _)| !known.contains(name.as_str()));
        for (number, (name, at)) in missing.enumerate() {
            // Each name is compared with all that there are: many of both would take for ever.
            let near = (number < NEAREST_MAX).then(|| words::nearest(name, known.iter().copied())).flatten();
            let instead = match near {
                Some(near) => format!("did you mean `@{near}`?"),
                None => format!("write [sets.{name}] with file = \"…\" or prefixes = [\"…\"]"),
            };
            self.faults.push((*at, Wrong::new(format!("there is no set `{name}`"), instead)));
        }
    }
}
