//! Requester of rules, and the warnings that he gets before they hold.

use serde::{Deserialize, Serialize};

use crate::{
    check::{self, Finding, Weight},
    compile::Now,
    file::RuleFile,
    management::Session,
};

/// Sessions that the management allow-list lets in: whoever asked from elsewhere long ago may be somebody else by now.
const SESSIONS_MAX: usize = 16;

/// The one who asks for rules to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    /// The ssh sessions that it is asked from; none: by a signal, or from the console.
    pub sessions: Vec<Session>,
    /// True if the rules are loaded even where they cut one of them off.
    pub force: bool,
}

impl Requester {
    /// Returns warnings about the rules of `file`.
    pub fn judge(&self, file: &RuleFile) -> Result<Vec<String>, Finding> {
        let findings = check::check(file, &self.sessions, Now::read());
        if let Some(harm) = findings.iter().find(|finding| finding.weight == Weight::Harm && !self.force) {
            return Err(harm.clone());
        }
        let lines = findings.into_iter().filter(|finding| finding.weight > Weight::Note);
        let lines = lines.map(|finding| format!("{}; {}", finding.what, finding.instead));
        Ok(lines.chain(check::without_rules(file).map(str::to_owned)).collect())
    }

    /// Puts the sessions among those that the management allow-list lets in, the [`SESSIONS_MAX`] that asked last. The port that one comes
    /// from makes no rule.
    pub fn let_in(&self, known: &mut Vec<Session>) {
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
    use crate::{check::Kind, file};

    fn session(port: u16) -> Session {
        let [peer, local] = ["192.0.2.9", "203.0.113.1"].map(|text| text.parse().unwrap());
        Session { peer, peer_port: port, local, local_port: 22 }
    }

    #[test]
    fn who_asks_is_not_cut_off_unless_forced() {
        let judge =
            |text: &str, requester: &Requester| requester.judge(&file::parse_in(text, "f", Path::new("")).unwrap());
        let requester = Requester { sessions: vec![session(50_000)], force: false };
        let shut = "default = \"drop\"\n[management]\nsession = false\n";
        let refused = judge(shut, &requester).unwrap_err();
        assert_eq!(refused.kind, Kind::CutsOff);
        assert_eq!(judge(shut, &Requester { force: true, ..requester.clone() }).unwrap().len(), 1, "it is still told");
        assert!(judge(shut, &Requester::default()).unwrap().is_empty(), "a signal comes from nowhere");
        assert!(judge("default = \"drop\"\n", &requester).unwrap().is_empty(), "the allow-list has it");
        let unused = "default = \"drop\"\n[sets.a]\nprefixes = \"192.0.2.1\"\n";
        assert_eq!(judge(unused, &requester).unwrap().len(), 1);
        assert_eq!(judge("", &requester).unwrap().len(), 1, "an emptied file opens all");
    }

    #[test]
    fn a_session_is_let_in_once() {
        let mut known = vec![session(1)];
        let other = Session { local_port: 2222, ..session(3) };
        Requester { sessions: vec![session(2), other], force: false }.let_in(&mut known);
        assert_eq!(known, [session(2), other]);
        let from = |n: u16| Session { local_port: n, ..session(n) };
        for n in 100..150 {
            Requester { sessions: vec![from(n)], force: false }.let_in(&mut known);
        }
        assert_eq!((known.len(), known[0]), (SESSIONS_MAX, from(150 - SESSIONS_MAX as u16)), "those that asked last");
    }
}
