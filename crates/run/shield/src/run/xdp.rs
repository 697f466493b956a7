//! The program in the kernel as a data plane: on an interface, or on both of two.

use std::sync::Arc;

use bpf::{
    XdpMode, chain,
    filter::{
        Between, Heartbeat, HostCookies, KnownPackets, SeenSources, Shield, ShieldConfig, ShieldCounts, ShieldLink,
        ShieldShared,
    },
};
use model::{
    clock::monotonic_ns,
    shield::{ChallengeStatus, Fail},
};
use port::offloads;
use rules::{Action, Rule, compile::Counters, file::RuleFile};
use serve::Lock;
use sys::worker::Worker;

use super::{
    control::{Control, join},
    heartbeat, interface, known,
    leftover::Leftover,
    loader::{Base, Exact},
    machine, owner,
    plane::{Changed, DataPlane, NextRules, PlaneStatus, Programs},
    preload::Preload,
    saved_state::{SavedState, write_state},
    settings::Settings,
    syn_answers::{SynAnswers, accept, accept_no_more, challenges, cookies, update_connections},
    transition::Counting,
};
use crate::{
    between::{self, Datapath, Pair},
    detect,
    error::ShieldError,
};

/// The kernel's program and what goes with it. It stays when this is dropped.
#[derive(Debug)]
pub struct Xdp {
    pub(super) shared: Arc<ShieldShared>,
    /// The shield's place on each interface; none: no program was loaded yet.
    pub(super) links: Vec<ShieldLink>,
    /// Programs are in these paths.
    attached: bool,
    pub(super) answers: SynAnswers,
    /// Lookups that the loaded programs can do for packets; none: no lookup.
    pub(super) known: Option<KnownPackets>,
    /// Frames of the interface begin with the IP header.
    bare_ip: bool,
    ahead: Preload,
    /// The program of the rules that hold without mitigations, while it is of use.
    calm: Option<Arc<Shield>>,
    holds_calm: bool,
    /// The remaining work of the active rules, until it is done.
    rest: Option<Rest>,
    _heartbeat: Worker,
}

/// A program that is ready to be put in front of the interface.
pub struct Ready {
    shield: Arc<Shield>,
    /// The active program has no rules against attacks.
    calm: bool,
    rest: Rest,
}

/// Work that follows once it is there.
#[derive(Debug)]
enum Rest {
    /// Programs that wait have to be loaded anew, of prefixes that are protected from now on too.
    Anew { base: Box<Base>, ahead: Option<Preload>, host: Option<Box<HostCookies>> },
    /// The rules stay; the filled program that runs them is replaced.
    Same(Option<Box<Exact>>),
}

/// Puts a shield with the rules of `file` in front of the interface, or takes over the one that a process left there: then its rules hold
/// until the new ones are ready, and counters go on. `file` is what `settings.source` said when it was read and judged.
///
/// # Errors
/// Rules that are wrong, an interface that has a shield or another XDP program, what the kernel refuses.
pub fn start(settings: &Settings, file: &RuleFile) -> Result<Control<Xdp>, ShieldError> {
    machine::same_clock()?;
    let notes: Vec<String> = machine::bpf_file_system(settings.paths.bpf_file_system())?.into_iter().collect();
    let mounted = !notes.is_empty();
    let paths = settings.paths.clone();
    alone(settings, file, &notes).inspect_err(|_| {
        if mounted {
            // The failure itself is what is told.
            let _ = machine::unmount(paths.bpf_file_system());
        }
    })
}

/// Starts it if nobody else has the interface, be it beside others that come to it at the same moment.
fn alone(settings: &Settings, file: &RuleFile, notes: &[String]) -> Result<Control<Xdp>, ShieldError> {
    let is_raced = |error: &ShieldError| matches!(error, ShieldError::Xdp(error) if error.is_raced());
    chain::retry_if_raced(is_raced, || once(settings.clone(), file.clone(), notes.to_vec()))
}

fn once(settings: Settings, file: RuleFile, notes: Vec<String>) -> Result<Control<Xdp>, ShieldError> {
    let mut lock = Some(owner::take(&settings)?);
    let left = Leftover::find(&settings)?;
    let fresh = left.is_none();
    let paths = settings.paths.clone();
    begin(settings, file, left, &mut lock, notes).inspect_err(|_| {
        // Whoever has the lock may remove what is there.
        if fresh && lock.is_some() {
            // The failure itself is what is told.
            let _ = paths.remove();
        }
    })
}

