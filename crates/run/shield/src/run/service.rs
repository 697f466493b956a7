//! A shield as a service: opened, polled, commanded, closed.

use std::{
    fmt,
    ops::ControlFlow,
    path::PathBuf,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use model::{shield::ShieldStatus, shield_event::ShieldEvent, units::counted};
use rules::{file::RuleFile, requester::Requester, status::Holding};
use serve::{Service, Wait};

use super::{
    command::{Answer, Command, Reloaded},
    control::{Control, Upkeep},
    wake::Wake,
};
use crate::error::ShieldError;

/// The data plane and the link state are looked at this often, if nothing else is due.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// The clock, addresses and what the plane stands on are looked at this often, and whenever nftables tells of a change.
const FOLLOW_PERIOD: Duration = Duration::from_secs(1);

/// A message that nobody has asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Text(String),
    /// An attack, or what is done about it.
    Event(ShieldEvent),
}

/// The end of a shield's control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The shield was taken away.
    Stopped,
    /// The shield stays on the interface without a process.
    Left,
}

/// A shield under control, and what it waits for.
pub struct ShieldService<P> {
    control: Control<P>,
    wake: Wake,
    followed_at: Instant,
    looked_at: Instant,
    checked_at: Instant,
    /// A command was carried out, whose messages are to be emitted.
    is_due: bool,
    /// True if the shield stays where it is when the process ends.
    leave: bool,
    /// Receiver of the answer to the command that ends the shield.
    end_to: Option<Sender<Answer>>,
    emit: Box<dyn FnMut(Message)>,
}

impl<P: fmt::Debug> fmt::Debug for ShieldService<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShieldService").field("control", &self.control).finish_non_exhaustive()
    }
}

impl<P: Upkeep> ShieldService<P> {
    /// Looks after a shield. With `leave` a signal to end leaves it where it is; `emit` hears what happens without having been asked for.
    pub fn new(mut control: Control<P>, leave: bool, emit: impl FnMut(Message) + 'static) -> Self {
        // Between two interfaces nothing is asked about this machine.
        let (wake, unheard) = Wake::new(control.settings.between.is_none());
        control.notes.extend(unheard);
        let now = Instant::now();
        let emit = Box::new(emit);
        Self {
            control,
            wake,
            followed_at: now,
            looked_at: now,
            checked_at: now,
            is_due: true,
            leave,
            end_to: None,
            emit,
        }
    }

    /// Time of the next work, unless nftables changes.
    fn due_at(&self) -> Instant {
        let check_at = self.checked_at + CHECK_PERIOD;
        self.control.look_every().map_or(check_at, |every| check_at.min(self.looked_at + every))
    }

    fn check(&mut self) -> Result<(), ShieldError> {
        (self.is_due, self.checked_at) = (false, Instant::now());
        let control = &mut self.control;
        let checked = control.plane.check(&control.name());
        control.notes.extend(checked.inspect_err(|_| self.leave = false)?);
        if control.look_every().is_some_and(|every| self.looked_at.elapsed() >= every) {
            self.looked_at = Instant::now();
            match control.look() {
                Ok(seen) => {
                    seen.events.into_iter().for_each(|event| (self.emit)(Message::Event(event)));
                    seen.failures.iter().for_each(|failure| (self.emit)(Message::Text(failure.to_string())));
                }
                Err(error) => (self.emit)(Message::Text(format!("cannot load the rules against an attack: {error}"))),
            }
        }
        match control.carry() {
            Ok(notes) => control.notes.extend(notes),
            Err(error) => control.notes.push(error.to_string()),
        }
        if self.followed_at.elapsed() >= FOLLOW_PERIOD || self.wake.is_changed() {
            self.followed_at = Instant::now();
            let followed = P::follow(control);
            self.wake.looked(self.followed_at, !followed.is_empty());
            control.notes.extend(followed);
            control.follow_machine();
        }
        control.take_notes().into_iter().for_each(|note| (self.emit)(Message::Text(note)));
        Ok(())
    }

