//! A shield and the process that controls it, for any data plane.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use host::session;
use model::shield::{KnownSources, RuleStatus, ShieldStatus};
use rules::{
    Rule,
    compile::{COUNTERS_MAX, Now, expires_otherwise},
    detect::{DetectConfig, StepConfig},
    file::RuleFile,
    requester::Requester,
    status::{self as shown, Holding},
};
use serve::Lock;

use super::{
    interface,
    paths::Paths,
    plane::{Changed, DataPlane, NextRules, Programs},
    saved_state::SavedState,
    settings::Settings,
    status,
    syn_answers::challenges,
    transition::{self, Transition},
};
use crate::{
    between::{self, Datapath, LinkState, Pair},
    detect::{self, Detection},
    error::ShieldError,
};

/// A shield under control. When it is dropped a program in the kernel stays in front of the interface, without anybody who controls it;
/// [`Control::stop`] takes it away.
#[derive(Debug)]
pub struct Control<P> {
    pub(super) settings: Settings,
    pub(crate) plane: P,
    pub(super) active: Active,
    /// Detection as the file asks for it, with the steps of ladders that cannot be taken.
    pub(super) requested_detection: DetectConfig,
    pub(super) detection: Option<Detection>,
    /// The moment at which what was learned was last written down.
    learned_at: Instant,
    pub(super) sides: Option<LinkState>,
    /// True once the move of an interface to another network namespace was reported.
    pub(super) moved: bool,
    reloads: u64,
    reload_error: Option<String>,
    /// Messages that were not emitted yet.
    pub(super) notes: Vec<String>,
    _lock: Option<Lock>,
}

/// The rules that hold, and what is known of them.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) file: RuleFile,
    /// Rules that detection adds.
    pub(super) extra: Vec<Rule>,
    /// The machine's addresses in the allow-list.
    own: Vec<IpAddr>,
    memory: SavedState,
    read_at: Now,
}

/// A data plane that is looked after while it runs.
pub trait Upkeep: DataPlane {
    /// Prepares for rules of nftables that may have changed, until [`Upkeep::follow`] has looked.
    fn suspect(_control: &mut Control<Self>) {}

    /// Looks, once a second, at what changes under it. Returns what was done, or could not be, in words.
    fn follow(control: &mut Control<Self>) -> Vec<String>;

    /// Returns what is not as it should be, in words.
    fn warnings(control: &Control<Self>) -> Vec<String>;
}

/// Rules against attacks that could not be made to hold are given again after so long.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Rules against an attack that take longer are told of.
const SLOW_MIN: Duration = Duration::from_millis(150);

/// Rules that are ready.
struct Prepared<R> {
    transition: Transition,
    active: Active,
    ready: R,
}

impl<P: DataPlane> Control<P> {
    /// Has `plane` judge by the rules of `file`: what `settings.source` said when it was read and judged; it is not read again until a
    /// reload. `memory` is what a process before this one left. The lock is taken when all is well: until then whoever has it may remove
    /// what is there.
    pub(crate) fn begin(
        settings: Settings,
        mut file: RuleFile,
        plane: P,
        memory: Option<SavedState>,
        mut notes: Vec<String>,
        lock: &mut Option<Lock>,
    ) -> Result<Self, ShieldError> {
        let requested_detection = file.detection.clone();
        notes.extend(interface::fit(&settings, &mut file)?);
        let mut control = Self {
            settings,
            plane,
            active: Active {
                file: file.clone(),
                extra: Vec::new(),
                own: Vec::new(),
                memory: memory.unwrap_or_default(),
                read_at: Now::read(),
            },
            requested_detection,
            detection: None,
            learned_at: Instant::now(),
            sides: None,
            moved: false,
            reloads: 0,
            reload_error: None,
            notes,
            _lock: None,
        };
        let prepared = control.prepare(file, None, Changed::All)?;
        if let Some(pair) = &control.settings.between {
            control.sides = Some(LinkState::start(pair, P::SETS_PROMISCUOUS, &control.settings.paths.state)?);
        }
        control.put(prepared)?;
        control._lock = lock.take();
        Ok(control)
    }