fn begin(
    settings: Settings,
    file: RuleFile,
    left: Option<Leftover>,
    lock: &mut Option<Lock>,
    mut notes: Vec<String>,
) -> Result<Control<Xdp>, ShieldError> {
    let datapath = match settings.mode {
        XdpMode::Generic => Datapath::Generic,
        XdpMode::Native | XdpMode::Offload => Datapath::Native,
    };
    notes.extend(join(&settings, datapath, left.is_some())?);
    let bare_ip = offloads::begins_with_ip(&settings.interface)?;
    let (shared, links, memory) = match left {
        Some(Leftover { shared, link, second, memory, lost }) => {
            notes.extend(lost);
            (shared, std::iter::once(link).chain(second).collect(), Some(memory))
        }
        None => {
            let mut shared = ShieldShared::create()?;
            shared.pin(&settings.paths.pins)?;
            (Arc::new(shared), Vec::new(), None)
        }
    };
    let mut answers = SynAnswers::start(&settings);
    let known = known::look(&settings, &mut answers.choice.hooks).ok();
    let plane = Xdp {
        _heartbeat: heartbeat::beat(Arc::clone(&shared))?,
        shared,
        attached: !links.is_empty(),
        links,
        answers,
        known,
        bare_ip,
        ahead: Preload::new(&file.rules.protected),
        calm: None,
        holds_calm: false,
        rest: None,
    };
    let mut control = Control::begin(settings, file, plane, memory, notes, lock)?;
    if control.plane.answers.ack.is_none() {
        accept_no_more(&control.settings)?;
    }
    // The process before this one may have been killed meanwhile.
    control.plane.answers.withhold(false)?;
    let answered = control.status().challenge.as_ref().map(ChallengeStatus::text);
    control.notes.extend(answered);
    Ok(control)
}

impl Xdp {
    /// The first interface as it is called now.
    pub(super) fn interface(&self) -> Option<&str> {
        self.links.first().map(|link| link.interface())
    }

    fn replace(&mut self, shield: &Shield) -> Result<(), ShieldError> {
        match &mut self.links[..] {
            [first, second] => ShieldLink::put_both(first, second, shield)?,
            links => links.iter_mut().try_for_each(|link| link.put(shield))?,
        }
        Ok(())
    }

