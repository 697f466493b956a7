//! What `route run` shows: a live view on a terminal, else lines or JSON.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use model::{
    Classified, ErrorClass,
    route::{RouteEvent, RouteMode, RouteRates, RouteStatus},
    schema::Document,
};
use route::{
    RouteError,
    control::{Answer, Command},
    seen::{self, Message},
};
use serve::{
    Signals,
    control::{ANSWER_TIMEOUT, Request},
};
use tui::{
    live::{LiveError, live},
    route::{Act, View},
};

use crate::{
    failure::Failure,
    output::{Output, Who},
    terminal::is_interactive,
};

const WHO: Who = Who { name: "the router", stop: "evenkeel route stop" };
/// How often it is looked whether the end has come.
const TURN: Duration = Duration::from_millis(50);

/// How the router is shown.
pub(super) struct Show {
    pub(super) interval: Duration,
    pub(super) json: bool,
    pub(super) quiet: bool,
    /// The mode that was asked for at the start.
    pub(super) wanted: RouteMode,
}

/// How it ended.
pub(super) struct Ended {
    pub(super) ran: Result<(), RouteError>,
    pub(super) shown: Result<(), Failure>,
}

/// Where the router is asked.
type Asks = mpsc::Sender<Request<Command, Answer>>;

impl Show {
    /// Shows the router while `run` runs it, which tells what happens.
    pub(super) fn while_it_runs(
        &self,
        to: &Asks,
        signals: &Signals,
        run: impl FnOnce(&mut dyn FnMut(Message)) -> Result<(), RouteError>,
    ) -> Result<Ended, Failure> {
        let interactive = is_interactive() && !self.json && !self.quiet;
        let output = Output::start(WHO, self.json)?;
        let over = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            let shown = scope.spawn(|| {
                let _stop = Set(&signals.stop);
                match interactive {
                    true => self.view(to, &over),
                    false => {
                        self.lines(to, &output, &over);
                        Ok(())
                    }
                }
            });
            let ran = {
                let _over = Set(&over);
                // On the screen of the view there is no place for lines.
                run(&mut |message| match message {
                    _ if interactive => {}
                    Message::Text(text) => output.message(&text),
                    Message::Event(moment) if self.json => output.event(seen::line(&moment)),
                    Message::Event(moment) => event(&output, &moment.what),
                })
            };
            let broken = || Err(Failure::internal(anyhow!("the thread that shows the router broke off")));
            Ended { ran, shown: shown.join().unwrap_or_else(|_| broken()) }
        });
        Ok(ended)
    }

    /// The view, until `over` or a key.
    fn view(&self, to: &Asks, over: &AtomicBool) -> Result<(), Failure> {
        let mut samples = Samples { to, last: None };
        let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let act = |act| {
            let mode = match act {
                Act::Standard => RouteMode::Standard,
                Act::Back => self.wanted,
            };
            // What comes of it is seen.
            let _ = to.send((Command::Mode(mode), mpsc::channel().0));
        };
        match live(View::new(self.interval, colour, act), || samples.next().ok_or(Gone), over, None) {
            Err(LiveError::Sample(Gone)) => Ok(()),
            other => Ok(other?),
        }
    }

    /// JSON lines, text, or nothing, until `over`.
    fn lines(&self, to: &Asks, output: &Output, over: &AtomicBool) {
        let mut samples = Samples { to, last: None };
        if !self.quiet {
            samples.next();
        }
        let mut next = Instant::now() + self.interval;
        while !over.load(Ordering::Relaxed) {
            thread::sleep(TURN.min(self.interval));
            if Instant::now() < next {
                continue;
            }
            next += self.interval;
            if self.quiet || output.is_unheard() {
                continue;
            }
            let Some(status) = samples.next() else { continue };
            output.show(match self.json {
                // Numbers and texts: there is nothing in it that JSON has not.
                true => serde_json::to_string(&Document::new("route.status", 1, &status)).unwrap_or_default() + "\n",
                false => format!("{}  {}\n", clock(), report::route_line(&status)),
            });
        }
    }
}

/// The time of day, as `shield run` prints it.
fn clock() -> String {
    jiff::Timestamp::now().strftime("%H:%M:%S UTC").to_string()
}

/// An event in words, with the frames that differ if it is a comparison.
fn event(output: &Output, what: &RouteEvent) {
    output.message(&format!("{}  {what:#}", clock()));
    if let RouteEvent::Compared(result) = what {
        result.examples.iter().for_each(|example| output.message(&format!("  {example}")));
    }
}

/// Sets a flag when it goes, however that comes about.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Samples of the router that this process runs.
struct Samples<'a> {
    to: &'a Asks,
    last: Option<(Instant, RouteStatus)>,
}

impl Samples<'_> {
    /// None: the router is gone.
    fn next(&mut self) -> Option<RouteStatus> {
        let (to, answers) = mpsc::channel();
        self.to.send((Command::Status, to)).ok()?;
        let Answer::Status(status) = answers.recv_timeout(ANSWER_TIMEOUT).ok()? else { return None };
        let (mut status, now) = (*status, Instant::now());
        if let Some((at, before)) = &self.last {
            status.rates = Some(RouteRates::between(before, &status, (now - *at).as_secs_f64()));
        }
        self.last = Some((now, status.clone()));
        Some(status)
    }
}

/// The router ended while it was asked.
#[derive(Debug, thiserror::Error)]
#[error("the router has ended")]
struct Gone;

impl Classified for Gone {
    fn class(&self) -> ErrorClass {
        ErrorClass::Lacking
    }
}
