//! The event loop of a shield: commands, signals, the clock.

use std::{
    sync::{atomic::Ordering, mpsc::Receiver},
    time::{Duration, Instant},
};

use model::{shield_event::ShieldEvent, units::counted};
use rules::{file::RuleFile, requester::Requester, status::Holding};
use serve::Signals;

use super::{
    command::{Answer, Command, Reloaded},
    control::{Control, Upkeep},
    wake::Wake,
};
use crate::error::ShieldError;

/// Signals are looked at this often.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);
/// The clock, addresses and what the plane stands on are looked at this often, and whenever nftables tells of a change.
const FOLLOW_PERIOD: Duration = Duration::from_secs(1);

/// A command and where its answer goes.
pub type Request = serve::control::Request<Command, Answer>;

/// A message that nobody has asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A sentence.
    Text(String),
    /// An attack, or what is done about it.
    Event(ShieldEvent),
}

/// The end of a shield's control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The shield was taken away.
    Stopped,
    /// It stays in front of the interface.
    Left,
}

impl<P: Upkeep> Control<P> {
    /// Runs until it is told to end. `tell` hears what happens without having been asked for. With `leave` a signal to end leaves the shield
    /// where it is.
    ///
    /// # Errors
    /// The shield ends by itself, as when its interface goes away; or parts of it stay.
    pub fn run(
        mut self,
        requests: &Receiver<Request>,
        signals: &Signals,
        leave: bool,
        mut emit: impl FnMut(Message),
    ) -> Result<Ended, ShieldError> {
        let (mut followed_at, mut looked_at) = (Instant::now(), Instant::now());
        // Between two interfaces nothing is asked about this machine.
        let (mut wake, unheard) = Wake::new(requests, self.settings.between.is_none());
        self.notes.extend(unheard);
        loop {
            if signals.stop.load(Ordering::Relaxed) {
                return self.end(leave);
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                emit_reload(self.reload_timed(&Requester::default()), &mut emit);
            }
            self.notes.extend(self.plane.put_back());
            if let Some(why) = self.plane.has_ended(&self.name()) {
                // That it has ended is the news.
                let _ = self.stop();
                return Err(why);
            }
            let every = self.look_every();
            if every.is_some_and(|every| looked_at.elapsed() >= every) {
                looked_at = Instant::now();
                match self.look() {
                    Ok(seen) => {
                        seen.events.into_iter().for_each(|event| emit(Message::Event(event)));
                        seen.failures.iter().for_each(|failure| emit(Message::Text(failure.to_string())));
                    }
                    Err(error) => emit(Message::Text(format!("cannot load the rules against an attack: {error}"))),
                }
            }
            match self.carry() {
                Ok(said) => self.notes.extend(said),
                Err(error) => self.notes.push(error.to_string()),
            }
            if followed_at.elapsed() >= FOLLOW_PERIOD || wake.is_changed() {
                followed_at = Instant::now();
                let followed = P::follow(&mut self);
                wake.looked(followed_at, !followed.is_empty());
                self.notes.extend(followed);
                self.follow_machine();
            }
            self.take_notes().into_iter().for_each(|said| emit(Message::Text(said)));
            let wait =
                every.map_or(SIGNAL_PERIOD, |every| every.saturating_sub(looked_at.elapsed()).min(SIGNAL_PERIOD));
            let (request, unheard) = wake.next(wait);
            self.notes.extend(unheard);
            if wake.is_changed() {
                P::suspect(&mut self);
            }
            let Some((command, to)) = request else { continue };
            let answer = match command {
                Command::Status => Answer::status(self.status()),
                Command::Reload(asked) => emit_reload(self.reload_timed(&asked), &mut emit),
                Command::Leave if !P::STAYS => {
                    Answer::new(false, "packet rings end with their process: nothing can be left")
                }
                Command::Stop | Command::Leave => {
                    let ended = self.end(command == Command::Leave);
                    let said = ended.as_ref().map_or_else(ToString::to_string, |_| "ended".to_owned());
                    // Who asked may have gone.
                    let _ = to.send(Answer::new(ended.is_ok(), said));
                    return ended;
                }
            };
            // Who asked may have gone.
            let _ = to.send(answer);
        }
    }

    fn end(self, leave: bool) -> Result<Ended, ShieldError> {
        if leave && P::STAYS {
            self.leave();
            return Ok(Ended::Left);
        }
        self.stop().map(|()| Ended::Stopped)
    }

    fn follow_machine(&mut self) {
        match self.follow_addresses() {
            Ok(false) => {}
            Ok(true) => self.notes.push("the management allow-list now has this machine's new addresses".to_owned()),
            Err(error) => {
                self.notes.push(format!("the management allow-list lacks this machine's new addresses: {error}"));
            }
        }
        match self.follow_clock() {
            Ok(false) => {}
            Ok(true) => self.notes.push("the clock was set; rules that expire follow it".to_owned()),
            Err(error) => {
                self.notes.push(format!("the clock was set, and rules that expire do not follow it: {error}"));
            }
        }
    }

    fn reload_timed(&mut self, asked: &Requester) -> Answer {
        let begun = Instant::now();
        match self.reload(asked) {
            Ok(warnings) => reloaded(self.holding(), self.file(), begun.elapsed(), warnings),
            Err(error) => Answer::new(false, format!("Reload refused; the old rules stay active: {error}")),
        }
    }
}

/// Tells of a reload whoever listens to the process too.
fn emit_reload(answer: Answer, emit: &mut impl FnMut(Message)) -> Answer {
    answer.warnings.iter().chain([&answer.said]).for_each(|said| emit(Message::Text(said.clone())));
    answer
}

/// Of a reload that was done.
fn reloaded(holding: Holding, file: &RuleFile, took: Duration, warnings: Vec<String>) -> Answer {
    let prefixes: usize = file.rules.sets.values().map(|set| set.prefixes.len()).sum();
    let sets = match prefixes {
        0 => String::new(),
        _ => format!(", {}", counted(prefixes as u64, "set prefix", "set prefixes")),
    };
    let said = format!("Reloaded: {holding}{sets} active ({:.0} ms).", took.as_secs_f64() * 1e3);
    let Holding { rules, built_in, expired, attack: _ } = holding;
    let reloaded = Reloaded { rules, built_in, expired, prefixes, seconds: took.as_secs_f64() };
    Answer { warnings, reloaded: Some(reloaded), ..Answer::new(true, said) }
}