    /// Reads the rules again and puts them in the place of those that hold, all at once. After an error those that hold go on. What is
    /// probably not meant in them, in words.
    ///
    /// # Errors
    /// The new ones are wrong, or would cut off who asks. `status` shows it too.
    pub fn reload(&mut self, requester: &Requester) -> Result<Vec<String>, ShieldError> {
        // Sessions with this machine do not go through a gateway.
        let requester = if self.settings.between.is_some() { &Requester::default() } else { requester };
        let before = self.settings.sessions.clone();
        let done = self.settings.source.read_again().and_then(|mut file| {
            let warnings = check_lockout(requester, &file)?;
            requester.let_in(&mut self.settings.sessions);
            let detection = file.detection.clone();
            self.notes.extend(interface::fit(&self.settings, &mut file)?);
            self.apply(file, None, Changed::All)?;
            self.requested_detection = detection;
            Ok(warnings)
        });
        if done.is_err() {
            self.settings.sessions = before;
        }
        self.reload_error = done.as_ref().err().map(ToString::to_string);
        let warnings = done?;
        self.reloads += 1;
        let lost = self.detection.as_mut().and_then(Detection::follow_log);
        self.notes.extend(lost.map(|error| error.to_string()));
        Ok(warnings)
    }

    /// Looks for attacks, and makes hold what is to be done about them, behind the management allow-list. What happened has been told
    /// to the log and the hook.
    ///
    /// # Errors
    /// The rules against an attack cannot be had; those that hold go on.
    pub fn look(&mut self) -> Result<detect::Seen, ShieldError> {
        let Some(detection) = &mut self.detection else { return Ok(detect::Seen::default()) };
        let counters = &self.active.memory.counters;
        let mut seen = detection.look(|| self.plane.counts(counters.end()), counters);
        if let Some(seen) = self.plane.seen() {
            seen.age();
            detection.detector().regular().iter().for_each(|source| seen.note(*source));
        }
        if let Err(error) = transition::keep_at_times(&mut self.learned_at, detection, &self.settings.paths) {
            self.notes.push(format!("the learned limits cannot be saved for the next process: {error}"));
        }
        if let Some(rules) = seen.rules.take() {
            let urgent = rules.iter().any(|rule| !self.active.extra.contains(rule));
            // What is withdrawn has time, and the next attack is to be seen meanwhile.
            let waits = |programs: &mut dyn Programs| !programs.can_withdraw(rules.is_empty());
            if !urgent && self.plane.programs().is_some_and(waits) {
                detection.give_again(Duration::ZERO);
                self.catch_up()?;
                return Ok(seen);
            }
            let what = if urgent { Changed::Attack } else { Changed::Withdrawn };
            let began = Instant::now();
            if let Err(error) = self.apply(self.active.file.clone(), Some(rules), what) {
                if let Some(detection) = &mut self.detection {
                    detection.give_again(RETRY_PERIOD);
                }
                return Err(error);
            }
            if urgent && began.elapsed() > SLOW_MIN {
                let why = self.plane.programs().map_or("", |programs| programs.why_slow());
                let ms = began.elapsed().as_millis();
                self.notes.push(format!("attack rules took {ms} ms to take effect{why}"));
            }
        } else {
            self.catch_up()?;
        }
        Ok(seen)
    }

    fn catch_up(&mut self) -> Result<(), ShieldError> {
        self.plane.programs().map_or(Ok(()), Programs::catch_up)
    }

    /// The period in which [`Control::look`] is to be called; none: nothing is watched.
    pub fn look_every(&self) -> Option<Duration> {
        self.detection.as_ref().map(|detection| Duration::from_millis(detection.detector().config().every_ms))
    }

    /// Returns whether rules that hold challenge.
    pub(super) fn challenges(&self) -> bool {
        challenges(&self.active.file.rules.rules) || challenges(&self.active.extra)
    }

    /// Returns whether SYNs of an attack would be challenged if they could be answered.
    pub(super) fn leaves_out_challenges(&self) -> bool {
        let step = StepConfig::Challenge {};
        self.requested_detection.has(&step)
            && !self.active.file.detection.has(&step)
            && !self.active.file.rules.protected.is_empty()
    }

