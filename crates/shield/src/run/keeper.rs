//! The loop that tends a shield: commands, signals, the clock.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use model::shield_event::ShieldEvent;

use super::{
    asked::{Answer, Asked, Command},
    guard::Guard,
    status,
};
use crate::error::ShieldError;

/// How often signals are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often the clock and the interface are looked at.
const CARE: Duration = Duration::from_secs(1);

/// A command and where its answer goes.
pub type Request = (Command, Sender<Answer>);

/// Flags that signals set.
#[derive(Debug, Default)]
pub struct Signals {
    /// Read the rules again (SIGHUP).
    pub reload: AtomicBool,
    /// End (SIGTERM, SIGINT).
    pub stop: AtomicBool,
}

/// What happens without having been asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// In words.
    Said(String),
    /// An attack, or what is done about it.
    Event(ShieldEvent),
}

/// How tending ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The shield was taken away.
    Stopped,
    /// It stays in front of the interface.
    Left,
}

/// Tends the shield until it is told to end. `tell` hears what happens without having been asked for. With `leave` a signal to end
/// leaves the shield where it is.
///
/// # Errors
/// The interface goes away, or parts of the shield stay.
pub fn keep(
    mut guard: Guard,
    requests: &Receiver<Request>,
    signals: &Signals,
    leave: bool,
    mut tell: impl FnMut(Told),
) -> Result<Ended, ShieldError> {
    let (mut cared, mut looked) = (Instant::now(), Instant::now());
    loop {
        if signals.stop.load(Ordering::Relaxed) {
            return end(guard, leave);
        }
        if signals.reload.swap(false, Ordering::Relaxed) {
            tell_reload(reload(&mut guard, &Asked::default()), &mut tell);
        }
        let every = guard.look_every();
        if every.is_some_and(|every| looked.elapsed() >= every) {
            looked = Instant::now();
            match guard.look() {
                Ok(seen) => {
                    seen.events.into_iter().for_each(|event| tell(Told::Event(event)));
                    seen.troubles.iter().for_each(|trouble| tell(Told::Said(trouble.to_string())));
                }
                Err(error) => tell(Told::Said(format!("the rules against an attack cannot be had: {error}"))),
            }
        }
        guard.take_notes().into_iter().for_each(|said| tell(Told::Said(said)));
        match guard.carry() {
            Ok(None) => {}
            Ok(Some(said)) => tell(Told::Said(said)),
            Err(error) => tell(Told::Said(error.to_string())),
        }
        if cared.elapsed() >= CARE {
            cared = Instant::now();
            if !guard.is_alive() {
                let gone = format!("{} is gone, and the shield with it", guard.name());
                // That the interface is gone is the news.
                let _ = guard.stop();
                return Err(ShieldError::Lacking(gone));
            }
            guard.follow_names().into_iter().for_each(|said| tell(Told::Said(said)));
            if let Err(error) = guard.follow_connections() {
                tell(Told::Said(error.to_string()));
            }
            match guard.follow_host() {
                Ok(None) => {}
                Ok(Some(said)) => tell(Told::Said(said)),
                Err(error) => tell(Told::Said(format!(
                    "SYNs are answered as before {} changed, for the program could not be made anew: {error}",
                    guard.name()
                ))),
            }
            match guard.follow_addresses() {
                Ok(false) => {}
                Ok(true) => {
                    tell(Told::Said("the management allow-list has this machine's present addresses".to_owned()));
                }
                Err(error) => {
                    tell(Told::Said(format!(
                        "the management allow-list has not this machine's present addresses: {error}"
                    )));
                }
            }
            match guard.follow_clock() {
                Ok(false) => {}
                Ok(true) => tell(Told::Said("the clock was set: rules that expire were compiled again".to_owned())),
                Err(error) => tell(Told::Said(format!(
                    "the clock was set, and rules that expire could not be compiled again: {error}"
                ))),
            }
        }
        let (command, to) =
            match requests.recv_timeout(every.map_or(TICK, |every| every.saturating_sub(looked.elapsed()).min(TICK))) {
                Ok(request) => request,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(TICK);
                    continue;
                }
            };
        let told = |answer: Answer| {
            // Who asked may have gone.
            let _ = to.send(answer);
        };
        match command {
            Command::Status => {
                told(Answer::status(status::of_guard(&guard)));
            }
            Command::Reload(asked) => told(tell_reload(reload(&mut guard, &asked), &mut tell)),
            Command::Stop | Command::Leave => {
                let ended = end(guard, command == Command::Leave);
                let said = ended.as_ref().map_or_else(ToString::to_string, |_| "ended".to_owned());
                told(Answer::new(ended.is_ok(), said));
                return ended;
            }
        }
    }
}

fn end(guard: Guard, leave: bool) -> Result<Ended, ShieldError> {
    if leave {
        guard.leave();
        return Ok(Ended::Left);
    }
    guard.stop().map(|()| Ended::Stopped)
}

/// Tells of a reload whoever listens to the process too.
pub(crate) fn tell_reload(answer: Answer, tell: &mut impl FnMut(Told)) -> Answer {
    answer.warnings.iter().chain([&answer.said]).for_each(|said| tell(Told::Said(said.clone())));
    answer
}

/// Of a reload that was refused.
pub(crate) fn refused(error: &ShieldError) -> Answer {
    Answer::new(false, format!("the rules that hold go on, the new ones are wrong: {error}"))
}

fn reload(guard: &mut Guard, asked: &Asked) -> Answer {
    let begun = Instant::now();
    match guard.reload(asked) {
        Ok(warnings) => {
            let sets = &guard.file().rules.sets;
            let (rules, more) = status::holding_of(&guard.memory().rules);
            let prefixes: usize = sets.values().map(|set| set.prefixes.len()).sum();
            let said = format!(
                "{rules} rules and {prefixes} prefixes of sets hold since {:.0} ms after they were asked for{more}",
                begun.elapsed().as_secs_f64() * 1e3
            );
            Answer { warnings, ..Answer::new(true, said) }
        }
        Err(error) => refused(&error),
    }
}
