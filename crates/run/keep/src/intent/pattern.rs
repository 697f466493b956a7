//! Names and globs of interfaces, matched against the machine.

use host::{Host, interface::real_name, picture::Nic};
use serde::{Deserialize, Serialize};

/// The name of an interface, or a glob of names: `ens*`, `eth?`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_bad = |c: char| c == '/' || c.is_whitespace() || c.is_control();
        match text.is_empty() || text.contains(is_bad) || text == "." || text == ".." {
            true => Err(format!("`{text}` is no name of an interface; write one such as eth0, or a glob such as ens*")),
            false => Ok(Self(text)),
        }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl Pattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_glob(&self) -> bool {
        self.0.contains(['*', '?'])
    }

    pub fn matches(&self, name: &str) -> bool {
        glob(self.0.as_bytes(), name.as_bytes())
    }
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if glob(rest, name) => true,
        (Some((b'*', _)), Some((_, tail))) => glob(pattern, tail),
        (Some((b'?', rest)), Some((_, tail))) => glob(rest, tail),
        (Some((one, rest)), Some((other, tail))) => one == other && glob(rest, tail),
        _ => false,
    }
}

/// The interfaces that an intent selects on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matched {
    pub names: Vec<String>,
    /// Messages about names that match no interface.
    pub pending: Vec<String>,
}

impl Matched {
    pub(super) fn add(&mut self, nics: Vec<&Nic>, pending: impl FnOnce() -> String) {
        if nics.is_empty() {
            self.pending.push(pending());
        }
        for nic in nics {
            if !self.names.contains(&nic.name) {
                self.names.push(nic.name.clone());
            }
        }
    }
}

/// The interfaces that match one of `patterns`.
pub fn matched(patterns: &[Pattern], host: &Host) -> Matched {
    let mut found = Matched::default();
    for pattern in patterns {
        let real = if pattern.is_glob() { pattern.0.clone() } else { real_name(&pattern.0) };
        let real = Pattern(real);
        let nics = host.nics.iter().filter(|nic| real.matches(&nic.name)).collect();
        found.add(nics, || format!("{} is not there", pattern.0));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        let is = |pattern: &str, name: &str| Pattern(pattern.into()).matches(name);
        assert!(is("eth0", "eth0") && is("ens*", "ens1f0") && is("*", "x") && is("e?h*0", "eth10"));
        assert!(!is("eth", "eth0") && !is("eth?", "eth") && !is("ens*0", "ens1"));
    }
}
