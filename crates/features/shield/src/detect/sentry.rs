//! All of detection for one shield: counters in, events told, rules out.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bpf::filter::{ShieldCounts, Watch, WatchConfig};
use model::shield_event::ShieldEvent;
use rules::detect::{DetectConfig, HookConfig};
use rules::tables::RuleCount;
use rules::{Action, Prefix, Rule, compile::Counters};
use serve::{EventLog, Hook, MetricsFile, MetricsServer, ServeError};

use super::{Detector, Heavy, Learned, Reader};
use crate::{events::event, metrics};

/// Rules that could not be made to hold are given again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// Metrics are written this often.
const METRICS_EVERY_S: f64 = 1.0;

/// Watches, judges and tells. Whoever has it calls [`Sentry::look`] every [`DetectConfig::every_ms`] and makes the rules hold that it gives.
#[derive(Debug)]
pub struct Sentry {
    interface: String,
    reader: Reader,
    detector: Detector,
    heavy: Heavy,
    log: Option<EventLog>,
    hook: Option<Hook>,
    file: Option<MetricsFile>,
    server: Option<MetricsServer>,
    /// Counts of the mitigations' rules at the last look.
    before: HashMap<String, RuleCount>,
    revision: u64,
    /// When rules were given that could not be made to hold.
    not_held: Option<Instant>,
    started: Instant,
    metrics_at: Option<Instant>,
}

fn start_hook(config: &HookConfig) -> Result<Hook, ServeError> {
    Hook::start(&config.run, config.timeout())
}

/// What one look brought.
#[derive(Debug, Default)]
pub struct Seen {
    /// What happened; it has been told already.
    pub events: Vec<ShieldEvent>,
    /// All mitigations' rules, if they are others than before: they are to hold in place of those.
    pub rules: Option<Vec<Rule>>,
    /// What could not be told.
    pub troubles: Vec<ServeError>,
}

/// What is to be watched, and told where, from a moment to come: all that can fail has been done.
#[derive(Debug)]
pub struct Change {
    config: DetectConfig,
    protected: Vec<Prefix>,
    watch: Option<Watch>,
    // None: the one that is there goes on.
    log: Option<Option<EventLog>>,
    hook: Option<Option<Hook>>,
    file: Option<Option<MetricsFile>>,
    server: Option<Option<MetricsServer>>,
}

impl Change {
    /// What [`bpf::filter::Shield::load`] is to be told; none: what it was told before.
    pub fn watch(&self) -> Option<&WatchConfig> {
        self.watch.as_ref().map(Watch::config)
    }

    /// What will be watched.
    pub fn protected(&self) -> &[Prefix] {
        &self.protected
    }
}

impl Sentry {
    /// Begins to watch `protected` on `interface` through `watch`, which was made or opened for as many prefixes.
    ///
    /// # Errors
    /// The file of events, the hook's thread or the port of the metrics cannot be had.
    pub fn start(
        interface: &str,
        config: DetectConfig,
        protected: &[Prefix],
        watch: Watch,
    ) -> Result<Self, ServeError> {
        let log = config.events.as_deref().map(EventLog::open).transpose()?;
        let hook = config.hook.as_ref().map(start_hook).transpose()?;
        let file = config.metrics.file.as_deref().map(MetricsFile::start).transpose()?;
        let server = config.metrics.port.map(MetricsServer::start).transpose()?;
        Ok(Self {
            interface: interface.to_owned(),
            reader: Reader::new(watch),
            detector: Detector::new(config, protected),
            heavy: Heavy::default(),
            log,
            hook,
            file,
            server,
            before: HashMap::new(),
            revision: 0,
            not_held: None,
            started: Instant::now(),
            metrics_at: None,
        })
    }

    /// What [`bpf::filter::Shield::load`] is to be told.
    pub fn watch(&self) -> &WatchConfig {
        self.reader.watch().config()
    }

    /// Opens what `config` needs and this one has not. `watch` is for `protected`; none: the same prefixes stay.
    ///
    /// # Errors
    /// As for [`Sentry::start`]; nothing has changed.
    pub fn prepare(
        &self,
        config: DetectConfig,
        protected: &[Prefix],
        watch: Option<Watch>,
    ) -> Result<Change, ServeError> {
        let before = self.detector.config();
        let log = (config.events != before.events).then(|| config.events.as_deref().map(EventLog::open).transpose());
        let hook = (config.hook != before.hook).then(|| config.hook.as_ref().map(start_hook).transpose());
        let port = config.metrics.port;
        let server = (port != before.metrics.port).then(|| port.map(MetricsServer::start).transpose());
        let file = (config.metrics.file != before.metrics.file)
            .then(|| config.metrics.file.as_deref().map(MetricsFile::start).transpose());
        let (log, hook) = (log.transpose()?, hook.transpose()?);
        let (file, server) = (file.transpose()?, server.transpose()?);
        Ok(Change { config, protected: protected.to_vec(), watch, log, hook, file, server })
    }

