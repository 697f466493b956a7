//! What is done before it is needed: a program is loaded that only waits for the rules against an attack.
//!
//! Rules become acting in milliseconds by filling that one; the verifier, which takes most of a second for a new program, then
//! has its time beside: the program that was made for these rules alone replaces the filled one when it is ready.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use bpf::filter::{Shield, ShieldConfig, ShieldShared, SpareProgram};
use rules::tables::RuleTables;
use rules::{
    Prefix, Rule, Rules,
    compile::{self, Cache, Counters, Now},
};

use crate::{detect, error::ShieldError};

/// One for each series of rules that protect the same prefixes.
#[derive(Debug)]
pub(super) struct Preload {
    cache: Arc<Mutex<Cache>>,
    spare: Option<SpareProgram>,
    thread: Option<JoinHandle<Result<Loaded, ShieldError>>>,
}

/// Programs to load in the background.
pub(super) struct Job {
    /// The rules that hold without mitigations.
    pub(super) rules: Rules,
    /// Rules that stand for mitigations to come; none: nothing is to be kept ready.
    pub(super) template: Vec<Rule>,
    /// The tables that a filled program has.
    pub(super) exact: Option<RuleTables>,
    pub(super) config: ShieldConfig,
    /// Of the program that waits.
    pub(super) spare: ShieldConfig,
    pub(super) shared: Arc<ShieldShared>,
}

#[derive(Debug)]
struct Loaded {
    exact: Option<Shield>,
    spare: Option<SpareProgram>,
}

impl Preload {
    pub(super) fn new(protected: &[Prefix]) -> Self {
        Self { cache: Arc::new(Mutex::new(Cache::expecting(protected))), spare: None, thread: None }
    }

    /// The tables of these rules, as far as possible from those before.
    pub(super) fn tables(&self, rules: &Rules, counters: &mut Counters, now: Now) -> Result<RuleTables, ShieldError> {
        tables(&self.cache, rules, counters, now)
    }

    /// The program that waits, with these tables; none: none waits, or it has no room for them.
    pub(super) fn fill(&mut self, tables: &RuleTables) -> Result<Option<Shield>, ShieldError> {
        match self.spare.take() {
            Some(spare) => Ok(spare.fill(tables)?),
            None => Ok(None),
        }
    }

    /// Loads beside. What an earlier job is at, or has loaded, is no longer wanted.
    pub(super) fn begin(&mut self, job: Job) -> Result<(), ShieldError> {
        (self.spare, self.thread) = (None, None);
        if job.template.is_empty() && job.exact.is_none() {
            return Ok(());
        }
        let cache = Arc::clone(&self.cache);
        let thread = std::thread::Builder::new().name("ek-ahead".into()).spawn(move || job.load(&cache));
        self.thread = Some(thread.map_err(ShieldError::Thread)?);
        Ok(())
    }

    /// If a job is done: the program that is to replace the filled one.
    pub(super) fn ready(&mut self) -> Result<Option<Shield>, ShieldError> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else { return Ok(None) };
        let gone = |_| ShieldError::Lacking("the thread that loads programs beforehand has ended early".into());
        let loaded = thread.join().map_err(gone)??;
        self.spare = loaded.spare;
        Ok(loaded.exact)
    }

    /// Returns whether a program waits.
    pub(super) fn waits(&self) -> bool {
        self.spare.is_some()
    }
}

impl Job {
    fn load(self, cache: &Mutex<Cache>) -> Result<Loaded, ShieldError> {
        let exact = self.exact.map(|tables| Shield::load(&tables, &self.config, &self.shared)).transpose()?;
        let mut spare = None;
        if !self.template.is_empty() {
            let rules = detect::insert(&self.rules, &self.template);
            // Which counters its rules have is said when it is filled.
            let tables = tables(cache, &rules, &mut Counters::new(), Now::read())?;
            spare = Some(SpareProgram::load(&tables, &self.spare, &self.shared)?);
        }
        Ok(Loaded { exact, spare })
    }
}

fn tables(cache: &Mutex<Cache>, rules: &Rules, counters: &mut Counters, now: Now) -> Result<RuleTables, ShieldError> {
    // A cache is only ever replaced as a whole.
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(compile::tables_after(rules, counters, now, &mut cache)?)
}
