//! The mode: the one requested, its trial in shadow, and the fallback to the kernel's own path.

use std::time::{Duration, Instant};

use bpf::{RoutePort, RouteTables, XdpMode, shadow_lacks};
use model::route::{CtMark, Obstacle, RouteEvent, RouteMode, RouteStatus, ShadowResult};

use crate::{
    RouteError,
    audit::{consent, obstacles},
    evidence::Evidence,
    settings::RouteSettings,
    shadow::Shadow,
};

/// The requested mode and the active one.
#[derive(Debug)]
pub(crate) struct Mode {
    requested: RouteMode,
    active: RouteMode,
    /// The mark of the connections that mode stateful takes.
    mark: CtMark,
    xdp: XdpMode,
    trial: Duration,
    /// Return to the requested mode when no obstacle is left.
    auto_return: bool,
    trial_ends: Option<Instant>,
    /// Reason for the fallback; `None` while the requested mode is active.
    fallback: Option<String>,
    obstacles: Vec<Obstacle>,
    /// The trial ended without a compared frame.
    unverified: bool,
    shadow: Shadow,
}

impl Mode {
    /// Standard, until [`Mode::request`].
    pub(crate) fn new(settings: &RouteSettings, evidence: &Evidence) -> Self {
        let &RouteSettings { xdp, mode, auto_return, trial, mark, .. } = settings;
        Self {
            requested: mode,
            active: RouteMode::Standard,
            mark,
            xdp,
            trial,
            auto_return,
            trial_ends: None,
            fallback: None,
            obstacles: obstacles(evidence, &settings.ports, consent(mode, mark), xdp),
            unverified: false,
            shadow: Shadow::default(),
        }
    }

    pub(crate) fn active(&self) -> RouteMode {
        self.active
    }

    pub(crate) fn requested(&self) -> RouteMode {
        self.requested
    }

    pub(crate) fn obstacles(&self) -> &[Obstacle] {
        &self.obstacles
    }

    pub(crate) fn mark(&self) -> CtMark {
        self.mark
    }

    pub(crate) fn xdp(&self) -> XdpMode {
        self.xdp
    }

    /// The obstacles to `mode` that it can begin with.
    ///
    /// # Errors
    /// [`RouteError::Obstacles`] for another mode than standard; a kernel without what the shadow needs.
    pub(crate) fn check(
        &self,
        mode: RouteMode,
        evidence: &Evidence,
        ports: &[String],
    ) -> Result<Vec<Obstacle>, RouteError> {
        let found = obstacles(evidence, ports, consent(mode, self.mark), self.xdp);
        if mode != RouteMode::Standard && !found.is_empty() {
            return Err(RouteError::Obstacles { obstacles: found });
        }
        if mode == RouteMode::Shadow || self.is_tried(mode) {
            shadow_lacks().map_or(Ok(()), Err)?;
        }
        Ok(found)
    }

    /// Begins `mode`, which has passed [`Mode::check`] with these obstacles.
    pub(crate) fn request(
        &mut self,
        mode: RouteMode,
        found: Vec<Obstacle>,
        ports: &[RoutePort],
        tables: &RouteTables,
    ) -> Result<(), RouteError> {
        self.obstacles = found;
        self.requested = mode;
        self.fallback = None;
        self.begin(ports, tables)
    }

    /// True if `mode` forwards and a trial comes first.
    fn is_tried(&self, mode: RouteMode) -> bool {
        matches!(mode, RouteMode::Routed | RouteMode::Stateful) && !self.trial.is_zero()
    }

    fn begin(&mut self, ports: &[RoutePort], tables: &RouteTables) -> Result<(), RouteError> {
        let tried = self.is_tried(self.requested);
        self.trial_ends = tried.then(|| Instant::now() + self.trial);
        self.switch(if tried { RouteMode::Shadow } else { self.requested }, ports, tables)
    }

