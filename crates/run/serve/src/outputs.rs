//! Outputs of a long-running process: a file of events, a hook, metrics in a file and over HTTP.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    error::ServeError,
    event::{Event, EventLog},
    hook::{self, Hook},
    metrics::{Metrics, MetricsFile, MetricsServer},
};

/// Metrics are written this often.
const METRICS_PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputSettings {
    /// Events are appended here.
    pub events: Option<PathBuf>,
    /// A program and its arguments, run for each event, and the longest that it may run.
    pub hook: Option<(Vec<String>, Duration)>,
    /// Metrics are written here, once a second.
    pub metrics_file: Option<PathBuf>,
    /// Metrics are given over HTTP on this port of 127.0.0.1.
    pub metrics_port: Option<u16>,
}

#[derive(Debug, Default)]
pub struct Outputs {
    log: Option<EventLog>,
    hook: Option<Hook>,
    file: Option<MetricsFile>,
    server: Option<MetricsServer>,
    metrics_at: Option<Instant>,
}

/// Outputs that take the place of others. None: the one that is there goes on.
#[derive(Debug)]
pub struct OutputsChange {
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
    /// Opens what `settings` ask for and `before` did not.
    ///
    /// # Errors
    /// An output cannot be opened; nothing has changed then.
    pub fn open(settings: &OutputSettings, before: &OutputSettings) -> Result<Self, ServeError> {
        let (file, file_before) = (settings.metrics_file.as_ref(), before.metrics_file.as_ref());
        let (port, port_before) = (settings.metrics_port.as_ref(), before.metrics_port.as_ref());
        Ok(Self {
            log: opened(settings.events.as_ref(), before.events.as_ref(), |path| EventLog::open(path))?,
            hook: opened(settings.hook.as_ref(), before.hook.as_ref(), |(run, timeout)| Hook::start(run, *timeout))?,
            file: opened(file, file_before, |path| MetricsFile::start(path))?,
            server: opened(port, port_before, |port| MetricsServer::start(*port))?,
        })
    }
}

impl Outputs {
    pub fn start(settings: &OutputSettings) -> Result<Self, ServeError> {
        let mut outputs = Self::default();
        outputs.change(OutputsChange::open(settings, &OutputSettings::default())?);
        Ok(outputs)
    }

    /// Goes on with these.
    pub fn change(&mut self, change: OutputsChange) {
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
    pub fn let_hook_end(&mut self) {
        if let Some(hook) = self.hook.take() {
            hook.let_end();
        }
    }

    /// Ends the hook. Its program is killed if it does not end soon, so that it does not outlive the process.
    pub fn end_hook(&mut self) {
        self.let_hook_end();
        hook::end_all();
    }

    /// Takes the file of metrics away: what it has is over, and nobody who reads it could tell.
    pub fn end_metrics(&mut self) {
        if let Some(file) = self.file.take() {
            file.remove();
        }
    }

    /// Goes on in the file of events that is at its path now, after a reload.
    pub fn follow_log(&mut self) -> Option<ServeError> {
        self.log.as_mut().and_then(|log| log.follow().err())
    }

    /// Gives events to the log and the hook. Returns the failures.
    pub fn emit(&mut self, events: impl IntoIterator<Item = Event>) -> Vec<ServeError> {
        let mut failures = Vec::new();
        for event in events {
            failures.extend(self.log.as_mut().and_then(|log| log.write(&event).err()));
            failures.extend(self.hook.as_ref().and_then(|hook| hook.emit(&event).err()));
        }
        failures
    }

    /// Failures of the threads since this was last asked.
    pub fn failures(&self) -> impl Iterator<Item = ServeError> + '_ {
        let hook = self.hook.iter().flat_map(Hook::failures);
        hook.chain(self.file.iter().flat_map(MetricsFile::failures))
    }

    /// Gives metrics where they are wanted, if they are due.
    pub fn publish(&mut self, metrics: impl FnOnce() -> Metrics) {
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
