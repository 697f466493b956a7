//! A router as a service: opened, polled, asked, closed.

use std::{
    collections::VecDeque,
    fmt,
    ops::ControlFlow,
    path::PathBuf,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use model::{
    CpuSet,
    route::{RouteEvent, RouteMode, RouteStatus},
};
use rules::requester::Requester;
use serve::{OutputSettings, Service, Wait};

use crate::{
    RouteError, RouteSettings, Router,
    control::{Answer, Command, said},
    home::Held,
    rules::{Reloaded, RouteRules},
    seen::{Message, Seen},
};

/// Reloads, trials and outputs are looked at this often; changes of the kernel's configuration and commands at once.
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// The router of a network namespace, with all that others see of it.
pub struct RouteService {
    router: Router,
    held: Held,
    seen: Seen,
    /// The CPUs that others were told of.
    told: CpuSet,
    reloads: Reloads,
    emit: Box<dyn FnMut(Message)>,
}

impl fmt::Debug for RouteService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteService").field("router", &self.router).field("held", &self.held).finish_non_exhaustive()
    }
}

impl RouteService {
    /// Puts the fast path on the ports, behind `rules`, and begins the mode of `settings`. `say` hears of the start, `emit` what happens later.
    ///
    /// # Errors
    /// As [`Router::start_with`] and [`Router::set_mode`]; an output cannot be opened.
    pub fn open(
        held: Held,
        settings: RouteSettings,
        rules: Option<RouteRules>,
        outputs: &OutputSettings,
        mut say: impl FnMut(String),
        emit: impl FnMut(Message) + 'static,
    ) -> Result<Self, RouteError> {
        let seen = Seen::open(outputs)?;
        let (mode, ports) = (settings.mode, settings.ports.join(", "));
        held.starts("reads the routes and loads a program for each port")?;
        let (mut router, told) = Router::start_with(RouteSettings { mode: RouteMode::Standard, ..settings }, rules)?;
        told.into_iter().for_each(&mut say);
        if mode == RouteMode::Stateful {
            held.starts(
                "loads the programs of mode stateful, which the kernel checks for seconds each on a busy machine",
            )?;
        }
        router.set_mode(mode)?;
        if !router.untraced().is_empty() {
            say("note: changes of routes and neighbours take effect some milliseconds late: this kernel does not let some functions be traced \
                 (`route status --json` lists them)"
                .to_owned());
        }
        for it in router.notes() {
            say(format!("{} ({}): {}", it.what, it.code, it.remedy));
        }
        say(format!("{ports}: mode {} ({} XDP)", router.mode().name(), router.xdp_mode()));
        if let Some(rules) = router.rules() {
            let end = if rules.is_pinned() { "stay until `evenkeel route stop`" } else { "go with this process" };
            say(format!("{} active in each mode; they {end}", rules.holding()));
        }
        let (told, reloads, emit) = (CpuSet::new(), Reloads::default(), Box::new(emit));
        Ok(Self { router, held, seen, told, reloads, emit })
    }

    fn note(&mut self, event: RouteEvent) {
        self.seen.note(event).into_iter().for_each(&mut self.emit);
    }

    fn set_mode(&mut self, mode: RouteMode) -> Result<(), RouteError> {
        self.router.set_mode(mode)?;
        self.note(RouteEvent::Mode { mode: self.router.mode(), reason: "asked for".to_owned() });
        Ok(())
    }
}

impl Service for RouteService {
    type Command = Command;
    type Answer = Answer;
    type Status = RouteStatus;
    type Ended = ();
    type Error = RouteError;

    fn name(&self) -> String {
        "the router".to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.held.home().socket()
    }

    fn on_listen(&mut self) {
        self.held.started();
        self.note(RouteEvent::Mode { mode: self.router.mode(), reason: "the start".to_owned() });
    }

    fn poll(&mut self) -> Result<(), RouteError> {
        for answer in self.reloads.turn(&mut self.router) {
            self.note(RouteEvent::Rules { what: said(&answer) });
        }
        self.seen.publish(&self.router)?.into_iter().for_each(&mut self.emit);
        if self.told != *self.router.cpus() {
            self.held.tell(&self.router)?;
            self.told = self.router.cpus().clone();
        }
        for event in self.router.poll()? {
            self.note(event);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<Wait<'_>, RouteError> {
        Ok(Wait { until: Instant::now() + POLL_PERIOD, readable: self.router.sockets().collect() })
    }

    fn reload(&mut self) {
        // A signal comes from no session.
        self.reloads.waiting.push_back((Requester::default(), None));
    }

    fn command(&mut self, command: Command, to: Sender<Answer>) -> Result<ControlFlow<()>, RouteError> {
        let done = |result: Result<(), RouteError>| {
            result.map_or_else(|error| Answer::Refused(error.to_string()), |()| Answer::Done)
        };
        let mut flow = ControlFlow::Continue(());
        let answer = match command {
            Command::Status => Answer::Status(Box::new(self.status()?)),
            Command::Mode(mode) => done(self.set_mode(mode)),
            Command::Cpus(cpus) => done(self.router.set_cpus(&cpus).and_then(|()| self.held.tell(&self.router))),
            Command::Reload(asked) => {
                self.reloads.waiting.push_back((asked, Some(to)));
                return Ok(flow);
            }
            Command::Stop => {
                flow = ControlFlow::Break(());
                Answer::Done
            }
        };
        // Whoever asked may have gone.
        let _ = to.send(answer);
        Ok(flow)
    }

    fn status(&mut self) -> Result<RouteStatus, RouteError> {
        self.seen.status(&self.router)
    }

    fn close(self) -> Result<(), RouteError> {
        let Self { router, held, seen, reloads, .. } = self;
        drop(reloads);
        drop(router);
        seen.end();
        drop(held);
        Ok(())
    }
}

/// Reloads, one after the other, while the loop goes on.
#[derive(Default)]
struct Reloads {
    /// Requesters, and where each answer goes; none: a signal.
    waiting: VecDeque<(Requester, Option<Sender<Answer>>)>,
    /// The reload in progress, and where its answer goes.
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
