//! The loop that tends a shield: commands, signals, the clock.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use model::shield_event::ShieldEvent;
use rules::file::RuleFile;

use super::{
    asked::{Answer, Asked, Command, Reloaded},
    guard::Guard,
    status::{self, Holding},
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
                Err(error) => tell(Told::Said(format!("cannot load the rules against an attack: {error}"))),
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
                let gone = format!("{} was removed, and the shield with it", guard.name());
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
                    "SYNs are still answered as before {} changed; the new program failed: {error}",
                    guard.name()
                ))),
            }
            match guard.follow_challenge() {
                Ok(None) => {}
                Ok(Some(said)) => tell(Told::Said(said)),
                Err(error) => tell(Told::Said(format!(
                    "challenged SYNs are still answered as before netfilter or forwarding changed; the new program failed: {error}"
                ))),
            }
            match guard.follow_addresses() {
                Ok(false) => {}
                Ok(true) => {
                    tell(Told::Said("the management allow-list now has this machine's new addresses".to_owned()));
                }
                Err(error) => {
                    tell(Told::Said(format!("the management allow-list lacks this machine's new addresses: {error}")));
                }
            }
            match guard.follow_clock() {
                Ok(false) => {}
                Ok(true) => tell(Told::Said("the clock was set; rules that expire follow it".to_owned())),
                Err(error) => {
                    tell(Told::Said(format!("the clock was set, and rules that expire do not follow it: {error}")));
                }
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
    Answer::new(false, format!("Reload refused; the old rules stay active: {error}"))
}

/// Of a reload that was done.
pub(crate) fn reloaded(holding: Holding, file: &RuleFile, took: Duration, warnings: Vec<String>) -> Answer {
    let prefixes: usize = file.rules.sets.values().map(|set| set.prefixes.len()).sum();
    let sets = match prefixes {
        0 => String::new(),
        _ => format!(", {}", status::number(prefixes, "set prefix", "set prefixes")),
    };
    let said = format!("Reloaded: {holding}{sets} active ({:.0} ms).", took.as_secs_f64() * 1e3);
    let Holding { rules, built_in, expired } = holding;
    let reloaded = Reloaded { rules, built_in, expired, prefixes, seconds: took.as_secs_f64() };
    Answer { warnings, reloaded: Some(reloaded), ..Answer::new(true, said) }
}

fn reload(guard: &mut Guard, asked: &Asked) -> Answer {
    let begun = Instant::now();
    match guard.reload(asked) {
        Ok(warnings) => {
            let rules = status::holding_of(&guard.memory().rules);
            reloaded(rules, guard.file(), begun.elapsed(), warnings)
        }
        Err(error) => refused(&error),
    }
}
