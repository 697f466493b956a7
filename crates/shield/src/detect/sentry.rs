//! All of detection for one shield: counters in, events told, rules out.

use std::{collections::HashMap, time::Instant};

use bpf::shield::{RuleCount, ShieldCounts, Watch, WatchConfig};
use model::shield_event::ShieldEvent;

use super::{Detector, Reader, config::DetectConfig};
use crate::{
    compile::Counters,
    events::{EventError, EventLog, Hook, metrics, metrics::MetricsServer},
    rules::{Action, Prefix, Rule},
};

/// Metrics are written this often.
const METRICS_EVERY_S: f64 = 1.0;

/// Watches, judges and tells. Whoever has it calls [`Sentry::look`] every [`DetectConfig::every_ms`] and makes the rules hold that it gives.
#[derive(Debug)]
pub struct Sentry {
    interface: String,
    reader: Reader,
    detector: Detector,
    log: Option<EventLog>,
    hook: Option<Hook>,
    server: Option<MetricsServer>,
    /// Counts of the mitigations' rules at the last look.
    before: HashMap<String, RuleCount>,
    revision: u64,
    started: Instant,
    metrics_at: Option<Instant>,
}

/// What one look brought.
#[derive(Debug, Default)]
pub struct Seen {
    /// What happened; it has been told already.
    pub events: Vec<ShieldEvent>,
    /// All mitigations' rules, if they are others than before: they are to hold in place of those.
    pub rules: Option<Vec<Rule>>,
    /// What could not be told.
    pub troubles: Vec<EventError>,
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
    ) -> Result<Self, EventError> {
        let log = config.events.as_deref().map(EventLog::open).transpose()?;
        let hook = config.hook.as_ref().map(Hook::start).transpose()?;
        let server = config.metrics.port.map(MetricsServer::start).transpose()?;
        Ok(Self {
            interface: interface.to_owned(),
            reader: Reader::new(watch),
            detector: Detector::new(config, protected),
            log,
            hook,
            server,
            before: HashMap::new(),
            revision: 0,
            started: Instant::now(),
            metrics_at: None,
        })
    }

    /// What [`bpf::shield::Shield::load`] is to be told.
    pub fn watch(&self) -> &WatchConfig {
        self.reader.watch().config()
    }

    /// Looks at what came since the last look. `counts` are the shield's, by the slots of `counters`.
    pub fn look(&mut self, counts: &ShieldCounts, counters: &Counters) -> Seen {
        let mut window = self.reader.look();
        let mut before = std::mem::take(&mut self.before);
        for rule in self.detector.rules() {
            let slot = counters.get(&rule.name).map(usize::from);
            let Some(count) = slot.and_then(|slot| counts.rules.get(slot)).copied() else { continue };
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
        if self.detector.revision() != self.revision {
            self.revision = self.detector.revision();
            seen.rules = Some(self.detector.rules());
        }
        for event in &seen.events {
            seen.troubles.extend(self.log.as_mut().and_then(|log| log.write(event).err()));
            seen.troubles.extend(self.hook.as_ref().and_then(|hook| hook.tell(event).err()));
        }
        seen.troubles.extend(self.hook.iter().flat_map(Hook::failures));
        seen.troubles.extend(self.tell_metrics(counts, counters));
        seen
    }

    fn tell_metrics(&mut self, counts: &ShieldCounts, counters: &Counters) -> Option<EventError> {
        let config = &self.detector.config().metrics;
        let due = self.metrics_at.is_none_or(|at| at.elapsed().as_secs_f64() >= METRICS_EVERY_S);
        if !due || (config.file.is_none() && self.server.is_none()) {
            return None;
        }
        self.metrics_at = Some(Instant::now());
        let rules: Vec<(String, RuleCount)> = counters
            .iter()
            .filter_map(|(name, slot)| Some((name.to_owned(), *counts.rules.get(usize::from(slot))?)))
            .collect();
        let text = metrics::text(&self.interface, &counts.totals, &rules, Some(&self.detector));
        let failed = config.file.as_deref().and_then(|path| metrics::write_file(path, &text).err());
        if let Some(server) = &self.server {
            server.set(text);
        }
        failed
    }

    /// Who judges.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// Where metrics are answered.
    pub fn metrics(&self) -> Option<&MetricsServer> {
        self.server.as_ref()
    }
}