    /// Tells of a reload whoever listens to the process too.
    fn reload_and_report(&mut self, requester: &Requester) -> Answer {
        let answer = self.control.reload_timed(requester);
        answer.warnings.iter().chain([&answer.message]).for_each(|text| (self.emit)(Message::Text(text.clone())));
        answer
    }
}

impl<P: Upkeep> Service for ShieldService<P> {
    type Command = Command;
    type Answer = Answer;
    type Status = ShieldStatus;
    type Ended = Ended;
    type Error = ShieldError;

    fn name(&self) -> String {
        "the shield".to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.control.paths().socket()
    }

    fn poll(&mut self) -> Result<(), ShieldError> {
        if self.is_due || self.wake.is_changed() || self.due_at() <= Instant::now() {
            self.check()?;
        }
        let unheard = self.wake.read();
        self.control.notes.extend(unheard);
        // Before the rules are read, which takes time: the next poll, without a wait.
        if self.wake.is_changed() {
            P::suspect(&mut self.control);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<Wait<'_>, ShieldError> {
        let until = self.due_at().min(self.wake.due_at().unwrap_or_else(|| self.due_at()));
        Ok(Wait { until, readable: self.wake.sockets().collect() })
    }

    fn reload(&mut self) {
        self.reload_and_report(&Requester::default());
        self.is_due = true;
    }

    fn command(&mut self, command: Command, to: Sender<Answer>) -> Result<ControlFlow<()>, ShieldError> {
        self.is_due = true;
        let answer = match command {
            Command::Status => Answer::status(self.status()?),
            Command::Reload(requester) => self.reload_and_report(&requester),
            Command::Leave if !P::OUTLIVES_PROCESS => {
                Answer::new(false, "packet rings end with their process: nothing can be left")
            }
            Command::Stop | Command::Leave => {
                (self.leave, self.end_to) = (command == Command::Leave, Some(to));
                return Ok(ControlFlow::Break(()));
            }
        };
        // Who asked may have gone.
        let _ = to.send(answer);
        Ok(ControlFlow::Continue(()))
    }

    fn status(&mut self) -> Result<ShieldStatus, ShieldError> {
        Ok(self.control.status())
    }

    fn close(self) -> Result<Ended, ShieldError> {
        let ended = match self.leave && P::OUTLIVES_PROCESS {
            true => {
                self.control.leave();
                Ok(Ended::Left)
            }
            false => self.control.stop().map(|()| Ended::Stopped),
        };
        if let Some(to) = self.end_to {
            let message = ended.as_ref().map_or_else(ToString::to_string, |_| "ended".to_owned());
            // Who asked may have gone.
            let _ = to.send(Answer::new(ended.is_ok(), message));
        }
        ended
    }
}

impl<P: Upkeep> Control<P> {
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

    fn reload_timed(&mut self, requester: &Requester) -> Answer {
        let begun = Instant::now();
        match self.reload(requester) {
            Ok(warnings) => reloaded(self.holding(), &self.active.file, begun.elapsed(), warnings),
            Err(error) => Answer::new(false, format!("Reload refused; the old rules stay active: {error}")),
        }
    }
}

fn reloaded(holding: Holding, file: &RuleFile, took: Duration, warnings: Vec<String>) -> Answer {
    let prefixes: usize = file.rules.sets.values().map(|set| set.prefixes.len()).sum();
    let sets = match prefixes {
        0 => String::new(),
        _ => format!(", {}", counted(prefixes as u64, "set prefix", "set prefixes")),
    };
    let message = format!("Reloaded: {holding}{sets} active ({:.0} ms).", took.as_secs_f64() * 1e3);
    let Holding { rules, built_in, expired, attack: _ } = holding;
    let reloaded = Reloaded { rules, built_in, expired, prefixes, seconds: took.as_secs_f64() };
    Answer { warnings, reloaded: Some(reloaded), ..Answer::new(true, message) }
}