    /// Makes these rules hold, and against attacks `mitigations`; none: those of now go on.
    pub(super) fn apply(
        &mut self,
        file: RuleFile,
        mitigations: Option<Vec<Rule>>,
        what: Changed,
    ) -> Result<(), ShieldError> {
        let prepared = self.prepare(file, mitigations, what)?;
        self.put(prepared)
    }

    /// Makes the rules that hold ready again, after something changed that they go by, and has them hold.
    pub(super) fn reapply(&mut self) -> Result<(), ShieldError> {
        self.apply(self.active.file.clone(), None, Changed::All)
    }

    fn prepare(
        &mut self,
        file: RuleFile,
        mitigations: Option<Vec<Rule>>,
        what: Changed,
    ) -> Result<Prepared<P::Ready>, ShieldError> {
        let (now, settings) = (self.detection.as_ref(), &self.settings);
        let counting = self.plane.counting();
        let (transition, anew) = Transition::to(&file, now, &settings.interface, &settings.paths, counting)?;
        self.notes.extend(anew);
        let mut extra = transition.extra(now).or(mitigations).unwrap_or_else(|| self.active.extra.clone());
        self.notes.extend(detect::fit(&mut extra, &file.rules));
        if let Some(programs) = self.plane.programs() {
            self.notes.extend(programs.admit(settings, &file, &mut extra)?);
        }
        let own = own_addresses(settings)?;
        let mut calm = file.rules.clone();
        calm.rules.splice(0..0, file.management.all(&own, &settings.sessions));
        let rules = detect::insert(&calm, &extra);
        let mut memory = self.active.memory.clone();
        let coming = rules.rules.iter().map(|rule| rule.name.as_str());
        let holding = self.active.memory.rules.iter().map(|rule| rule.name.as_str());
        memory.counters.make_room(coming, holding, || self.plane.counts(COUNTERS_MAX).rules);
        let read_at = Now::read();
        let coming = NextRules {
            settings,
            file: &file,
            calm: &calm,
            rules: &rules,
            watch: transition.config(now),
            elsewhere: transition.is_elsewhere(),
            what,
            now: read_at,
        };
        let ready = self.plane.prepare(&coming, &mut memory.counters)?;
        let attack = |name: &str| extra.iter().any(|rule| rule.name == name);
        let shown = rules.rules.iter().map(|rule| RuleStatus { attack: attack(&rule.name), ..shown::rule(rule) });
        memory.rules = shown.collect();
        memory.default = shown::verdict(rules.default).to_owned();
        memory.file = settings.source.file.as_ref().map(|path| path.display().to_string());
        memory.loaded = read_at.wall.to_string();
        memory.fail = Some(settings.fail);
        memory.heartbeat_timeout_s = settings.fail_after.as_secs_f64();
        Ok(Prepared { transition, active: Active { file, extra, own, memory, read_at }, ready })
    }

    fn put(&mut self, prepared: Prepared<P::Ready>) -> Result<(), ShieldError> {
        let Prepared { transition, active, ready } = prepared;
        self.notes.extend(self.plane.put(ready, &self.settings, &active.memory, &self.active.memory)?);
        let unreported = transition.carry_out(&mut self.detection);
        self.notes.extend(unreported.iter().map(ToString::to_string));
        let challenged = self.challenges();
        self.active = active;
        let challenges = self.challenges();
        if let Some(programs) = self.plane.programs() {
            self.notes.extend(programs.settle(challenged, challenges)?);
        }
        Ok(())
    }

    /// Carries the link state of one of two interfaces over to the other. What was done, in words.
    pub(super) fn carry(&mut self) -> Result<Option<String>, ShieldError> {
        self.sides.as_mut().map_or(Ok(None), LinkState::carry)
    }

    /// Compiles the rules that hold again if the wall clock was set and one of them expires by it. Whether it did.
    pub(super) fn follow_clock(&mut self) -> Result<bool, ShieldError> {
        if !expires_otherwise(&self.active.file, self.active.read_at, Now::read()) {
            return Ok(false);
        }
        self.reapply().map(|()| true)
    }

