//! The process that runs a router: what others may ask it, and its loop.

use std::{
    collections::VecDeque,
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use model::{
    CpuSet,
    route::{RouteEvent, RouteMode, RouteStatus},
};
use rules::{requester::Requester, status};
use serde::{Deserialize, Serialize};
use serve::{
    ServeError, Signals,
    control::{self, Request},
};

use crate::{
    RouteError, Router,
    home::{self, Held},
    rules::Reloaded,
    seen::{Message, Seen},
    stay,
};

/// How long a question may wait, and the end.
const TURN: Duration = Duration::from_millis(50);
/// A router that was asked to end may take so long to.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What the process is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// How it is.
    Status,
    /// Another mode.
    Mode(RouteMode),
    /// Other CPUs that forward; none: the cores that receive.
    Cpus(CpuSet),
    /// To read its rules again.
    Reload(Requester),
    /// To end.
    Stop,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// How it is.
    Status(Box<RouteStatus>),
    /// Done.
    Done,
    /// The rules of the file hold.
    Reloaded(Reloaded),
    /// Not done, and why.
    Refused(String),
}

/// Asks the router of this network namespace.
///
/// # Errors
/// [`RouteError::None`] if there is none, [`RouteError::Starts`] if it starts; it does not answer.
pub fn ask(command: &Command) -> Result<Answer, RouteError> {
    let home = home::here();
    control::ask(&home.socket(), command)?.ok_or_else(|| home::starting(&home).unwrap_or(RouteError::None))
}

/// Ends the router of this network namespace; it is gone when this comes back, with its rules, those also that were left. One that does not
/// answer is killed: its id.
///
/// # Errors
/// As [`ask`], unless rules were left; it cannot be ended; its rules cannot be taken off.
pub fn stop() -> Result<(Answer, Option<u32>), RouteError> {
    let mut killed = None;
    let asked = Instant::now();
    let mut waits = END_TIMEOUT;
    let answer = match ask(&Command::Stop) {
        Err(RouteError::None) if !stay::left().is_empty() => {
            // Nobody is there who ends; its socket may be.
            waits = Duration::ZERO;
            Answer::Done
        }
        Err(RouteError::Serve(silent @ ServeError::Silent { .. })) => {
            killed = Some(control::end_silent(silent)?);
            // It is gone when its lock is free; its files go with that.
            drop(home::hold(&home::here())?);
            Answer::Done
        }
        answer => answer?,
    };
    while home::here().socket().exists() && asked.elapsed() < waits {
        thread::sleep(TURN);
    }
    stay::take_off()?;
    Ok((answer, killed))
}

/// Runs the router until a signal or somebody asks it to end; tells of what happens.
///
/// # Errors
/// What the kernel refuses. The kernel forwards then.
pub fn run(
    router: &mut Router,
    held: &Held,
    requests: &Receiver<Request<Command, Answer>>,
    signals: &Signals,
    seen: &mut Seen,
    mut emit: impl FnMut(Message),
) -> Result<(), RouteError> {
    let stop = &signals.stop;
    let start = RouteEvent::Mode { mode: router.mode(), why: "the start".to_owned() };
    seen.note(start).into_iter().for_each(&mut emit);
    let mut told = CpuSet::new();
    let mut reloads = Reloads::default();
    while !stop.load(Ordering::Relaxed) {
        if told != *router.cpus() {
            held.tell(router)?;
            told = router.cpus().clone();
        }
        if signals.reload.swap(false, Ordering::Relaxed) {
            // A signal comes from no session.
            reloads.waiting.push_back((Requester::default(), None));
        }
        for event in router.turn(TURN)? {
            seen.note(event).into_iter().for_each(&mut emit);
        }
        for (command, to) in requests.try_iter() {
            let answer = match command {
                Command::Status => Answer::Status(Box::new(seen.status(router)?)),
                Command::Mode(mode) => match router.set_mode(mode) {
                    Ok(()) => {
                        let asked = RouteEvent::Mode { mode: router.mode(), why: "asked for".to_owned() };
                        seen.note(asked).into_iter().for_each(&mut emit);
                        Answer::Done
                    }
                    Err(error) => Answer::Refused(error.to_string()),
                },
                Command::Cpus(cpus) => match router.set_cpus(&cpus).and_then(|()| held.tell(router)) {
                    Ok(()) => Answer::Done,
                    Err(error) => Answer::Refused(error.to_string()),
                },
                Command::Reload(asked) => {
                    reloads.waiting.push_back((asked, Some(to)));
                    continue;
                }
                Command::Stop => {
                    stop.store(true, Ordering::Relaxed);
                    Answer::Done
                }
            };
            // Whoever asked may have gone.
            let _ = to.send(answer);
        }
        for answer in reloads.turn(router) {
            seen.note(RouteEvent::Rules { what: said(&answer) }).into_iter().for_each(&mut emit);
        }
        seen.publish(router)?.into_iter().for_each(&mut emit);
    }
    Ok(())
}

/// Reloads, one after the other, while the loop goes on.
#[derive(Default)]
struct Reloads {
    /// Who asked, and where the answer goes; none: a signal.
    waiting: VecDeque<(Requester, Option<Sender<Answer>>)>,
    /// Of the one that has begun.
    begun: Option<Option<Sender<Answer>>>,
}

impl Reloads {
    /// Begins the next one if it can; the answers to those that ended.
    fn turn(&mut self, router: &mut Router) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut end = |to: Option<Sender<Answer>>, result| {
            let answer = answer(result);
            // Whoever asked may have gone.
            let _ = to.map(|to| to.send(answer.clone()));
            answers.push(answer);
        };
        if let Some(result) = router.take_reloaded() {
            end(self.begun.take().flatten(), result);
        }
        if self.begun.is_none()
            && !router.makes_rules()
            && let Some((asked, to)) = self.waiting.pop_front()
        {
            match router.begin_reload(&asked) {
                Ok(()) => self.begun = Some(to),
                Err(error) => end(to, Err(error)),
            }
        }
        answers
    }
}

impl Drop for Reloads {
    fn drop(&mut self) {
        let waiting = self.waiting.drain(..).map(|(_, to)| to);
        for to in waiting.chain(self.begun.take()).flatten() {
            let _ = to.send(Answer::Refused("Reload refused: the router ends".to_owned()));
        }
    }
}

fn answer(result: Result<Reloaded, RouteError>) -> Answer {
    match result {
        Ok(reloaded) => Answer::Reloaded(reloaded),
        Err(error @ RouteError::NoRules) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Refused(format!("Reload refused; the old rules stay active: {error}")),
    }
}

/// What came of a reload, in words.
pub fn said(answer: &Answer) -> String {
    match answer {
        Answer::Reloaded(Reloaded { rules, built_in, expired, seconds, warnings: _ }) => {
            let holding = status::Holding { rules: *rules, built_in: *built_in, expired: *expired, attack: 0 };
            format!("Reloaded: {holding} active ({:.0} ms).", seconds * 1e3)
        }
        Answer::Refused(why) => why.clone(),
        Answer::Done | Answer::Status(_) => String::new(),
    }
}
