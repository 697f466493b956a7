//! Who asks for rules to hold, and what that one is told about them first.

use model::shield::ShieldStatus;
use rules::{
    check::{self, Weight},
    compile::Now,
    file::RuleFile,
    management::Session,
};
use serde::{Deserialize, Serialize};
use serve::control;

use super::{places::Places, session};
use crate::error::ShieldError;

/// What others ask of the process that tends a shield.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Tell how things are.
    Status,
    /// Read the rules again.
    Reload(Asked),
    /// Take the shield away and end.
    Stop,
    /// End, and leave the shield for a process that comes.
    Leave,
}

impl Command {
    /// Asks the process that controls the shield; none: there is none.
    ///
    /// # Errors
    /// It does not answer.
    pub fn ask(&self, places: &Places) -> Result<Option<Answer>, ShieldError> {
        Ok(control::ask(&places.socket(), self)?)
    }
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it was done.
    pub done: bool,
    /// What there is to say.
    pub said: String,
    /// What is probably not meant in rules that hold all the same.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// How things are.
    pub status: Option<ShieldStatus>,
    /// What a reload brought.
    #[serde(default)]
    pub reloaded: Option<Reloaded>,
}

/// What holds after a reload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Rules of the file and the command line that hold.
    pub rules: usize,
    /// Rules of the management allow-list.
    #[serde(default)]
    pub built_in: usize,
    /// Rules that have expired.
    pub expired: usize,
    /// Prefixes of sets.
    pub prefixes: usize,
    /// From the request to the first packet that the new rules judge, in seconds.
    pub seconds: f64,
}

impl Answer {
    /// Without anything beside.
    pub(crate) fn new(done: bool, said: impl Into<String>) -> Self {
        Self { done, said: said.into(), warnings: Vec::new(), status: None, reloaded: None }
    }

    /// It was done; there is nothing more to say.
    pub fn done() -> Self {
        Self::new(true, "")
    }

    pub(crate) fn status(status: ShieldStatus) -> Self {
        Self { status: Some(status), ..Self::new(true, "") }
    }
}

/// Sessions that the management allow-list lets in: whoever asked from elsewhere long ago may be somebody else by now.
const SESSIONS_MAX: usize = 16;

/// Who asks for rules to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The ssh sessions that it is asked from; none: by a signal, or from the console.
    pub sessions: Vec<Session>,
    /// Also when the rules would cut one of them off.
    pub force: bool,
}

impl Asked {
    /// By this process.
    pub fn here(force: bool) -> Self {
        Self { sessions: session::sessions(), force }
    }

    /// What is probably not meant in the rules of `file`, in words.
    ///
    /// # Errors
    /// They would cut off who asks.
    pub fn judge(&self, file: &RuleFile) -> Result<Vec<String>, ShieldError> {
        let findings = check::check(file, &self.sessions, Now::read());
        if let Some(harm) = findings.iter().find(|finding| finding.weight == Weight::Harm && !self.force) {
            return Err(ShieldError::CutsOff { what: harm.what.clone(), instead: harm.instead.clone() });
        }
        let told = findings.into_iter().filter(|finding| finding.weight > Weight::Note);
        Ok(told.map(|finding| format!("{}; {}", finding.what, finding.instead)).collect())
    }

    /// Puts the sessions among those that the management allow-list lets in, the [`SESSIONS_MAX`] that asked last. The port that one comes
    /// from makes no rule.
    pub(super) fn let_in(&self, known: &mut Vec<Session>) {
        let same = |other: &Session| (other.peer, other.local, other.local_port);
        for session in &self.sessions {
            known.retain(|other| same(other) != same(session));
            known.push(*session);
        }
        known.drain(..known.len().saturating_sub(SESSIONS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use rules::file;

    fn session(port: u16) -> Session {
        let [peer, local] = ["192.0.2.9", "203.0.113.1"].map(|text| text.parse().unwrap());
        Session { peer, peer_port: port, local, local_port: 22 }
    }

    #[test]
    fn who_asks_is_not_cut_off_unless_told() {
        let judge = |text: &str, asked: &Asked| asked.judge(&file::parse_in(text, "f", Path::new("")).unwrap());
        let asked = Asked { sessions: vec![session(50_000)], force: false };
        let shut = "default = \"drop\"\n[management]\nsession = false\n";
        let refused = judge(shut, &asked).unwrap_err();
        assert!(matches!(refused, ShieldError::CutsOff { .. }), "{refused}");
        assert_eq!(judge(shut, &Asked { force: true, ..asked.clone() }).unwrap().len(), 1, "it is still told");
        assert!(judge(shut, &Asked::default()).unwrap().is_empty(), "a signal comes from nowhere");
        assert!(judge("default = \"drop\"\n", &asked).unwrap().is_empty(), "the allow-list has it");
        let unused = "[sets.a]\nprefixes = \"192.0.2.1\"\n";
        assert_eq!(judge(unused, &asked).unwrap().len(), 1);
    }

    #[test]
    fn a_session_is_let_in_once() {
        let mut known = vec![session(1)];
        let other = Session { local_port: 2222, ..session(3) };
        Asked { sessions: vec![session(2), other], force: false }.let_in(&mut known);
        assert_eq!(known, [session(2), other]);
        let from = |n: u16| Session { local_port: n, ..session(n) };
        for n in 100..150 {
            Asked { sessions: vec![from(n)], force: false }.let_in(&mut known);
        }
        assert_eq!((known.len(), known[0]), (SESSIONS_MAX, from(150 - SESSIONS_MAX as u16)), "those that asked last");
    }

    #[test]
    fn a_command_is_a_line() {
        let asked = Asked { sessions: vec![session(1)], force: false };
        let line = serde_json::to_string(&Command::Reload(asked.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Command>(&line).unwrap(), Command::Reload(asked));
        assert_eq!(serde_json::from_str::<Command>("\"status\"").unwrap(), Command::Status);
    }
}
