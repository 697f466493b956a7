//! The router: a program on each port, and the kernel's changes followed.

mod assignment;
mod follower;
mod mode;
mod ports;
mod status;

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use bpf::{RouteTables, RouteWatch};
use model::{
    CpuSet,
    route::{RouteEvent, RouteMode, ShadowResult},
};
use rules::requester::Requester;

use crate::{
    RouteError, cpus,
    pinned::PinnedRules,
    plan::{planned, slots},
    rules::{Reloaded, RouteRules},
    settings::RouteSettings,
};
use assignment::Assignment;
use follower::{Changes, Follower};
use mode::Mode;
use ports::Ports;

/// A running router. Dropping it leaves the kernel alone.
#[derive(Debug)]
pub struct Router {
    tables: RouteTables,
    ports: Ports,
    mode: Mode,
    assignment: Assignment,
    watch: RouteWatch,
    follower: Follower,
    /// Before the fast path.
    rules: Option<RouteRules>,
    begun: Instant,
}

impl Router {
    /// Puts the programs on their ports, in mode standard. [`Router::set_mode`] switches.
    ///
    /// # Errors
    /// Ports that are not there, named twice, or run a foreign program; what the kernel refuses.
    pub fn start(settings: RouteSettings) -> Result<Self, RouteError> {
        Self::start_with(settings, None).map(|(router, _)| router)
    }

    /// As [`Router::start`], the programs behind `rules`: no frame meets a port without them. Also notes on the rules.
    ///
    /// # Errors
    /// As there; rules that say nothing on a port.
    pub fn start_with(
        settings: RouteSettings,
        mut rules: Option<RouteRules>,
    ) -> Result<(Self, Vec<String>), RouteError> {
        cpus::check(&settings.cpus, settings.xdp)?;
        let follower = Follower::open(&settings.ports)?;
        let evidence = follower.evidence();
        let planned = planned(evidence, &settings.ports)?;
        let mut pinned = PinnedRules::here().interfaces();
        pinned.retain(|interface| settings.ports.contains(interface));
        if rules.is_none() && !pinned.is_empty() {
            return Err(RouteError::Pinned { interfaces: pinned });
        }
        let tables = RouteTables::create(slots(settings.slots, &evidence.routes))?;
        tables.set_mode(RouteMode::Standard, false);
        let mode = Mode::new(&settings, evidence);
        let RouteSettings { ports, xdp, cpus, queue, .. } = settings;
        let (ports, notes) = Ports::put(ports, xdp, evidence, &planned, &tables, rules.as_mut())?;
        let watch = RouteWatch::attach(&tables)?;
        let assignment = Assignment::new(queue);
        let mut router = Self { tables, ports, mode, assignment, watch, follower, rules, begun: Instant::now() };
        // Once the programs are there a veth's other end may take frames that it did not take before.
        router.ports.apply(router.follower.evidence(), router.mode.mark(), &router.tables)?;
        router.set_cpus(&cpus)?;
        Ok((router, notes))
    }

    /// Has these CPUs forward from now on; none: the cores that receive. No frame is lost. Flows that get another CPU may be overtaken once by
    /// frames of their own.
    ///
    /// # Errors
    /// A CPU that is not there, or offline; what the kernel refuses. Those before go on then.
    pub fn set_cpus(&mut self, cpus: &CpuSet) -> Result<(), RouteError> {
        self.assignment.request(cpus, self.mode.xdp(), self.ports.each_mut(), &self.tables)
    }

    /// Switches, unless something stands against it. To routed and stateful it goes by a trial in shadow, if one is wanted.
    ///
    /// # Errors
    /// [`RouteError::Obstacles`] for another mode than standard; what the kernel refuses.
    pub fn set_mode(&mut self, mode: RouteMode) -> Result<(), RouteError> {
        let found = self.mode.check(mode, self.follower.evidence(), self.ports.names())?;
        if mode == RouteMode::Stateful {
            self.ports.each_mut().iter_mut().try_for_each(|port| port.add_state(&self.tables))?;
        }
        self.mode.request(mode, found, self.ports.each(), &self.tables)
    }

