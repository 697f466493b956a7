//! Outputs of detection: the file of events, the hook, metrics in a file and over HTTP.

use std::time::{Duration, Instant};

use model::shield_event::ShieldEvent;
use rules::detect::DetectConfig;
use serve::{EventLog, Hook, MetricsFile, MetricsServer, ServeError, metrics::Metrics};

use crate::events::event;

/// Metrics are written this often.
const METRICS_PERIOD: Duration = Duration::from_secs(1);

/// Outputs that are open.
#[derive(Debug, Default)]
pub(super) struct DetectionOutputs {
    log: Option<EventLog>,
    hook: Option<Hook>,
    file: Option<MetricsFile>,
    server: Option<MetricsServer>,
    metrics_at: Option<Instant>,
}

/// Outputs that take the place of others. None: the one that is there goes on.
#[derive(Debug)]
pub(super) struct OutputsChange {
    log: Option<Option<EventLog>>,
    hook: Option<Option<Hook>>,
    file: Option<Option<MetricsFile>>,
    server: Option<Option<MetricsServer>>,
}

/// Opens an output whose configuration is another one than before.
fn opened<C: PartialEq, T>(
    now: Option<&C>,
    before: Option<&C>,
    open: impl FnOnce(&C) -> Result<T, ServeError>,
) -> Result<Option<Option<T>>, ServeError> {
    (now != before).then(|| now.map(open).transpose()).transpose()
}

impl OutputsChange {
    /// Opens what `config` asks for and `before` did not.
    pub(super) fn open(config: &DetectConfig, before: &DetectConfig) -> Result<Self, ServeError> {
        let (metrics, metrics_before) = (&config.metrics, &before.metrics);
        Ok(Self {
            log: opened(config.events.as_ref(), before.events.as_ref(), |path| EventLog::open(path))?,
            hook: opened(config.hook.as_ref(), before.hook.as_ref(), |hook| Hook::start(&hook.run, hook.timeout()))?,
            file: opened(metrics.file.as_ref(), metrics_before.file.as_ref(), |path| MetricsFile::start(path))?,
            server: opened(metrics.port.as_ref(), metrics_before.port.as_ref(), |port| MetricsServer::start(*port))?,
        })
    }
}

impl DetectionOutputs {
    /// The outputs of `config`.
    pub(super) fn start(config: &DetectConfig) -> Result<Self, ServeError> {
        let mut outputs = Self::default();
        outputs.change(OutputsChange::open(config, &DetectConfig::default())?);
        Ok(outputs)
    }

    pub(super) fn change(&mut self, change: OutputsChange) {
        if let Some(log) = change.log {
            self.log = log;
        }
        if let Some(hook) = change.hook {
            self.let_hook_end();
            self.hook = hook;
        }
        if let Some(file) = change.file {
            self.end_metrics();
            self.file = file;
        }
        if let Some(server) = change.server {
            self.server = server;
        }
    }

    /// Ends the hook without waiting for its program, which may hang.
    pub(super) fn let_hook_end(&mut self) {
        if let Some(hook) = self.hook.take() {
            hook.let_end();
        }
    }

    /// Takes the file of metrics away: what it has is over, and nobody who reads it could tell.
    pub(super) fn end_metrics(&mut self) {
        if let Some(file) = self.file.take() {
            file.remove();
        }
    }

    /// Goes on in the file of events that is at its path now, after a reload.
    pub(super) fn follow_log(&mut self) -> Option<ServeError> {
        self.log.as_mut().and_then(|log| log.follow().err())
    }

    /// Gives events to the log and the hook. Returns the failures.
    pub(super) fn emit(&mut self, events: &[ShieldEvent]) -> Vec<ServeError> {
        let mut failures = Vec::new();
        for event in events.iter().map(event) {
            failures.extend(self.log.as_mut().and_then(|log| log.write(&event).err()));
            failures.extend(self.hook.as_ref().and_then(|hook| hook.emit(&event).err()));
        }
        failures
    }

    /// Failures of the threads since this was last asked.
    pub(super) fn failures(&self) -> impl Iterator<Item = ServeError> + '_ {
        let hook = self.hook.iter().flat_map(Hook::failures);
        hook.chain(self.file.iter().flat_map(MetricsFile::failures))
    }

    /// Gives metrics where they are wanted, if they are due.
    pub(super) fn publish(&mut self, metrics: impl FnOnce() -> Metrics) {
        let due = self.metrics_at.is_none_or(|at| at.elapsed() >= METRICS_PERIOD);
        if !due || (self.file.is_none() && self.server.is_none()) {
            return;
        }
        self.metrics_at = Some(Instant::now());
        let metrics = metrics();
        if let Some(file) = &self.file {
            file.set(metrics.clone());
        }
        if let Some(server) = &self.server {
            server.set(metrics);
        }
    }
}
