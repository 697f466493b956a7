//! Preloading: programs that need only the rules against an attack.
//!
//! Rules become acting in milliseconds by filling one of them; the verifier, which takes a third of a second and more for a new
//! program, has its time beside: then the program that was made for these rules alone replaces the filled one.

use std::sync::{Arc, Mutex, PoisonError};

use bpf::filter::{AckProgram, Shield, SpareProgram};
use rules::tables::RuleTables;
use rules::{
    Prefix, Rules,
    compile::{self, Cache, Counters, Now},
};

use super::loader::{Base, Exact, Loaded, Loader};
use crate::error::ShieldError;

/// Programs that are kept waiting: one for an attack, and one for its next step or another attack, which may come before the verifier
/// is through with a third.
const SPARES_MAX: usize = 2;

/// A preloaded program for each series of rules that protect the same prefixes.
#[derive(Debug)]
pub(super) struct Preload {
    cache: Arc<Mutex<Cache>>,
    spares: Vec<SpareProgram>,
    /// The program that makes connections of SYN cookies.
    ack: Option<AckProgram>,
    loader: Option<Loader>,
    /// True if a program waited for the last tables.
    waited: bool,
    /// True if a waiting program has them.
    filled: bool,
}

impl Preload {
    pub(super) fn new(protected: &[Prefix]) -> Self {
        let cache = Arc::new(Mutex::new(Cache::expecting(protected)));
        Self { cache, spares: Vec::new(), ack: None, loader: None, waited: false, filled: false }
    }

    /// The tables of these rules, as far as possible from those before.
    pub(super) fn tables(&self, rules: &Rules, counters: &mut Counters, now: Now) -> Result<RuleTables, ShieldError> {
        tables(&self.cache, rules, counters, now)
    }

    /// A program that waits, or is about to, with these tables; none: there is none, or it has no room for them.
    pub(super) fn fill(&mut self, tables: &RuleTables) -> Result<Option<Shield>, ShieldError> {
        self.waited = self.waits();
        // Its load began earlier than one that would begin now.
        while self.spares.is_empty()
            && let Some(loaded) = self.loader.as_mut().filter(|loader| loader.comes()).map(Loader::wait)
        {
            self.keep(loaded?)?;
        }
        // One that has no room for these may have it for the next.
        let filled = match self.spares.pop_if(|spare| spare.fits(tables).unwrap_or(true)) {
            Some(spare) => spare.fill(tables)?,
            None => None,
        };
        self.filled = filled.is_some();
        Ok(filled)
    }

    /// Returns how the tables that came last got their program, as the end of a sentence about the time that it took.
    pub(super) fn why_slow(&self) -> &'static str {
        match (self.filled, self.waited) {
            (true, _) => ", though a preloaded program was ready",
            (false, true) => ": they did not fit the preloaded programs, so a new one was loaded",
            (false, false) => ": no preloaded program was ready yet",
        }
    }

    /// The program that makes connections of SYN cookies, if it was loaded.
    pub(super) fn ack(&mut self) -> Option<AckProgram> {
        self.ack.take()
    }

    /// Begins anew: what waits, or is being loaded, is of no use any more.
    pub(super) fn begin(&mut self, base: Base) -> Result<(), ShieldError> {
        (self.spares, self.ack, self.loader) = (Vec::new(), None, None);
        if !base.template.is_empty() {
            self.loader = Some(Loader::start(base, Arc::clone(&self.cache))?);
            self.order(None);
        }
        Ok(())
    }

    /// Has as many programs loaded as are missing, and then the one that is to replace a filled one. One that was ordered before is not
    /// wanted any more.
    pub(super) fn order(&mut self, exact: Option<Box<Exact>>) {
        if let Some(loader) = &mut self.loader {
            loader.order(SPARES_MAX.saturating_sub(self.spares.len()), exact);
        }
    }

    /// Takes what was loaded meanwhile: the program that is to replace the filled one.
    pub(super) fn ready(&mut self) -> Result<Option<Shield>, ShieldError> {
        let mut exact = None;
        while let Some(loaded) = self.loader.as_mut().and_then(Loader::loaded) {
            exact = self.keep(loaded?)?.or(exact);
        }
        Ok(exact)
    }

    fn keep(&mut self, loaded: Loaded) -> Result<Option<Shield>, ShieldError> {
        match loaded {
            Loaded::Spare(spare) => self.spares.push(*spare?),
            Loaded::Ack(ack) => self.ack = ack,
            Loaded::Exact(_, shield) => return shield.map(Some),
        }
        Ok(None)
    }

    pub(super) fn waits(&self) -> bool {
        !self.spares.is_empty()
    }

    /// Returns whether a program that is to wait is being loaded.
    pub(super) fn is_loading(&self) -> bool {
        self.loader.as_ref().is_some_and(Loader::comes)
    }
}

/// The tables of `rules`, as far as possible from those before.
pub(super) fn tables(
    cache: &Mutex<Cache>,
    rules: &Rules,
    counters: &mut Counters,
    now: Now,
) -> Result<RuleTables, ShieldError> {
    // A cache is only ever replaced as a whole.
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(compile::tables_after(rules, counters, now, &mut cache)?)
}
