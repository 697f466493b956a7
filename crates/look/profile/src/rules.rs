//! The rule table `classes.txt`: function name to class of work.

use std::{collections::HashMap, sync::LazyLock};

use model::profile::Class;

const TABLE: &str = include_str!("classes.txt");

/// The entry of a function in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A function of this class.
    Class(Class),
    /// A function that works for its caller.
    Caller,
    /// A function that takes or leaves a lock.
    Lock,
    /// A function that waits for a lock.
    Waiting,
}

/// A table that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the rule table: {why}")]
pub struct RuleError {
    pub line: usize,
    pub why: String,
}

#[derive(Debug, Clone, Default)]
pub struct Rules {
    exact: HashMap<Box<str>, Rule>,
    beginnings: HashMap<Box<str>, Rule>,
    longest: usize,
}

impl Rules {
    /// The table that is part of the program.
    pub fn built_in() -> &'static Self {
        // A test parses it, so that a broken table never leaves the workshop.
        static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::parse(TABLE).unwrap_or_default());
        &RULES
    }

    /// Reads a table.
    ///
    /// # Errors
    /// On an unknown section, a pattern before the first section, a `*` elsewhere than at the end of a pattern, and a pattern
    /// that stands there twice.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut rules = Self::default();
        let mut section = None;
        for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.starts_with('#')) {
            let failed = |why: String| RuleError { line: number + 1, why };
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = Some(section_rule(name).ok_or_else(|| failed(format!("there is no section `{name}`")))?);
                continue;
            }
            for pattern in line.split_ascii_whitespace() {
                let rule = section.ok_or_else(|| failed("a pattern before the first section".into()))?;
                let (map, name) = match pattern.strip_suffix('*') {
                    Some(beginning) => (&mut rules.beginnings, beginning),
                    None => (&mut rules.exact, pattern),
                };
                if name.is_empty() || name.contains('*') {
                    return Err(failed(format!("`{pattern}`: a `*` stands at the end of a name only")));
                }
                if map.insert(name.into(), rule).is_some() {
                    return Err(failed(format!("`{pattern}` stands in the table twice")));
                }
                rules.longest = rules.longest.max(name.len());
            }
        }
        Ok(rules)
    }

    /// The entry of a function in the table, if there is one.
    pub fn rule(&self, function: &str) -> Option<Rule> {
        let name = bare(function);
        if let Some(rule) = self.exact.get(name) {
            return Some(*rule);
        }
        let longest = name.len().min(self.longest);
        (1..=longest).rev().find_map(|n| self.beginnings.get(name.get(..n)?).copied())
    }

    pub fn len(&self) -> usize {
        self.exact.len() + self.beginnings.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn section_rule(name: &str) -> Option<Rule> {
    match name {
        "caller" => Some(Rule::Caller),
        "lock" => Some(Rule::Lock),
        "waiting" => Some(Rule::Waiting),
        // Decided otherwise than by a function's name.
        "locks" | "user" | "unclassified" | "steal" => None,
        _ => Class::from_key(name).map(Rule::Class),
    }
}

/// A function's name without what compilers and newer kernels add to it.
pub fn bare(function: &str) -> &str {
    let name = function.split_once('.').map_or(function, |(name, _)| if name.is_empty() { function } else { name });
    let name = name.strip_suffix("_noprof").unwrap_or(name);
    let name = name.strip_prefix("__raw_callee_save_").unwrap_or(name);
    name.strip_prefix("__pi_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_built_in_table_is_well_formed() {
        let rules = Rules::parse(TABLE).unwrap();
        assert!(rules.len() > 1500);
        for class in Class::ALL {
            let has_rules = rules.exact.values().chain(rules.beginnings.values()).any(|r| *r == Rule::Class(class));
            assert_eq!(has_rules, section_rule(class.key()).is_some(), "{class}");
        }
    }

    #[test]
    fn every_rule_decides_for_some_name() {
        let rules = Rules::built_in();
        for (name, rule) in &rules.exact {
            assert_eq!(rules.rule(name), Some(*rule), "{name}");
            // An exact rule that says what its beginning says anyway is in the way of a reader.
            let shorter = (1..=name.len()).rev().find_map(|n| rules.beginnings.get(&name[..n]));
            assert_ne!(shorter, Some(rule), "{name} is superfluous");
        }
        for (name, rule) in &rules.beginnings {
            assert_eq!(rules.rule(&format!("{name}\u{1}")), Some(*rule), "{name}*");
            let shorter = (1..name.len()).rev().find_map(|n| rules.beginnings.get(&name[..n]));
            assert_ne!(shorter, Some(rule), "{name}* is superfluous");
        }
    }

    #[test]
    fn what_is_added_to_names_does_not_count() {
        for (name, plain) in [
            ("__netif_receive_skb_core.constprop.0", "__netif_receive_skb_core"),
            ("ip_rcv_core.isra.0", "ip_rcv_core"),
            ("tcp_rcv_established.cold", "tcp_rcv_established"),
            ("foo.llvm.123456", "foo"),
            ("kmem_cache_alloc_node_noprof", "kmem_cache_alloc_node"),
            ("__pi_memcpy", "memcpy"),
            ("__raw_callee_save___pv_queued_spin_unlock", "__pv_queued_spin_unlock"),
            (".odd", ".odd"),
        ] {
            assert_eq!(bare(name), plain);
        }
    }

    #[test]
    fn the_longest_pattern_decides() {
        let rules = Rules::parse("[ip]\nip_*\n[netfilter]\nip_vs_*\nip_vs\n").unwrap();
        assert_eq!(rules.rule("ip_rcv"), Some(Rule::Class(Class::Ip)));
        assert_eq!(rules.rule("ip_vs_in"), Some(Rule::Class(Class::Netfilter)));
        assert_eq!(rules.rule("tcp_rcv"), None);
    }

    #[test]
    fn bad_tables_are_named_by_line() {
        for (text, line) in [
            ("a", 1),
            ("[nothing]", 1),
            ("[user]\n", 1),
            ("[ip]\n*", 2),
            ("[ip]\na*b", 2),
            ("[ip]\na\n[bridge] \na", 4),
        ] {
            let error = Rules::parse(text);
            assert_eq!(error.map_err(|e| e.line).err(), Some(line), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(name in "\\PC*") {
            let _ = Rules::built_in().rule(&name);
        }
    }
}