    /// Takes the shield's paths, as the first program has to be loaded for them.
    fn take(&mut self, settings: &Settings) -> Result<(), ShieldError> {
        if self.links.is_empty() {
            let first = ShieldLink::take(&settings.interface, settings.mode)?;
            let second = settings.between.as_ref().map(|pair| ShieldLink::take(&pair.second, settings.mode));
            self.links = std::iter::once(Ok(first)).chain(second).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Tells captures beside the names of the rules.
    fn name(&self, counters: &Counters) -> Result<(), ShieldError> {
        for link in &self.links {
            let names = link.rule_names()?;
            counters.slots().for_each(|(name, slot)| names.set(slot, name));
        }
        Ok(())
    }

    /// The input of preloaded programs, once these rules are active.
    fn base(&self, next: &NextRules<'_>, mut config: ShieldConfig) -> Base {
        let first = next.calm.protected.first().filter(|_| next.watch.is_some());
        let mut template = first.map_or_else(Vec::new, |first| detect::template(&next.file.detection, *first));
        if config.cookies.is_none() && challenges(&template) {
            config.cookies = cookies(next.settings, &self.answers.choice).ok();
        }
        if config.known.is_none() {
            template.iter_mut().for_each(|rule| rule.when.known = Default::default());
        }
        if config.cookies.is_none() {
            // Where there can be no cookies, the step that asks for them says so when its time comes.
            template.retain(|rule| rule.action != Action::Challenge);
        }
        Base { rules: next.calm.clone(), template, config, shared: Arc::clone(&self.shared) }
    }
}

impl Control<Xdp> {
    /// Returns whether a program waits for the rules against an attack.
    pub fn is_prepared(&self) -> bool {
        self.plane.ahead.waits()
    }
}

impl DataPlane for Xdp {
    type Ready = Ready;
    const OUTLIVES_PROCESS: bool = true;
    const SETS_PROMISCUOUS: bool = true;

    fn counting(&self) -> Counting {
        Counting::Kernel
    }

    fn counts(&self, slots: usize) -> ShieldCounts {
        self.shared.counts_of(slots)
    }

    fn prepare(&mut self, next: &NextRules<'_>, counters: &mut Counters) -> Result<Ready, ShieldError> {
        let settings = next.settings;
        self.take(settings)?;
        let elsewhere = next.elsewhere.then(|| Preload::new(&next.file.rules.protected));
        let tables = elsewhere.as_ref().unwrap_or(&self.ahead).tables(next.rules, counters, next.now)?;
        let config = ShieldConfig {
            heartbeat: Some(Heartbeat { timeout: settings.fail_after, closed: settings.fail == Fail::Closed }),
            cookies: self.answers.cookies.clone(),
            watch: next.watch.clone(),
            between: settings.between.as_ref().map(indices).transpose()?,
            known: self.known,
            slots: self.links.iter().map(|link| link.maps()).collect(),
            bare_ip: self.bare_ip,
            report: false,
        };
        let calm = next.rules.rules.len() == next.calm.rules.len();
        if next.what == Changed::All {
            let shield = Arc::new(Shield::load(&tables, &config, &self.shared)?);
            let (base, host) = (self.base(next, config), interface::host(settings, next.file));
            return Ok(Ready {
                shield,
                calm,
                rest: Rest::Anew { base: Box::new(base), ahead: elsewhere, host: host.map(Box::new) },
            });
        }
        if let Some(kept) = self.calm.as_ref().filter(|_| calm) {
            return Ok(Ready { shield: Arc::clone(kept), calm, rest: Rest::Same(None) });
        }
        let (shield, exact) = match self.ahead.fill(&tables)? {
            Some(shield) => (shield, Some(Box::new(Exact { tables, config }))),
            None => (Shield::load(&tables, &config, &self.shared)?, None),
        };
        Ok(Ready { shield: Arc::new(shield), calm, rest: Rest::Same(exact) })
    }

    fn put(
        &mut self,
        ready: Ready,
        settings: &Settings,
        memory: &SavedState,
        before: &SavedState,
    ) -> Result<Option<String>, ShieldError> {
        let mut unwritten = None;
        let written = write_state(&settings.paths, memory);
        self.name(&memory.counters)?;
        if !self.attached {
            written?;
            attach(&mut self.links, &ready.shield, settings)?;
            self.attached = true;
        } else {
            if let Err(error) = written {
                // What is to be done against an attack does not wait for room on a disk.
                unwritten = Some(format!(
                    "the rules are active, but a process that takes over will not know their counters: {error}"
                ));
            }
            if let Err(error) = self.replace(&ready.shield) {
                // That the old ones go on is the news.
                let _ = write_state(&settings.paths, before);
                return Err(error);
            }
        }
        let Ready { shield, calm, rest } = ready;
        if calm || matches!(rest, Rest::Anew { .. }) {
            self.calm = calm.then_some(shield);
        }
        (self.holds_calm, self.rest) = (calm, Some(rest));
        Ok(unwritten)
    }

    fn check(&mut self, name: &str) -> Result<Vec<String>, ShieldError> {
        let put_back = self.links.iter().filter_map(|link| link.put_back()).collect();
        match self.links.iter().find_map(|link| link.why_ended()) {
            Some(why) => Err(ShieldError::Ended { name: name.to_owned(), why }),
            None => Ok(put_back),
        }
    }

    fn end(&mut self) -> Result<(), ShieldError> {
        Ok(())
    }

    fn status(&self, settings: &Settings) -> PlaneStatus {
        let none_yet = || PlaneStatus { mode: settings.mode.to_string(), ..PlaneStatus::default() };
        PlaneStatus {
            reattached: self.links.iter().map(|link| link.times_put_back()).sum(),
            challenge: self.answers.challenge().cloned(),
            ..self.links.first().map_or_else(none_yet, |link| PlaneStatus::of(link, &self.shared))
        }
    }

    fn description(&self, settings: &Settings) -> String {
        let fail_after = settings.fail_after.as_secs_f64();
        let fails = match settings.fail {
            Fail::Open => "all packets pass",
            Fail::Closed => "only what the management allow-list lets in passes",
        };
        format!("{} XDP; if this process dies, {fails} after {fail_after} s", settings.mode)
    }

    fn programs(&mut self) -> Option<&mut dyn Programs> {
        Some(self)
    }

    fn seen(&self) -> Option<SeenSources<'_>> {
        Some(self.shared.seen())
    }
}

impl Programs for Xdp {
    fn admit(
        &mut self,
        settings: &Settings,
        file: &RuleFile,
        extra: &mut Vec<Rule>,
    ) -> Result<Option<String>, ShieldError> {
        if self.answers.cookies.is_some() || !(challenges(&file.rules.rules) || challenges(extra)) {
            return Ok(None);
        }
        // The program that makes connections of them comes before the one that asks: an ACK that it does not find would be answered by a RST.
        let both = cookies(settings, &self.answers.choice)
            .and_then(|c| Ok((accept(settings, Some(&c), &self.answers.choice, self.ahead.ack())?, c)));
        match both {
            Ok((ack, cookies)) => (self.answers.ack, self.answers.cookies) = (ack, Some(cookies)),
            Err(error) if challenges(&file.rules.rules) => return Err(error),
            // What else is to be done against attacks must not wait for what cannot be.
            Err(error) => {
                extra.retain(|rule| rule.action != Action::Challenge);
                return Ok(Some(format!("SYNs of the attack are not challenged: {error}")));
            }
        }
        Ok(None)
    }

