//! The data plane of a shield: a program in the kernel ([`super::xdp`]), or threads of this process ([`crate::between::ring`]).

use std::{fmt::Debug, net::IpAddr};

use bpf::filter::{ShieldCounts, WatchConfig};
use model::shield::ChallengeStatus;
use rules::{
    Rule, Rules,
    compile::{Counters, Now},
    file::RuleFile,
};

use super::{saved_state::SavedState, settings::Settings, transition::Counting};
use crate::error::ShieldError;

/// Rules that are to take the place of those that hold.
#[derive(Debug)]
pub struct NextRules<'a> {
    /// The settings of the shield.
    pub settings: &'a Settings,
    /// The file that they are from.
    pub file: &'a RuleFile,
    /// Rules of the file, behind the management allow-list.
    pub calm: &'a Rules,
    /// All: also those that detection adds.
    pub rules: &'a Rules,
    /// The counters of protected prefixes; none: nothing is protected.
    pub watch: Option<WatchConfig>,
    /// Other prefixes are protected from now on: nothing of the tables before can be used again.
    pub elsewhere: bool,
    pub what: Changed,
    /// The moment that they are compiled at.
    pub now: Now,
}

/// The change since the active rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// The file, or something that programs go by.
    All,
    /// There are new rules against an attack that goes on: nothing else.
    Attack,
    /// Rules against attacks are withdrawn: nothing else.
    Withdrawn,
}

/// The state of the plane, for `status`.
#[derive(Debug, Clone)]
pub struct PlaneStatus {
    /// `native`, `generic`, `packet rings`.
    pub mode: String,
    /// The kernel's number of the program; 0: there is none.
    pub program_id: u32,
    /// Seconds since the last heartbeat.
    pub heartbeat_age_s: f64,
    /// Times that the program was put back into its place, which others had emptied.
    pub reattached: u64,
}

/// Judges frames. [`Control`] tells it by which rules, and does everything that has nothing to do with how.
pub trait DataPlane: Debug + Send + Sized {
    /// Rules that are ready to hold.
    type Ready;
    /// Work that is left once they hold.
    type Rest;
    /// True if the plane can outlive its process, for a later one.
    const OUTLIVES_PROCESS: bool;
    /// Two interfaces have to be set promiscuous for it.
    const SETS_PROMISCUOUS: bool;

    /// The way in which traffic to protected prefixes is counted.
    fn counting(&self) -> Counting;

    /// Counts of all packets, and of the first `slots` rules.
    fn counts(&self, slots: usize) -> ShieldCounts;

    /// Acquires what the rules need. Removes from `extra`, the rules of detection, those that this plane cannot run; each removal is noted.
    fn admit(
        &mut self,
        _settings: &Settings,
        _file: &RuleFile,
        _extra: &mut Vec<Rule>,
        _notes: &mut Vec<String>,
    ) -> Result<(), ShieldError> {
        Ok(())
    }

    /// Makes rules ready. Names that `counters` has not met get a slot there.
    ///
    /// # Errors
    /// The rules cannot be compiled or loaded; the active ones stay.
    fn prepare(&mut self, next: &NextRules<'_>, counters: &mut Counters) -> Result<Self::Ready, ShieldError>;

    /// Puts rules in the place of those that hold, or begins with them. `memory` is what is known of them, `before` of those before.
    ///
    /// # Errors
    /// The kernel refuses; those that hold go on.
    fn put(
        &mut self,
        ready: Self::Ready,
        settings: &Settings,
        memory: &SavedState,
        before: &SavedState,
        notes: &mut Vec<String>,
    ) -> Result<Self::Rest, ShieldError>;

    /// Finishes a switch of rules. The arguments say whether the rules before it, and those in force now, answer SYNs by cookies.
    ///
    /// # Errors
    /// The rules hold, but nothing can be prepared for an attack.
    fn settle(
        &mut self,
        rest: Self::Rest,
        challenged: bool,
        challenges: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), ShieldError>;

    /// Returns whether a program waits for rules against an attack.
    fn is_prepared(&self) -> bool {
        false
    }

    /// Returns whether the rules that came last needed no program to be loaded.
    fn used_preloaded(&self) -> bool {
        true
    }

    /// Returns whether rules can be withdrawn without delay; if not, that is tried again soon. `all`: all that are against attacks.
    fn can_withdraw(&self, _all: bool) -> bool {
        true
    }

    /// Remembers sources that were seen while there was no attack.
    fn remember(&self, _sources: &[IpAddr]) {}

    /// About how many sources are remembered, and the share of strangers that are taken for one of them; none: none are.
    fn remembered(&self) -> Option<(u64, f64)> {
        None
    }

    /// Does what was put off while an attack was urgent.
    ///
    /// # Errors
    /// The kernel refuses; what holds goes on.
    fn catch_up(&mut self) -> Result<(), ShieldError> {
        Ok(())
    }

    /// Sees that programs are where they were put, and returns what had to be done, in words.
    fn put_back(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns why it has ended by itself; none: it goes on. `name` is that of the shield.
    fn has_ended(&mut self, name: &str) -> Option<ShieldError>;

    /// Ends it, as far as that takes more than dropping it.
    ///
    /// # Errors
    /// The plane had failed before.
    fn end(&mut self) -> Result<(), ShieldError> {
        Ok(())
    }

    /// Its state.
    fn status(&self, settings: &Settings) -> PlaneStatus;

    /// Says how it works, and what becomes of frames when this process dies.
    fn description(&self, settings: &Settings) -> String;

    /// The way in which challenged SYNs are answered; none: nothing challenges, or it is always the same.
    fn challenge(&self) -> Option<&ChallengeStatus> {
        None
    }
}
