//! Rules as people are shown them.

use std::fmt;

use jiff::Timestamp;
use model::{shield::RuleStatus, units::counted as with_noun};

use crate::{Action, Rule, Verdict, tables::RuleCount};

/// A verdict as a word.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Drop => "drop",
    }
}

/// A rule, its counters yet to be read.
pub fn rule(rule: &Rule) -> RuleStatus {
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
        attack: false,
        expires: rule.expires.map(|at| at.to_string()),
        expired: false,
        packets: 0,
        bytes: 0,
        limited: 0,
        pps: None,
    }
}

/// The rule with what it has counted, as it is now.
pub fn counted(rule: &RuleStatus, count: RuleCount) -> RuleStatus {
    let expires = rule.expires.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    let expired = expires.is_some_and(|at| at <= Timestamp::now());
    RuleStatus { expired, packets: count.packets, bytes: count.bytes, limited: count.limited, ..rule.clone() }
}

/// Numbers of rules that hold and of those that have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    /// Active rules of the file and the command line.
    pub rules: usize,
    /// Rules of the management allow-list, which this program adds.
    pub built_in: usize,
    pub attack: usize,
    pub expired: usize,
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_noun(self.rules as u64, "rule", "rules"))?;
        if self.built_in > 0 {
            write!(f, " and {} built-in", self.built_in)?;
        }
        if self.attack > 0 {
            write!(f, ", {} against attacks", self.attack)?;
        }
        if self.expired > 0 {
            write!(f, " ({} expired)", self.expired)?;
        }
        Ok(())
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
            rule if rule.attack => &mut holding.attack,
            rule if has_expired(rule) => &mut holding.expired,
            _ => &mut holding.rules,
        }) += 1;
    }
    holding
}
