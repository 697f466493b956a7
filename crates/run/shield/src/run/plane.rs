//! The data plane of a shield: a program in the kernel ([`super::xdp`]), or threads of this process ([`crate::between::ring`]).

use std::fmt::Debug;

use bpf::filter::{SeenSources, ShieldCounts, WatchConfig};
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
    /// New rules against an attack that goes on: nothing else.
    Attack,
    /// Rules against attacks are withdrawn: nothing else.
    Withdrawn,
}

/// The state of the plane, for `status`.
#[derive(Debug, Clone, Default)]
pub struct PlaneStatus {
    /// `native`, `generic`, `packet rings`.
    pub mode: String,
    /// The kernel's number of the program; 0: there is none.
    pub program_id: u32,
    /// Seconds since the last heartbeat.
    pub heartbeat_age_s: f64,
    /// Times that the program was put back into its place, which others had emptied.
    pub reattached: u64,
    /// The way in which challenged SYNs are answered; none: nothing challenges, or it is always the same.
    pub challenge: Option<ChallengeStatus>,
}

/// Judges frames. [`Control`](super::Control) tells it by which rules, and does everything that has nothing to do with how.
pub trait DataPlane: Debug + Send + Sized {
    /// Rules that are ready to hold.
    type Ready;
    /// True if the plane can outlive its process, for a later one.
    const OUTLIVES_PROCESS: bool;
    /// Two interfaces have to be set promiscuous for it.
    const SETS_PROMISCUOUS: bool;

    /// The way in which traffic to protected prefixes is counted.
    fn counting(&self) -> Counting;

    /// Counts of all packets, and of the first `slots` rules.
    fn counts(&self, slots: usize) -> ShieldCounts;

    /// Makes rules ready. Names that `counters` has not met get a slot there.
    ///
    /// # Errors
    /// The rules cannot be compiled or loaded; the active ones stay.
    fn prepare(&mut self, next: &NextRules<'_>, counters: &mut Counters) -> Result<Self::Ready, ShieldError>;

    /// Puts rules in the place of those that hold, or begins with them. `memory` is what is known of them, `before` of those before. Returns
    /// what could not be done beside.
    ///
    /// # Errors
    /// The kernel refuses; those that hold go on.
    fn put(
        &mut self,
        ready: Self::Ready,
        settings: &Settings,
        memory: &SavedState,
        before: &SavedState,
    ) -> Result<Option<String>, ShieldError>;

    /// Repairs it where others have taken it away, and returns what had to be done, in words. `name` is that of the shield.
    ///
    /// # Errors
    /// The shield has ended by itself.
    fn check(&mut self, name: &str) -> Result<Vec<String>, ShieldError>;

    /// Ends it, as far as that takes more than dropping it.
    ///
    /// # Errors
    /// The plane had failed before.
    fn end(&mut self) -> Result<(), ShieldError>;

    fn status(&self, settings: &Settings) -> PlaneStatus;

    /// Says how it works, and what becomes of frames when this process dies.
    fn description(&self, settings: &Settings) -> String;

    /// Programs in the kernel; none: this process judges.
    fn programs(&mut self) -> Option<&mut dyn Programs> {
        None
    }

    /// The sources that are remembered from the time without an attack; none: none are.
    fn seen(&self) -> Option<SeenSources<'_>> {
        None
    }
}

/// Programs in the kernel, which take time to be loaded: those for an attack are loaded before it.
pub trait Programs {
    /// Acquires what the rules need. Removes from `extra`, the rules of detection, those that cannot be run here, and returns why.
    fn admit(
        &mut self,
        settings: &Settings,
        file: &RuleFile,
        extra: &mut Vec<Rule>,
    ) -> Result<Option<String>, ShieldError>;

    /// Finishes a switch of rules. The arguments say whether the rules before it, and those in force now, answer SYNs by cookies. Returns what
    /// could not be done beside.
    ///
    /// # Errors
    /// The rules hold, but nothing can be prepared for an attack.
    fn settle(&mut self, challenged: bool, challenges: bool) -> Result<Option<String>, ShieldError>;

    /// Returns why the rules against an attack that came last took long, as the end of a sentence about it.
    fn why_slow(&self) -> &'static str;

    /// Returns whether rules can be withdrawn without delay; if not, that is tried again soon. `all`: all that are against attacks.
    fn can_withdraw(&self, all: bool) -> bool;

    /// Does what was put off while an attack was urgent.
    ///
    /// # Errors
    /// The kernel refuses; what holds goes on.
    fn catch_up(&mut self) -> Result<(), ShieldError>;
}
