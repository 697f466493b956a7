//! Verbs as processes in a namespace of the lab.

use std::{
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use lab::NamespaceHandle;
use serde_json::Value;

use crate::{
    Place,
    process::{Ran, Running},
    trial::words,
};

const POLL_PERIOD: Duration = Duration::from_millis(50);

fn command(place: &Place<'_>, arguments: &[&str]) -> Command {
    let mut command = Command::new(place.evenkeel);
    command.args(arguments);
    command
}

/// Runs a verb that ends by itself, in `space` or on this machine. Returns its JSON.
pub(super) fn ask(place: &Place<'_>, space: Option<&NamespaceHandle>, arguments: &[&str]) -> Result<Value, String> {
    let mut command = command(place, arguments);
    let mut run = || crate::process::run(&mut command, place.verb_timeout);
    let ran = match space {
        Some(space) => space.run(run).map_err(words)?,
        None => run(),
    };
    answer(place, &ran.map_err(words)?)
}

fn answer(place: &Place<'_>, ran: &Ran) -> Result<Value, String> {
    let document = serde_json::from_str(&ran.stdout).ok().filter(|document: &Value| document["schema"].is_string());
    match (ran.code, document) {
        // Exit code 1 with a document is a finding or a verdict.
        (Some(0 | 1), Some(document)) => Ok(document),
        _ => Err(failure(place, ran)),
    }
}

/// The reason for a verb's failure. Verbs with exit codes 1 and 3 print it themselves.
fn failure(place: &Place<'_>, ran: &Ran) -> String {
    match ran.code {
        Some(1 | 3) => ran.last_words(),
        Some(code) => format!("exit code {code}: {}", ran.last_words()),
        None => format!("no answer within {:.0} s", place.verb_timeout.as_secs_f64()),
    }
}

/// A verb that runs until a signal. Dropping the value kills it.
pub(super) struct Service<'a> {
    place: &'a Place<'a>,
    space: &'a NamespaceHandle,
    running: Running,
}

impl<'a> Service<'a> {
    pub(super) fn start(place: &'a Place<'a>, space: &'a NamespaceHandle, arguments: &[&str]) -> Result<Self, String> {
        let mut command = command(place, arguments);
        // The BPF file system is below /sys.
        let running = space.run_keeping_sys(|| Running::start(&mut command)).map_err(words)?.map_err(words)?;
        Ok(Self { place, space, running })
    }

    /// Starts a verb and waits until it prints `up`.
    pub(super) fn start_until(
        place: &'a Place<'a>,
        space: &'a NamespaceHandle,
        arguments: &[&str],
        up: &str,
    ) -> Result<Self, String> {
        let mut service = Self::start(place, space, arguments)?;
        match service.running.has_printed(up, place.verb_timeout) {
            true => Ok(service),
            false => Err(service.last_words()),
        }
    }

    /// Kills the verb. Returns the reason for its failure.
    fn last_words(self) -> String {
        let place = self.place;
        failure(place, &self.running.end(Duration::ZERO))
    }

    /// Runs another verb in the same namespace. Returns its JSON.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<Value, String> {
        let mut command = command(self.place, arguments);
        let run = || crate::process::run(&mut command, self.place.verb_timeout);
        answer(self.place, &self.space.run_keeping_sys(run).map_err(words)?.map_err(words)?)
    }

    /// Calls `look` until it returns a value.
    ///
    /// # Errors
    /// The verb has ended, or the time is over.
    pub(super) fn poll<T>(
        mut self,
        mut look: impl FnMut(&Self) -> Result<Option<T>, String>,
    ) -> Result<(Self, T), String> {
        let began = Instant::now();
        loop {
            let why = match look(&self) {
                Ok(Some(found)) => return Ok((self, found)),
                Ok(None) => String::new(),
                Err(why) => why,
            };
            if !self.running.is_running() {
                return Err(self.last_words());
            }
            if began.elapsed() > self.place.verb_timeout || self.place.time_is_over() {
                return Err(if why.is_empty() { "it does not answer in time".to_owned() } else { why });
            }
            sleep(POLL_PERIOD);
        }
    }

    /// Ends the verb by SIGTERM, as a service manager does.
    ///
    /// # Errors
    /// The verb does not end in time, or has another exit code than 0.
    pub(super) fn end(self) -> Result<(), String> {
        self.running.tell_to_end();
        self.finish().map_err(|why| format!("at its end: {why}"))
    }

    /// Waits for a verb that ends by itself.
    pub(super) fn finish(self) -> Result<(), String> {
        let place = self.place;
        let ran = self.running.end(place.verb_timeout);
        if ran.code == Some(0) { Ok(()) } else { Err(failure(place, &ran)) }
    }
}
