//! The state of a shield, as the process that runs it or any other sees it.

use std::{fmt, io::ErrorKind};

use bpf::filter::{ShieldCounts, ShieldLink, ShieldShared};
use jiff::Timestamp;
use model::shield::{RuleStatus, ShieldStatus};
use rules::tables::RuleCount;
use rules::{Action, Rule, Verdict};

use super::{
    memory::{Memory, read_memory},
    owner::owner,
    paths::Paths,
    plane::Standing,
    warnings,
};
use crate::error::ShieldError;

/// A verdict as a word.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Drop => "drop",
    }
}

/// A rule, its counters yet to be read.
pub(super) fn rule(rule: &Rule) -> RuleStatus {
    let action = match rule.action {
        Action::Pass => "pass".to_owned(),
        Action::Drop => "drop".to_owned(),
        Action::Challenge => "challenge".to_owned(),
        Action::Limit(limit) => match limit.per_source {
            None => format!("limit {}/s", limit.pps),
            Some((32, 128)) => format!("limit {}/s per source", limit.pps),
            Some((v4, v6)) => format!("limit {}/s per source /{v4} /{v6}", limit.pps),
        },
    };
    RuleStatus {
        name: rule.name.clone(),
        line: rule.line,
        action,
        shadow: rule.shadow,
        management: rule.management,
        expires: rule.expires.map(|at| at.to_string()),
        expired: false,
        packets: 0,
        bytes: 0,
        limited: 0,
        pps: None,
    }
}

/// The rule with what it has counted, as it is now.
fn counted(rule: &RuleStatus, count: RuleCount) -> RuleStatus {
    let expires = rule.expires.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    let expired = expires.is_some_and(|at| at <= Timestamp::now());
    RuleStatus { expired, packets: count.packets, bytes: count.bytes, limited: count.limited, ..rule.clone() }
}

/// Numbers of rules that hold and of those that have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    /// Those of the file and the command line that hold.
    pub rules: usize,
    /// Those of the management allow-list, which this program adds.
    pub built_in: usize,
    /// Those that have expired.
    pub expired: usize,
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&number(self.rules, "rule", "rules"))?;
        if self.built_in > 0 {
            write!(f, " and {} built-in", self.built_in)?;
        }
        if self.expired > 0 {
            write!(f, " ({} expired)", self.expired)?;
        }
        Ok(())
    }
}

/// `1 rule`, `2 rules`.
pub(crate) fn number(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Of rules and what they have counted; detection, warnings and who controls it are added by those who know.
pub(super) fn of(memory: &Memory, standing: Standing, name: String, counts: &ShieldCounts) -> ShieldStatus {
    let rules = memory.rules.iter().map(|rule| {
        let count = memory.counters.count(&rule.name, &counts.rules).unwrap_or_default();
        counted(rule, count)
    });
    ShieldStatus {
        when: Timestamp::now().to_string(),
        interface: name,
        mode: standing.mode,
        program_id: standing.program_id,
        pid: None,
        silent_s: standing.silent_s,
        patience_s: memory.patience_s,
        fail: memory.fail,
        file: memory.file.clone(),
        loaded: memory.loaded.clone(),
        reloads: 0,
        refused: None,
        rules: rules.collect(),
        default: memory.default.clone(),
        totals: counts.totals,
        rates: None,
        sources: Vec::new(),
        attacks: Vec::new(),
        challenge: None,
        warnings: Vec::new(),
    }
}

/// Returns the state of the shield that is pinned, whether or not somebody runs it.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn of_pins(interface: &str, paths: &Paths) -> Result<ShieldStatus, ShieldError> {
    match paths.link().try_exists() {
        Ok(true) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(unseen(interface)),
        _ => return Err(owner(interface, paths).unwrap_or_else(|| none(interface))),
    }
    paths.check()?;
    let link = ShieldLink::open(&paths.link())?;
    let shared = ShieldShared::open(&paths.pins)?;
    let memory = read_memory(paths).unwrap_or_default();
    let second = paths.second_link();
    let name = match second.exists().then(|| ShieldLink::open(&second)).transpose()? {
        Some(second) => format!("{},{}", link.interface(), second.interface()),
        None => link.interface().to_owned(),
    };
    let warnings = warnings::of_link(&link).into_iter().collect();
    let counts = shared.counts_of(memory.counters.end());
    Ok(ShieldStatus { warnings, ..of(&memory, Standing::of(&link, &shared), name, &counts) })
}

fn none(interface: &str) -> ShieldError {
    ShieldError::None { interface: interface.to_owned() }
}

/// For a user who may not look: every user may see that an interface runs no XDP program at all.
pub fn unseen(interface: &str) -> ShieldError {
    match bpf::link::attached(interface) {
        Ok(None) => ShieldError::Unseen { interface: interface.to_owned(), program: None },
        Ok(Some(attached)) => ShieldError::Unseen { interface: interface.to_owned(), program: Some(attached.id) },
        Err(error) => error.into(),
    }
}

/// Counts those of these rules that hold.
pub fn holding_of(rules: &[RuleStatus]) -> Holding {
    let now = Timestamp::now();
    let has_expired = |rule: &RuleStatus| {
        rule.expires.as_deref().and_then(|at| at.parse::<Timestamp>().ok()).is_some_and(|at| at <= now)
    };
    let mut holding = Holding::default();
    for rule in rules {
        *(match rule {
            rule if rule.management => &mut holding.built_in,
            rule if has_expired(rule) => &mut holding.expired,
            _ => &mut holding.rules,
        }) += 1;
    }
    holding
}