    pub fn compare(&mut self) -> Result<&ShadowResult, RouteError> {
        self.mode.compare(self.follower.evidence(), &self.tables)
    }

    /// Reads the file of rules again, and has its rules hold; comes back when they do.
    ///
    /// # Errors
    /// There is none; the new rules are wrong, or would lock out the requester: those of now go on.
    pub fn reload(&mut self, requester: &Requester) -> Result<Reloaded, RouteError> {
        self.rules.as_mut().ok_or(RouteError::NoRules)?.reload(requester, self.ports.each_mut())
    }

    /// Begins to read the file of rules again, beside the loop: [`Router::take_reloaded`] tells how it went, [`Router::poll`] has them hold.
    pub fn begin_reload(&mut self, requester: &Requester) -> Result<(), RouteError> {
        self.rules.as_mut().ok_or(RouteError::NoRules)?.begin_reload(requester, self.ports.each_mut())
    }

    /// True while rules are being loaded: a reload can begin once they are active.
    pub fn is_loading_rules(&self) -> bool {
        self.rules.as_ref().is_some_and(RouteRules::is_busy)
    }

    /// Result of the last reload, once.
    pub fn take_reloaded(&mut self) -> Option<Result<Reloaded, RouteError>> {
        self.rules.as_mut()?.take_reloaded()
    }

    /// The rules before the fast path.
    pub fn rules(&self) -> Option<&RouteRules> {
        self.rules.as_ref()
    }

    /// Waits for a change of the kernel's configuration, for `timeout` at the most, and [polls](Router::poll): for a loop that waits for nothing else.
    pub fn poll_within(&mut self, timeout: Duration) -> Result<Vec<RouteEvent>, RouteError> {
        self.follower.wait(timeout)?;
        self.poll()
    }

    /// Sockets that become readable with a change of the kernel's configuration.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.follower.sockets()
    }

    /// Follows the kernel's configuration, and does what is due; gives the events since the last poll.
    ///
    /// # Errors
    /// The kernel refuses; the mode is standard then.
    pub fn poll(&mut self) -> Result<Vec<RouteEvent>, RouteError> {
        let mut events = Vec::new();
        let result = self.follow(&mut events);
        if result.is_err() {
            self.mode.stop(&self.tables);
        }
        result.map(|()| events)
    }

    fn follow(&mut self, events: &mut Vec<RouteEvent>) -> Result<(), RouteError> {
        let Changes { any, lost } = self.follower.read(&self.tables, !self.watch.missing().is_empty())?;
        if lost {
            let why = "the kernel's configuration changed faster than it could be read";
            self.mode.fall_back(why, &self.tables, events);
        }
        let due = self.follower.is_due();
        if self.follower.reread_routes()? || any || due || lost {
            events.extend(self.ports.follow_names());
            self.follower.reread(&self.ports.names_now())?;
            let evidence = self.follower.evidence();
            events.extend(self.ports.apply(evidence, self.mode.mark(), &self.tables)?);
            let now = self.mode.obstacles_now(evidence, self.ports.names());
            let may_return = !self.follower.is_rereading();
            self.mode.judge(now, may_return, self.ports.each(), &self.tables, events)?;
        }
        self.mode.end_trial(self.follower.evidence(), self.ports.each(), &self.tables, events)?;
        if let Some(rules) = &mut self.rules {
            rules.poll(self.ports.each_mut(), false);
            events.extend(rules.take_followed().into_iter().map(|what| RouteEvent::Rules { what }));
        }
        if due {
            self.refresh(events)?;
        }
        Ok(())
    }

    /// Runs once a second.
    fn refresh(&mut self, events: &mut Vec<RouteEvent>) -> Result<(), RouteError> {
        self.follower.refresh(&self.tables)?;
        if self.mode.active() == RouteMode::Shadow {
            self.compare()?;
        }
        events.extend(self.assignment.follow_online(self.ports.each_mut(), &self.tables)?);
        if let Some(rules) = &mut self.rules {
            rules.follow(self.ports.each_mut());
        }
        events.extend(self.ports.lost());
        Ok(())
    }
}
