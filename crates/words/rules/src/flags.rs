//! Rules and sets from the command line.

use super::{
    file::RuleFile,
    keys::{self, Entry, Word},
    rule::Rule,
    sets::{self, SetSource},
    toml_words::Text,
    words::Wrong,
};
use crate::error::RulesError;

/// The longest name that is made of a rule's own words.
const NAME_MAX: usize = 63;

/// A rule such as `drop protocol=udp source-port=53,123 source=@blocked`: the action, then keys of the file with an equals sign,
/// several values separated by commas. Without a `name=` its own words are its name.
///
/// # Errors
/// Every problem, with its column.
pub fn rule(text: &str) -> Result<Rule, RulesError> {
    let named = Text { name: "--rule", text };
    let mut entries = Vec::new();
    for (at, word) in words(text) {
        let (key, value, value_at) = match word.split_once('=') {
            Some((key, value)) => (key, value, at + key.len() + 1),
            None if entries.is_empty() => ("action", word, at),
            None => {
                let wrong = Wrong::new(
                    format!("`{word}` has no equals sign"),
                    "write keys as key=value, such as source-port=53,123",
                );
                return Err(RulesError::Rules(vec![named.problem((at, wrong))]));
            }
        };
        let key_word = Word { text: key.to_owned(), at };
        // Flags are one value: all of them together.
        let separator = |c: char| c == ',' && key != "tcp-flags";
        let mut from = value_at;
        let mut values = Vec::new();
        for part in value.split(separator) {
            values.push(Word { text: part.to_owned(), at: from });
            from += part.len() + 1;
        }
        entries.push(Entry { key: key_word, words: values });
    }
    if !entries.iter().any(|entry| entry.key.text == "name") {
        let name: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(NAME_MAX).collect();
        entries.push(Entry { key: Word { text: "name".into(), at: 0 }, words: vec![Word { text: name, at: 0 }] });
    }
    let (rule, _) = keys::rule(&entries, 0).map_err(|faults| RulesError::Rules(named.problems(faults)))?;
    Ok(rule)
}

fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_whitespace().map(move |word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// Puts a set `NAME=FILE` of the command line beside those of the file.
///
/// # Errors
/// No equals sign, a name that the file has already, or what is wrong in the set's file.
pub fn set(file: &mut RuleFile, text: &str) -> Result<(), RulesError> {
    let named = Text { name: "--set", text };
    let problem = |wrong| Err(RulesError::Rules(vec![named.problem((0, wrong))]));
    let Some((name, path)) = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty()) else {
        return problem(Wrong::new(format!("`{text}` is not a set"), "write NAME=FILE, and in rules source=@NAME"));
    };
    if let Err(wrong) = sets::name(name) {
        return problem(wrong);
    }
    if file.rules.sets.contains_key(name) {
        return problem(Wrong::new(format!("there is a set `{name}` in the file already"), "give it another name"));
    }
    let source = SetSource { files: vec![path.into()], ..SetSource::default() };
    let (set, _) = sets::load(&source, std::path::Path::new(""))?;
    file.rules.sets.insert(name.to_owned(), set.into());
    Ok(())
}

/// Puts the rules of the command line before those of the file.
pub fn prepend(file: &mut RuleFile, rules: &[Rule]) -> Result<(), RulesError> {
    for (n, rule) in rules.iter().enumerate() {
        if rules[..n].iter().chain(&file.rules.rules).any(|other| other.name == rule.name) {
            let text = Text { name: "--rule", text: &rule.name };
            let wrong =
                Wrong::new(format!("there is a rule named `{}` already", rule.name), "give it another name (name=…)");
            return Err(RulesError::Rules(vec![text.problem((0, wrong))]));
        }
    }
    file.rules.rules.splice(0..0, rules.iter().cloned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Action, Limit, TcpFlags};

    #[test]
    fn a_rule_of_words_is_the_rule_of_the_file() {
        let made =
            rule("limit rate=2k/s per-source=true protocol=tcp tcp-flags=syn,!ack destination-port=80,443 name=syn")
                .unwrap();
        assert_eq!(made.name, "syn");
        assert_eq!(made.action, Action::Limit(Limit { pps: 2000, burst: 200, per_source: Some((32, 64)) }));
        assert_eq!(made.when.tcp_flags, Some(TcpFlags { mask: 18, value: 2 }));
        assert_eq!(made.when.destination_port, [80..=80, 443..=443]);
        assert_eq!(rule("drop  protocol=udp").unwrap().name, "drop protocol=udp");
    }

    #[test]
    fn what_is_wrong_is_reported_by_its_column() {
        for (text, says) in [
            ("drop protocol=udp source-port=53,70000", "--rule:1:34: port 70000"),
            ("drop udp", "--rule:1:6: `udp` has no equals sign"),
            ("deny protocol=udp", "--rule:1:1: `deny` is not an action; write `drop`"),
            ("drop proto=udp", "--rule:1:6: a rule has no key `proto`; write `protocol`"),
        ] {
            let error = rule(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