    fn settle(&mut self, challenged: bool, challenges: bool) -> Result<Option<String>, ShieldError> {
        // There are connections that the program has not seen: of the time in between, and of ports that are challenged from now on.
        let updated = match challenges || challenged {
            true => update_connections(self.answers.cookies.as_ref(), challenges),
            false => Ok(()),
        };
        let preloaded = match self.rest.take() {
            Some(Rest::Anew { base, ahead, host }) => {
                self.answers.host = host.map(|host| *host);
                if let Some(ahead) = ahead {
                    self.ahead = ahead;
                }
                self.ahead.begin(*base)
            }
            Some(Rest::Same(exact)) => {
                self.ahead.order(exact);
                Ok(())
            }
            None => Ok(()),
        };
        if let Err(error) = preloaded {
            return Err(error.after(updated));
        }
        Ok(updated.err().map(|error| error.to_string()))
    }

    fn why_slow(&self) -> &'static str {
        self.ahead.why_slow()
    }

    fn can_withdraw(&self, all: bool) -> bool {
        (all && self.calm.is_some()) || self.ahead.waits() || !self.ahead.is_loading()
    }

    fn catch_up(&mut self) -> Result<(), ShieldError> {
        let Some(shield) = self.ahead.ready()? else { return Ok(()) };
        self.replace(&shield)?;
        if self.holds_calm {
            self.calm = Some(Arc::new(shield));
        }
        Ok(())
    }
}

impl PlaneStatus {
    /// Status of a program that is attached, whether or not somebody controls it.
    pub(super) fn of(link: &ShieldLink, shared: &ShieldShared) -> Self {
        let silent_ns = monotonic_ns().saturating_sub(shared.last_beat_ns());
        let (mode, program_id) = (link.mode().to_string(), link.program_id());
        Self { mode, program_id, heartbeat_age_s: silent_ns as f64 / 1e9, ..Self::default() }
    }
}

/// Puts the program in front of the interface, or of both.
fn attach(links: &mut [ShieldLink], shield: &Shield, settings: &Settings) -> Result<(), ShieldError> {
    links.iter_mut().try_for_each(|link| link.put(shield))?;
    // Some drivers take frames only once they run a program.
    if let (Some(pair), XdpMode::Native) = (&settings.between, settings.mode) {
        between::takes_frames(pair)?;
    }
    let names = [settings.paths.link(), settings.paths.second_link()];
    // Where the first one is, the second one is too.
    links.iter_mut().zip(names).rev().try_for_each(|(link, name)| link.pin(&name))?;
    Ok(())
}

fn indices(pair: &Pair) -> Result<Between, ShieldError> {
    Ok(Between { first: host::interface::index(&pair.first)?, second: host::interface::index(&pair.second)? })
}
