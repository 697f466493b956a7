//! A router as a service: opened, polled, commanded, closed.

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
    control::{Answer, Command, reload_message},
    home::RouteHome,
    outputs::{Message, RouteOutputs},
    rules::{Reloaded, RouteRules},
};

/// Period of reloads, trials and outputs; changes of the kernel's configuration and commands are handled at once.
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// The router of a network namespace, with its outputs.
pub struct RouteService {
    router: Router,
    held: RouteHome,
    outputs: RouteOutputs,
    /// The CPUs last published for other processes.
    published_cpus: CpuSet,
    reloads: Reloads,
    emit: Box<dyn FnMut(Message)>,
}

impl fmt::Debug for RouteService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteService").field("router", &self.router).field("held", &self.held).finish_non_exhaustive()
    }
}

impl RouteService {
    /// Puts the fast path on the ports, behind `rules`, and begins the mode of `settings`. `report` gets notes on the start, `emit` later messages.
    ///
    /// # Errors
    /// As [`Router::start_with`] and [`Router::set_mode`]; an output cannot be opened.
    pub fn open(
        held: RouteHome,
        settings: RouteSettings,
        rules: Option<RouteRules>,
        outputs: &OutputSettings,
        mut report: impl FnMut(String),
        emit: impl FnMut(Message) + 'static,
    ) -> Result<Self, RouteError> {
        let outputs = RouteOutputs::open(outputs)?;
        let (mode, ports) = (settings.mode, settings.ports.join(", "));
        held.set_starting("reads the routes and loads a program for each port")?;
        let (mut router, notes) = Router::start_with(RouteSettings { mode: RouteMode::Standard, ..settings }, rules)?;
        notes.into_iter().for_each(&mut report);
        if mode == RouteMode::Stateful {
            held.set_starting(
                "loads the programs of mode stateful, which the kernel checks for seconds each on a busy machine",
            )?;
        }
        router.set_mode(mode)?;
        if !router.untraced().is_empty() {
            report("note: changes of routes and neighbours take effect within milliseconds instead of at once, as this kernel does not let some \
                 functions be traced (`route status --json` lists them); no action is needed"
                .to_owned());
        }
        for it in router.notes() {
            report(format!("{} ({}): {}", it.what, it.code, it.remedy));
        }
        report(format!("{ports}: mode {} ({} XDP)", router.mode().name(), router.xdp_mode()));
        if let Some(rules) = router.rules() {
            let end = if rules.is_pinned() { "stay until `evenkeel route stop`" } else { "go with this process" };
            report(format!("{} active in each mode; they {end}", rules.holding()));
        }
        let (published_cpus, reloads, emit) = (CpuSet::new(), Reloads::default(), Box::new(emit));
        Ok(Self { router, held, outputs, published_cpus, reloads, emit })
    }

    fn note(&mut self, event: RouteEvent) {
        self.outputs.record(event).into_iter().for_each(&mut self.emit);
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
        self.held.clear_starting();
        self.note(RouteEvent::Mode { mode: self.router.mode(), reason: "the start".to_owned() });
    }

    fn poll(&mut self) -> Result<(), RouteError> {
        for answer in self.reloads.poll(&mut self.router) {
            self.note(RouteEvent::Rules { what: reload_message(&answer) });
        }
        self.outputs.publish(&self.router)?.into_iter().for_each(&mut self.emit);
        if self.published_cpus != *self.router.cpus() {
            self.held.publish_cpus(&self.router)?;
            self.published_cpus = self.router.cpus().clone();
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
        self.reloads.pending.push_back((Requester::default(), None));
    }

    fn command(&mut self, command: Command, to: Sender<Answer>) -> Result<ControlFlow<()>, RouteError> {
        let done = |result: Result<(), RouteError>| {
            result.map_or_else(|error| Answer::Refused(error.to_string()), |()| Answer::Done)
        };
        let mut flow = ControlFlow::Continue(());
        let answer = match command {
            Command::Status => Answer::Status(Box::new(self.status()?)),
            Command::Mode(mode) => done(self.set_mode(mode)),
            Command::Cpus(cpus) => {
                done(self.router.set_cpus(&cpus).and_then(|()| self.held.publish_cpus(&self.router)))
            }
            Command::Reload(requester) => {
                self.reloads.pending.push_back((requester, Some(to)));
                return Ok(flow);
            }
            Command::Stop => {
                flow = ControlFlow::Break(());
                Answer::Done
            }
        };
        // The client may have gone.
        let _ = to.send(answer);
        Ok(flow)
    }

    fn status(&mut self) -> Result<RouteStatus, RouteError> {
        self.outputs.status(&self.router)
    }

    fn close(self) -> Result<(), RouteError> {
        let Self { router, held, outputs, reloads, .. } = self;
        drop(reloads);
        drop(router);
        outputs.end();
        drop(held);
        Ok(())
    }
}

/// Reloads, one after the other, while the loop goes on.
#[derive(Default)]
struct Reloads {
    /// Requesters, and where each answer goes; none: a signal.
    pending: VecDeque<(Requester, Option<Sender<Answer>>)>,
    current: Option<Option<Sender<Answer>>>,
}

impl Reloads {
    /// Begins the next reload if it can; gives the answers to those that ended.
    fn poll(&mut self, router: &mut Router) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut end = |to: Option<Sender<Answer>>, result| {
            let answer = answer(result);
            // The client may have gone.
            let _ = to.map(|to| to.send(answer.clone()));
            answers.push(answer);
        };
        if let Some(result) = router.take_reloaded() {
            end(self.current.take().flatten(), result);
        }
        if self.current.is_none()
            && !router.is_loading_rules()
            && let Some((requester, to)) = self.pending.pop_front()
        {
            match router.begin_reload(&requester) {
                Ok(()) => self.current = Some(to),
                Err(error) => end(to, Err(error)),
            }
        }
        answers
    }
}

impl Drop for Reloads {
    fn drop(&mut self) {
        let pending = self.pending.drain(..).map(|(_, to)| to);
        for to in pending.chain(self.current.take()).flatten() {
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