    /// Makes the allow-list anew when this machine has other addresses: a shield that starts with the machine comes before them. Whether it
    /// did.
    ///
    /// # Errors
    /// As for [`Control::reload`]; it is tried again when the rules are.
    pub(super) fn follow_addresses(&mut self) -> Result<bool, ShieldError> {
        let now = own_addresses(&self.settings)?;
        if now == self.active.own {
            return Ok(false);
        }
        let rules = |own: &[IpAddr]| self.active.file.management.all(own, &self.settings.sessions);
        let differ = rules(&now) != rules(&self.active.own);
        self.active.own = now;
        if differ {
            self.reapply()?;
        }
        Ok(differ)
    }

    /// Takes the messages that were not emitted yet.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Leaves the shield where it is, for a process that comes.
    pub fn leave(self) {
        if let Some(detection) = &self.detection {
            // It was kept some seconds ago.
            let _ = transition::keep(detection, &self.settings.paths);
        }
    }

    /// Takes the shield away.
    pub fn stop(mut self) -> Result<(), ShieldError> {
        if let Some(detection) = &mut self.detection {
            // What cannot be told keeps nothing from ending.
            let _ = detection.end_attacks(&[]);
        }
        let ended = self.plane.end();
        if let Some(mut detection) = self.detection.take() {
            detection.end_metrics();
        }
        ended.and(self.settings.paths.remove())
    }

    /// The memory of the rules that hold.
    pub fn memory(&self) -> &SavedState {
        &self.active.memory
    }

    /// The two interfaces of a gateway.
    pub(crate) fn pair(&self) -> Option<&Pair> {
        self.settings.between.as_ref()
    }

    /// The number of rules that hold.
    pub fn holding(&self) -> Holding {
        shown::holding_of(&self.active.memory.rules)
    }

    /// The paths of what outlives its process.
    pub fn paths(&self) -> &Paths {
        &self.settings.paths
    }

    /// The interface, or both as `A,B`.
    pub fn name(&self) -> String {
        self.settings.between.as_ref().map_or_else(|| self.settings.interface.clone(), Pair::to_string)
    }

    /// The message at its start.
    pub fn up(&self) -> String {
        format!("{}: shield up, {}, {}", self.name(), self.holding(), self.plane.description(&self.settings))
    }
}

impl<P: Upkeep> Control<P> {
    pub fn status(&self) -> ShieldStatus {
        let counts = self.plane.counts(self.active.memory.counters.end());
        let mut standing = self.plane.status(&self.settings);
        let detection = self.detection.as_ref();
        ShieldStatus {
            attacks: detection.map_or_else(Vec::new, |detection| detection.attacks().to_vec()),
            sources: detection.map_or_else(Vec::new, Detection::sources),
            protected: detection.map_or_else(Vec::new, |detection| detection.detector().protected()),
            challenge: standing.challenge.take().filter(|_| self.challenges() || !self.leaves_out_challenges()),
            known_sources: detection.and_then(|_| self.plane.seen()).map(|seen| {
                let (sources, false_positives) = seen.share();
                KnownSources { sources, false_positives }
            }),
            warnings: P::warnings(self),
            reloads: self.reloads,
            reload_error: self.reload_error.clone(),
            pid: Some(std::process::id()),
            ..status::of(&self.active.memory, standing, self.name(), &counts)
        }
    }
}

/// Warnings about the rules of `file` for the one who asks for them.
///
/// # Errors
/// The rules would lock the requester out.
pub fn check_lockout(requester: &Requester, file: &RuleFile) -> Result<Vec<String>, ShieldError> {
    requester.judge(file).map_err(|harm| ShieldError::LocksOut { what: harm.what, instead: harm.instead })
}

/// Makes two interfaces ready to be joined. Where a process left the gateway there, the link state goes on to be carried over.
pub(crate) fn join(settings: &Settings, datapath: Datapath, is_left: bool) -> Result<Vec<String>, ShieldError> {
    let Some(pair) = &settings.between else { return Ok(Vec::new()) };
    if !is_left {
        between::bring_up(pair, &settings.paths.state)?;
    }
    between::check(pair, datapath, is_left)
}

/// The addresses that the allow-list is about.
fn own_addresses(settings: &Settings) -> Result<Vec<IpAddr>, ShieldError> {
    if settings.between.is_some() {
        // What crosses is for others.
        return Ok(Vec::new());
    }
    session::own_addresses()
        .map_err(|error| ShieldError::Lacking(format!("cannot list this machine's addresses: {error}")))
}