    fn switch(&mut self, mode: RouteMode, ports: &[RoutePort], tables: &RouteTables) -> Result<(), RouteError> {
        if mode == RouteMode::Shadow {
            self.shadow.begin(ports, tables)?;
        }
        tables.set_mode(mode, self.requested == RouteMode::Stateful);
        self.unverified = false;
        if mode != RouteMode::Shadow {
            self.shadow.end();
        }
        self.active = mode;
        Ok(())
    }

    /// Ends the trial when it is over: the fast path forwards, unless it would have sent frames in another way than the kernel.
    pub(crate) fn end_trial(
        &mut self,
        evidence: &Evidence,
        ports: &[RoutePort],
        tables: &RouteTables,
        events: &mut Vec<RouteEvent>,
    ) -> Result<(), RouteError> {
        if self.trial_ends.is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.trial_ends = None;
        let result = self.compare(evidence, tables)?.clone();
        events.push(RouteEvent::Compared(result.clone()));
        if let Some(why) = result.objection() {
            self.fall_back(&why, tables, events);
            return Ok(());
        }
        self.switch(self.requested, ports, tables)?;
        self.unverified = result.compared() == 0;
        let why = if self.unverified {
            "nothing was compared: no IP frame that it could forward arrived during the trial"
        } else {
            "the shadow agreed with the kernel"
        };
        events.push(RouteEvent::Mode { mode: self.active, reason: why.to_owned() });
        Ok(())
    }

    pub(crate) fn compare(&mut self, evidence: &Evidence, tables: &RouteTables) -> Result<&ShadowResult, RouteError> {
        self.shadow.compare(evidence, tables)
    }

    /// Falls back on obstacles that are new; where it may, auto_return once none is left.
    pub(crate) fn judge(
        &mut self,
        now: Vec<Obstacle>,
        may_return: bool,
        ports: &[RoutePort],
        tables: &RouteTables,
        events: &mut Vec<RouteEvent>,
    ) -> Result<(), RouteError> {
        let new: Vec<_> = now.iter().filter(|o| !self.obstacles.contains(o)).cloned().collect();
        let gone: Vec<_> = self.obstacles.iter().filter(|o| !now.contains(o)).cloned().collect();
        self.obstacles = now;
        events.extend(gone.into_iter().map(RouteEvent::Cleared));
        let first = new.first().map(|obstacle| obstacle.what.clone());
        events.extend(new.into_iter().map(RouteEvent::Obstacle));
        if let Some(why) = first {
            self.fall_back(&why, tables, events);
        }
        if self.fallback.is_some() && self.obstacles.is_empty() && self.auto_return && may_return {
            self.fallback = None;
            self.begin(ports, tables)?;
            let why = "no obstacle is left".to_owned();
            events.push(RouteEvent::Mode { mode: self.active, reason: why });
        }
        Ok(())
    }

    /// The obstacles to the requested mode.
    pub(crate) fn obstacles_now(&self, evidence: &Evidence, ports: &[String]) -> Vec<Obstacle> {
        obstacles(evidence, ports, consent(self.requested, self.mark), self.xdp)
    }

    /// The kernel forwards from now on.
    pub(crate) fn fall_back(&mut self, why: &str, tables: &RouteTables, events: &mut Vec<RouteEvent>) {
        if self.active == RouteMode::Standard {
            return;
        }
        self.stop(tables);
        self.shadow.end();
        self.trial_ends = None;
        self.fallback = Some(why.to_owned());
        events.push(RouteEvent::Mode { mode: RouteMode::Standard, reason: why.to_owned() });
    }

    /// The kernel forwards, as the router fails.
    pub(crate) fn stop(&mut self, tables: &RouteTables) {
        tables.set_mode(RouteMode::Standard, false);
        self.active = RouteMode::Standard;
    }

    /// The mode's part of the status.
    pub(crate) fn status(&self) -> RouteStatus {
        RouteStatus {
            mode: self.active,
            requested: self.requested,
            fallback: self.fallback.clone(),
            obstacles: self.obstacles.clone(),
            shadow: self.shadow.result(),
            unverified: self.unverified,
            ..RouteStatus::default()
        }
    }
}