    /// From now on it is as `change` says. What was learned about prefixes that stay, and attacks on them, go on.
    pub fn change(&mut self, change: Change) -> Vec<ServeError> {
        let troubles = self.end_attacks(&change.protected);
        if let Some(watch) = change.watch {
            self.reader = Reader::new(watch);
        }
        if let Some(log) = change.log {
            self.log = log;
        }
        if let Some(hook) = change.hook
            && let Some(before) = std::mem::replace(&mut self.hook, hook)
        {
            before.let_end();
        }
        if let Some(server) = change.server {
            self.server = server;
        }
        if let Some(file) = change.file {
            self.end_metrics();
            self.file = file;
        }
        self.detector.reconfigure(change.config, &change.protected);
        // The caller has their rules: Detector::rules_for.
        self.revision = self.detector.revision();
        troubles
    }

    /// Nothing more is told: a hook whose program still runs is not waited for.
    pub fn let_end(mut self) {
        if let Some(hook) = self.hook.take() {
            hook.let_end();
        }
    }

    /// Goes on in the file of events that is at its path now, after a reload.
    pub fn follow_log(&mut self) -> Option<ServeError> {
        self.log.as_mut().and_then(|log| log.follow().err())
    }

    /// Takes what was learned earlier about prefixes of which nothing is known yet.
    pub fn recall(&mut self, learned: &Learned) {
        self.detector.recall(learned);
    }

    /// The first look is at what comes from now on.
    pub fn begin_now(&mut self) {
        self.reader.look();
    }

    /// The interface has another name from now on.
    pub fn rename(&mut self, interface: &str) {
        interface.clone_into(&mut self.interface);
    }

    /// Looks at what came since the last look. `counts` are the shield's, by the slots of `counters`.
    pub fn look(&mut self, counts: &ShieldCounts, counters: &Counters) -> Seen {
        let mut window = self.reader.look();
        self.heavy.look(&window);
        let mut before = std::mem::take(&mut self.before);
        for rule in self.detector.rules() {
            let Some(count) = counters.count(&rule.name, &counts.rules) else { continue };
            // A rule of that name may have counted in an earlier attack.
            let last = before.remove(&rule.name).unwrap_or(count);
            let of =
                |count: &RuleCount| if matches!(rule.action, Action::Limit(_)) { count.limited } else { count.packets };
            window.applied.push((rule.name.clone(), of(&count).saturating_sub(of(&last))));
            self.before.insert(rule.name, count);
        }
        let mut seen = Seen {
            events: self.detector.step(&window, self.started.elapsed(), jiff::Timestamp::now()),
            ..Seen::default()
        };
        if self.detector.revision() != self.revision || self.not_held.is_some_and(|at| at.elapsed() >= AGAIN) {
            (self.revision, self.not_held) = (self.detector.revision(), None);
            seen.rules = Some(self.detector.rules());
        }
        seen.troubles.extend(self.tell(&seen.events));
        seen.troubles.extend(self.hook.iter().flat_map(Hook::failures));
        self.tell_metrics(counts, counters);
        seen.troubles.extend(self.file.iter().flat_map(MetricsFile::failures));
        seen
    }

    fn tell(&mut self, events: &[ShieldEvent]) -> Vec<ServeError> {
        let mut troubles = Vec::new();
        for event in events.iter().map(event) {
            troubles.extend(self.log.as_mut().and_then(|log| log.write(&event).err()));
            troubles.extend(self.hook.as_ref().and_then(|hook| hook.emit(&event).err()));
        }
        troubles
    }

    /// Tells the log and the hook that attacks on prefixes beyond `protected` are over: nothing is done about them any more.
    pub fn end_attacks(&mut self, protected: &[Prefix]) -> Vec<ServeError> {
        let events = self.detector.end_attacks(protected, self.started.elapsed(), jiff::Timestamp::now());
        self.tell(&events)
    }

    /// The rules of the last look could not be made to hold: they are given again.
    pub fn not_held(&mut self) {
        self.not_held = Some(Instant::now());
    }

    fn tell_metrics(&mut self, counts: &ShieldCounts, counters: &Counters) {
        let due = self.metrics_at.is_none_or(|at| at.elapsed().as_secs_f64() >= METRICS_EVERY_S);
        if !due || (self.file.is_none() && self.server.is_none()) {
            return;
        }
        self.metrics_at = Some(Instant::now());
        let rules: Vec<(String, RuleCount)> =
            counters.iter(&counts.rules).map(|(name, count)| (name.to_owned(), count)).collect();
        let now = metrics::metrics(&self.interface, &counts.totals, &rules, Some(&self.detector));
        if let Some(file) = &self.file {
            file.set(now.clone());
        }
        if let Some(server) = &self.server {
            server.set(now);
        }
    }

    /// Takes the file of metrics away: what it has is over, and nobody who reads it could tell.
    pub fn end_metrics(&mut self) {
        if let Some(file) = self.file.take() {
            file.remove();
        }
    }

    /// Who judges.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// Who sends most just now.
    pub fn heavy(&self) -> &Heavy {
        &self.heavy
    }

    /// Seconds since the attack of this number began.
    pub fn since_s(&self, attack: u64) -> Option<f64> {
        let found = self.detector.states().filter_map(|state| state.attack).find(|found| found.number == attack)?;
        Some(self.started.elapsed().saturating_sub(found.began).as_secs_f64())
    }

    /// Where metrics are answered.
    pub fn metrics(&self) -> Option<&MetricsServer> {
        self.server.as_ref()
    }
}
