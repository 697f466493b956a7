//! A set of rules as the threads ask it.

use std::sync::{Mutex, PoisonError};

use bpf::shield::{ShieldTables, monotonic_ns};
use model::shield::RuleStatus;

use super::counts::{Counts, Sums, Total};
use crate::{
    compile::{self, Counters, Now, lookup},
    error::ShieldError,
    limits::Limits,
    packet::{Packet, Parsed},
    reference::Outcome,
    rules::{Action, Rules},
    run::{Settings, status},
};

/// Rules that hold.
#[derive(Debug)]
pub(super) struct Engine {
    tables: ShieldTables,
    rules: Vec<RuleStatus>,
    pub(super) names: Vec<String>,
    default: &'static str,
    /// One set of buckets for all threads; not asked where no rule is a limit.
    limits: Mutex<Limits>,
}

impl Engine {
    /// Reads the rules of the settings.
    pub(super) fn new(settings: &Settings, counters: &mut Counters, now: Now) -> Result<Self, ShieldError> {
        let file = settings.source.read()?;
        let mut rules: Rules = file.rules;
        // What crosses is for others than this machine.
        rules.rules.splice(0..0, file.management.rules(&[], None));
        if let Some(rule) = rules.rules.iter().find(|rule| rule.action == Action::Challenge) {
            return Err(ShieldError::Usage(format!(
                "rule \"{}\" challenges, which packet rings cannot: use --backend xdp, or a limit per source",
                rule.name
            )));
        }
        if !rules.protected.is_empty() {
            return Err(ShieldError::Usage(
                "packet rings watch for no attacks: leave away what is to be protected, or use --backend xdp".into(),
            ));
        }
        Ok(Self {
            tables: compile::tables(&rules, counters, now)?,
            names: rules.rules.iter().map(|rule| rule.name.clone()).collect(),
            default: status::verdict(rules.default),
            limits: Mutex::new(Limits::new(&rules.rules)),
            rules: rules.rules.iter().map(status::rule).collect(),
        })
    }

    /// Whether the frame passes; counted.
    pub(super) fn passes(&self, frame: &[u8], counts: &Counts) -> bool {
        let bytes = frame.len() as u64;
        let passes = match Packet::parse(frame) {
            Parsed::NotIp => {
                counts.add(Total::NotIp, 1);
                true
            }
            Parsed::Malformed(_) => {
                counts.add(Total::Malformed, 1);
                !self.tables.malformed_drop
            }
            Parsed::Ip(packet) => self.judges(&packet, bytes, counts),
        };
        let (frames, all) =
            if passes { (Total::Passed, Total::PassedBytes) } else { (Total::Dropped, Total::DroppedBytes) };
        counts.add(frames, 1);
        counts.add(all, bytes);
        passes
    }

    fn judges(&self, packet: &Packet, bytes: u64, counts: &Counts) -> bool {
        let now = monotonic_ns();
        let exceeds = |rule: usize, packet: &Packet| {
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            let beyond = limits.exceeds(rule, packet.source, now);
            if beyond {
                counts.limited(self.tables.rules[rule].counter);
                counts.add(Total::Limited, 1);
            }
            beyond
        };
        let decision = lookup::decide(&self.tables, packet, now, exceeds);
        for &rule in &decision.counted {
            counts.rule(self.tables.rules[rule].counter, bytes);
        }
        if decision.rule.is_none() {
            counts.add(Total::ByDefault, 1);
        }
        decision.outcome == Outcome::Pass
    }

    /// The rules with their counters.
    pub(super) fn statuses(&self, sums: &Sums<'_>) -> Vec<RuleStatus> {
        let status = |(rule, table): (&RuleStatus, &bpf::shield::RuleEntry)| {
            let [packets, bytes, limited] = sums.rule(table.counter);
            RuleStatus { packets, bytes, limited, ..rule.clone() }
        };
        self.rules.iter().zip(&self.tables.rules).map(status).collect()
    }

    pub(super) fn default_word(&self) -> &'static str {
        self.default
    }
}
