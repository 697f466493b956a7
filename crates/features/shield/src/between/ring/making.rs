//! Rules of the ring gateway: made, read again, added to by detection.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use bpf::shield::WatchConfig;
use jiff::Timestamp;
use rules::{
    Rule,
    compile::{self, COUNTERS_MAX, Cache, Counters, Now},
    file::RuleFile,
};

use super::{
    RingGateway,
    counts::{Counts, Sums},
    engine::{Engine, Memory},
};
use crate::{
    detect,
    error::ShieldError,
    run::{
        Answer, Asked,
        follow::was_set,
        keeper::{refused, reloaded},
        watch::{Counting, Plan},
    },
};

/// What an engine is made of.
pub(super) struct Making<'a> {
    pub(super) file: &'a RuleFile,
    /// Rules that detection adds.
    pub(super) extra: &'a [Rule],
    pub(super) watch: Option<WatchConfig>,
    pub(super) threads: usize,
    /// What holds, and has counted.
    pub(super) holding: Option<(&'a Engine, &'a [Counts])>,
}

impl Making<'_> {
    pub(super) fn engine(
        &self,
        counters: &mut Counters,
        cache: &mut Cache,
        now: Now,
        memory: Arc<Memory>,
    ) -> Result<Engine, ShieldError> {
        let mut rules = self.file.rules.clone();
        // What crosses is for others than this machine.
        rules.rules.splice(0..0, self.file.management.rules(&[], None));
        let rules = detect::insert(&rules, self.extra);
        let names = rules.rules.iter().map(|rule| rule.name.as_str());
        let holding = self.holding.map_or(&[][..], |(engine, _)| &engine.names);
        counters.make_room(names, holding.iter().map(String::as_str), || {
            self.holding.map_or_else(Vec::new, |(_, counts)| Sums::new(counts).rules(COUNTERS_MAX))
        });
        let tables = compile::tables_after(&rules, counters, now, cache)?;
        let writers = |watch: &WatchConfig| (0..self.threads).map(|n| watch.writer(n)).collect();
        let watch = self.watch.as_ref().map(writers).transpose()?;
        Ok(Engine::new(&rules, tables, watch.unwrap_or_default(), memory))
    }
}

impl RingGateway {
    pub(super) fn reload(&mut self, asked: &Asked) -> Answer {
        let begun = Instant::now();
        let done = self.settings.source.read_again().and_then(|file| {
            let warnings = asked.judge(&file)?;
            self.hold(file).map(|()| warnings)
        });
        match done {
            Ok(warnings) => {
                self.reloads += 1;
                self.refused = None;
                let lost = self.watchman.as_mut().and_then(|watchman| watchman.sentry.follow_log());
                self.notes.extend(lost.map(|error| error.to_string()));
                reloaded(self.rules(), &self.file, begun.elapsed(), warnings)
            }
            Err(error) => {
                self.refused = Some(error.to_string());
                refused(&error)
            }
        }
    }

    /// Puts the rules of `file`, and those against attacks, in the place of those that hold.
    fn hold(&mut self, file: RuleFile) -> Result<(), ShieldError> {
        let threads = self.counts.len();
        let (interface, places) = (&self.settings.interface, &self.settings.places);
        let (now, counting) = (self.watchman.as_ref(), Counting::Threads(threads));
        let plan = Plan::of(now, interface, &file, places, counting, &mut self.notes)?;
        let mut extra = plan.extra(now).unwrap_or_else(|| self.extra.clone());
        self.notes.extend(detect::fit(&mut extra, &file.rules));
        let before = self.engine();
        let mut elsewhere = plan.is_elsewhere().then(|| Cache::expecting(&file.rules.protected));
        let cache = elsewhere.as_mut().unwrap_or(&mut self.cache);
        let holding = Some((&*before, &**self.counts));
        let made = Making { file: &file, extra: &extra, watch: plan.config(now), threads, holding };
        let (read_at, mut counters) = (Now::read(), self.counters.clone());
        let engine = made.engine(&mut counters, cache, read_at, Arc::clone(&self.memory))?;
        *self.engine.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(engine);
        let untold = plan.carry_out(&mut self.watchman);
        self.notes.extend(untold.iter().map(ToString::to_string));
        if let Some(cache) = elsewhere {
            self.cache = cache;
        }
        (self.file, self.extra, self.counters) = (file, extra, counters);
        (self.read_at, self.loaded) = (read_at, Timestamp::now());
        Ok(())
    }

    /// Rules that expire by the wall clock are compiled again when that was set.
    pub(super) fn follow_clock(&mut self) {
        if !was_set(self.read_at, Now::read()) {
            return;
        }
        if let Err(error) = self.hold(self.file.clone()) {
            // Tried again when the rules are.
            self.read_at = Now::read();
            self.notes.push(format!("the clock was set, and rules that expire could not be compiled again: {error}"));
        }
    }

    /// How often [`RingGateway::look`] is to be called; none: nothing is watched.
    pub(super) fn look_every(&self) -> Option<Duration> {
        self.watchman.as_ref().map(|watchman| Duration::from_millis(watchman.sentry.detector().config().every_ms))
    }

    /// Looks for attacks, and makes hold what is to be done about them. What happened has been told to the log and the hook.
    ///
    /// # Errors
    /// The rules against an attack cannot be had; those that hold go on.
    pub(super) fn look(&mut self) -> Result<detect::Seen, ShieldError> {
        let Some(watchman) = &mut self.watchman else { return Ok(detect::Seen::default()) };
        let counts = Sums::new(&self.counts).shield_counts(self.counters.end());
        let mut seen = watchman.sentry.look(&counts, &self.counters);
        watchman.note(&seen);
        if let Err(error) = watchman.keep(&self.settings.places) {
            self.notes.push(format!("what was learned cannot be kept for a later process: {error}"));
        }
        if let Some(rules) = seen.rules.take() {
            let before = std::mem::replace(&mut self.extra, rules);
            if let Err(error) = self.hold(self.file.clone()) {
                self.extra = before;
                if let Some(watchman) = &mut self.watchman {
                    watchman.sentry.not_held();
                }
                return Err(error);
            }
        }
        Ok(seen)
    }
}
