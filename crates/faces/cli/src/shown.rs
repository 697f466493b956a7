//! A service that runs and is shown: by a live view on a terminal, else by lines or JSON.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use serde::Serialize;
use serve::{Client, Server, Service, Stop};
use tui::live::{LiveError, Screen, live};

use crate::{
    failure::{Failure, json_line, note},
    output::{Output, Who},
    terminal::is_interactive,
};

/// Time between two checks for the end.
const END_PERIOD: Duration = Duration::from_millis(50);

/// A server that catches signals.
pub(crate) fn server() -> Result<Server, Failure> {
    Server::start().context("cannot catch signals").map_err(Failure::internal)
}

/// Tells that systemd could not be told that a service is up.
pub(crate) fn run(server: &mut Server) {
    server.run(note);
}

/// Names of a service in messages.
pub(crate) struct Show {
    pub(crate) who: Who,
    pub(crate) output: Arc<Output>,
    pub(crate) interval: Duration,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// True if a view is shown, on a terminal.
    pub(crate) interactive: bool,
}

impl Show {
    pub(crate) fn start(who: Who, interval: Duration, json: bool, quiet: bool) -> Result<Self, Failure> {
        let interactive = is_interactive() && !json && !quiet;
        Ok(Self { output: Arc::new(Output::start(&who, json)?), who, interval, json, quiet, interactive })
    }

    /// Runs the server while another thread `shows` its service until the flag is set. Whichever ends first ends the other.
    pub(crate) fn run(
        &self,
        server: &mut Server,
        shows: impl FnOnce(&AtomicBool) -> Result<(), Failure> + Send,
    ) -> Result<(), Failure> {
        let (over, stop) = (AtomicBool::new(false), server.stop());
        thread::scope(|scope| {
            let shown = scope.spawn(|| {
                let _stop = Stops(&stop);
                shows(&over)
            });
            {
                let _over = Set(&over);
                run(server);
            }
            let broken = || Err(Failure::internal(anyhow!("the thread that shows {} panicked", self.who.name)));
            shown.join().unwrap_or_else(|_| broken())
        })
    }

    /// JSON lines of that schema, text, or nothing, until `over`.
    pub(crate) fn lines<S: Service<Status: Clone + Serialize>>(
        &self,
        mut samples: Samples<'_, S>,
        over: &AtomicBool,
        schema: &str,
        line: impl Fn(&S::Status) -> String,
    ) {
        if !self.quiet {
            samples.next();
        }
        let mut next = Instant::now() + self.interval;
        while !over.load(Ordering::Relaxed) {
            thread::sleep(END_PERIOD.min(self.interval));
            if Instant::now() < next {
                continue;
            }
            next += self.interval;
            if self.quiet || self.output.is_unheard() {
                continue;
            }
            let Some(status) = samples.next() else { continue };
            self.output.show(match self.json {
                // Numbers and texts: there is nothing in it that JSON has not.
                true => json_line(schema, &status).unwrap_or_default(),
                false => line(&status) + "\n",
            });
        }
    }
}

/// A live view, until `over`, a key, or the end of the service.
pub(crate) fn view<S: Service<Status: Clone>>(
    screen: impl Screen<Sample = S::Status>,
    mut samples: Samples<'_, S>,
    over: &AtomicBool,
) -> Result<(), Failure> {
    match live(screen, || samples.next().ok_or(Gone), over, None) {
        Err(LiveError::Sample(Gone)) => Ok(()),
        other => Ok(other?),
    }
}

/// True if a view has colours.
pub(crate) fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Samples of a service that this process runs, with the rates between them.
pub(crate) struct Samples<'a, S: Service> {
    client: &'a Client<S>,
    last: Option<(Instant, S::Status)>,
    /// Puts the rates since the earlier state into the later one.
    rate: fn(&mut S::Status, &S::Status, f64),
}

impl<'a, S: Service<Status: Clone>> Samples<'a, S> {
    pub(crate) fn of(client: &'a Client<S>, rate: fn(&mut S::Status, &S::Status, f64)) -> Self {
        Self { client, last: None, rate }
    }

    /// None: the service is gone.
    fn next(&mut self) -> Option<S::Status> {
        let mut status = self.client.status()?;
        let now = Instant::now();
        if let Some((at, before)) = &self.last {
            (self.rate)(&mut status, before, (now - *at).as_secs_f64());
        }
        self.last = Some((now, status.clone()));
        Some(status)
    }
}

/// Sets a flag when it goes, however that comes about.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the services when it goes, however that comes about.
struct Stops<'a>(&'a Stop);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The service ended while it was asked.
#[derive(Debug, thiserror::Error)]
#[error("it has ended")]
struct Gone;

model::classified!(Gone: Lacking);
