//! The router: a program on each port, and the kernel's changes followed.

mod look;

use std::{
    collections::{BTreeSet, HashSet},
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use bpf::{
    ROUTE_LOTS, RouteHop, RouteLosses, RouteOut, RoutePort, RouteTables, RouteWatch, XdpMode, chain, shadow_lacks,
};
use host::netlink::{
    monitor::{Change, Event, Monitor},
    route::{neighbours, use_neighbour},
};
use model::{
    CpuSet,
    route::{CtMark, Obstacle, RouteEvent, RouteMode, ShadowResult},
};
use nix::time::{ClockId, clock_gettime};
use rules::requester::Requester;

pub(crate) use look::words;

use crate::{
    RouteError,
    audit::{consent, obstacles},
    cpus::{self, Lots},
    driver::{changed_exits, exits},
    evidence::{Evidence, Reader},
    plan::{RoutePlan, plan, planned, slots},
    rules::{Came, Reloaded, RouteRules},
    shadow,
    stay::Stay,
};

/// How often neighbours are told of, and settings without a message are read.
const REFRESH_PERIOD: Duration = Duration::from_secs(1);
/// IPv6 routes of several hops come hop by hop: after such a change all routes are read anew, this much later.
const REREAD_DELAY: Duration = Duration::from_millis(500);
/// A frame that the kernel has not sent so long after it came is one that it does not send.
const SHADOW_WAIT: Duration = Duration::from_millis(300);

/// For changes that were not read yet. The kernel takes twice that, only as far as it is needed, and 832 bytes for a route: room for 80,000 changes of a
/// routing daemon's.
const CHANGES_BYTES: usize = 32 << 20;

/// How the router is to run.
#[derive(Debug, Clone)]
pub struct RouteSettings {
    /// The ports, by name.
    pub ports: Vec<String>,
    /// Native, or generic where a driver has no XDP.
    pub xdp: XdpMode,
    /// Next hops, and connections, of each IP version that each CPU remembers; none: as many as suit the routes.
    pub slots: Option<u32>,
    /// The mode wanted.
    pub mode: RouteMode,
    /// Go back to the mode wanted when an obstacle is gone.
    pub returns: bool,
    /// Compare with the kernel for so long before the fast path forwards.
    pub trial: Duration,
    /// The mark of the connections that mode stateful takes.
    pub mark: CtMark,
    /// The CPUs that forward; empty: the cores that receive.
    pub cpus: CpuSet,
    /// Frames that the queue of a port to each of these CPUs holds.
    pub queue: u32,
}

/// A running router. Dropping it leaves the kernel alone.
#[derive(Debug)]
pub struct Router {
    settings: RouteSettings,
    tables: RouteTables,
    ports: Vec<RoutePort>,
    outs: Vec<RouteOut>,
    /// The CPUs that forward: those of the settings that are online.
    cpus: CpuSet,
    lots: Lots,
    losses: Option<RouteLosses>,
    watch: RouteWatch,
    monitor: Monitor,
    reader: Reader,
    evidence: Evidence,
    applied: RoutePlan,
    obstacles: Vec<Obstacle>,
    mode: RouteMode,
    /// Why the mode is not the one wanted, while it is not.
    held_back: Option<String>,
    refreshed: Instant,
    /// When all routes are to be read anew.
    reread_at: Option<Instant>,
    poked_ns: u64,
    comparison: ShadowResult,
    /// It forwards after a trial in which there was nothing to compare.
    untried: bool,
    /// When the trial ends.
    trial_ends: Option<Instant>,
    begun: Instant,
    /// Ports that were told of as ended.
    ended: BTreeSet<String>,
    rules: Option<RouteRules>,
    /// How a reload went that nobody has asked about yet.
    reloaded: Option<Result<Reloaded, RouteError>>,
    /// What rules have followed, to be told.
    followed: Vec<String>,
}

/// Puts the programs on their ports, behind `rules`. Also what is to be told of the rules.
fn put(
    settings: &RouteSettings,
    evidence: &Evidence,
    tables: &RouteTables,
    applied: &RoutePlan,
    stay: &Stay,
    rules: Option<&mut RouteRules>,
) -> Result<(Vec<RoutePort>, Vec<String>), RouteError> {
    // Of hardware a driver finishes what it hands over, but for what only generic XDP gets.
    let virtual_one = |name: &str| evidence.links.values().any(|link| link.name == name && !link.kind.is_empty());
    let unfinished = |name: &str| settings.xdp == XdpMode::Generic || virtual_one(name);
    let mut ports = Vec::new();
    for (number, (name, mac)) in settings.ports.iter().zip(&applied.ports).enumerate() {
        let mac = mac.ok_or_else(|| RouteError::NoEthernet { interface: name.clone() })?;
        ports.push(match stay.left_on(name)? {
            Some(left) => {
                let port = RoutePort::take_over(tables, number, &left, mac, unfinished(name))?;
                let runs = port.seat().mode();
                if runs != settings.xdp {
                    return Err(RouteError::LeftInMode { interface: name.clone(), mode: runs });
                }
                port
            }
            None => RoutePort::load(tables, number, name, mac, settings.xdp, unfinished(name))?,
        });
    }
    let told = match rules {
        Some(rules) => rules.begin(&mut ports)?,
        None => {
            ports.iter_mut().try_for_each(RoutePort::put)?;
            Vec::new()
        }
    };
    Ok((ports, told))
}

impl Router {
    /// Puts the programs on their ports, in mode standard. [`Router::set_mode`] switches.
    ///
    /// # Errors
    /// Ports that are not there, named twice, or run a foreign program; what the kernel refuses.
    pub fn start(settings: RouteSettings) -> Result<Self, RouteError> {
        Self::start_with(settings, None).map(|(router, _)| router)
    }

    /// As [`Router::start`], the programs behind `rules`: no frame meets a port without them. Also what is to be told of the rules.
    ///
    /// # Errors
    /// As there; rules that say nothing on a port.
    pub fn start_with(
        settings: RouteSettings,
        mut rules: Option<RouteRules>,
    ) -> Result<(Self, Vec<String>), RouteError> {
        cpus::check(&settings.cpus, settings.xdp)?;
        let monitor = Monitor::with_buffer(CHANGES_BYTES)
            .map_err(RouteError::system("listen to changes of the kernel's configuration"))?;
        let mut reader = Reader::open()?;
        let routes = reader.routes()?;
        let evidence = reader.read(&settings.ports, routes)?;
        let applied = planned(&evidence, &settings.ports)?;
        let stay = Stay::here();
        let mut left = stay.left();
        left.retain(|interface| settings.ports.contains(interface));
        if rules.is_none() && !left.is_empty() {
            return Err(RouteError::Left { interfaces: left });
        }
        let tables = RouteTables::create(slots(settings.slots, &evidence.routes))?;
        tables.set_mode(RouteMode::Standard, false);
        let is_raced = |error: &RouteError| matches!(error, RouteError::Xdp(error) if error.is_raced());
        let put = || put(&settings, &evidence, &tables, &applied, &stay, rules.as_mut());
        let (ports, told) = chain::together(is_raced, put)?;
        let watch = RouteWatch::attach(&tables)?;
        let mut router = Self {
            obstacles: obstacles(&evidence, &settings.ports, consent(settings.mode, settings.mark), settings.xdp),
            applied: RoutePlan::default(),
            outs: Vec::new(),
            cpus: CpuSet::new(),
            lots: [0; ROUTE_LOTS],
            losses: None,
            mode: RouteMode::Standard,
            held_back: None,
            refreshed: Instant::now(),
            reread_at: None,
            poked_ns: now_ns(),
            comparison: ShadowResult::default(),
            untried: false,
            trial_ends: None,
            begun: Instant::now(),
            ended: BTreeSet::new(),
            rules,
            reloaded: None,
            followed: Vec::new(),
            settings,
            tables,
            ports,
            watch,
            monitor,
            reader,
            evidence,
        };
        // Once the programs are there a veth's other end may take frames that it did not take before.
        router.apply()?;
        let cpus = router.settings.cpus.clone();
        router.set_cpus(&cpus)?;
        Ok((router, told))
    }

    /// Has these CPUs forward from now on; none: the cores that receive. No frame is lost. Flows that get another CPU may be overtaken once by
    /// frames of their own.
    ///
    /// # Errors
    /// A CPU that is not there, or offline; what the kernel refuses. Those before go on then.
    pub fn set_cpus(&mut self, cpus: &CpuSet) -> Result<(), RouteError> {
        cpus::check(cpus, self.settings.xdp)?;
        self.deal(cpus)?;
        self.settings.cpus = cpus.clone();
        Ok(())
    }

    fn deal(&mut self, cpus: &CpuSet) -> Result<(), RouteError> {
        if *cpus == self.cpus {
            return Ok(());
        }
        // All have queues before the first flow is dealt, and keep them until the last one is.
        let (queue, tables) = (self.settings.queue, &self.tables);
        let added = self.ports.iter_mut().try_for_each(|port| port.add_cpus(tables, cpus, queue));
        if let Err(error) = added {
            self.ports.iter_mut().try_for_each(|port| port.use_cpus(&self.cpus))?;
            return Err(error.into());
        }
        if !cpus.is_empty() {
            self.lots = cpus::deal(&self.lots, cpus);
            self.tables.deal(&self.lots);
        }
        if self.losses.is_none() {
            let maps: Vec<u32> = self.ports.iter().filter_map(RoutePort::queues_id).collect();
            self.losses = RouteLosses::attach(&maps)?;
        }
        self.ports.iter_mut().try_for_each(|port| port.use_cpus(cpus))?;
        self.cpus = cpus.clone();
        Ok(())
    }

    /// Switches, unless something stands against it. To routed and stateful it goes by a trial in shadow, if one is wanted.
    ///
    /// # Errors
    /// [`RouteError::Obstacles`] for another mode than standard; what the kernel refuses.
    pub fn set_mode(&mut self, mode: RouteMode) -> Result<(), RouteError> {
        let consent = consent(mode, self.settings.mark);
        let found = obstacles(&self.evidence, &self.settings.ports, consent, self.settings.xdp);
        if mode != RouteMode::Standard && !found.is_empty() {
            return Err(RouteError::Obstacles { obstacles: found });
        }
        let forwards = matches!(mode, RouteMode::Routed | RouteMode::Stateful);
        if mode == RouteMode::Shadow || forwards && !self.settings.trial.is_zero() {
            shadow_lacks().map_or(Ok(()), Err)?;
        }
        if mode == RouteMode::Stateful {
            self.ports.iter_mut().try_for_each(|port| port.add_state(&self.tables))?;
        }
        self.obstacles = found;
        self.settings.mode = mode;
        self.held_back = None;
        self.begin()
    }

    /// Begins the mode wanted.
    fn begin(&mut self) -> Result<(), RouteError> {
        let forwards = matches!(self.settings.mode, RouteMode::Routed | RouteMode::Stateful);
        let tried = forwards && !self.settings.trial.is_zero();
        self.trial_ends = tried.then(|| Instant::now() + self.settings.trial);
        self.switch(if tried { RouteMode::Shadow } else { self.settings.mode })
    }

    /// Ends the trial: the fast path forwards, unless it would have sent frames in another way than the kernel.
    fn end_trial(&mut self, happened: &mut Vec<RouteEvent>) -> Result<(), RouteError> {
        if self.trial_ends.is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.trial_ends = None;
        let result = self.compare()?.clone();
        happened.push(RouteEvent::Compared(result.clone()));
        if let Some(why) = result.objection() {
            self.hold_back(&why, happened);
            return Ok(());
        }
        self.switch(self.settings.mode)?;
        self.untried = result.compared() == 0;
        let why = if self.untried {
            "nothing was compared: no frame arrived during the trial"
        } else {
            "the shadow agreed with the kernel"
        };
        happened.push(RouteEvent::Mode { mode: self.mode, why: why.to_owned() });
        Ok(())
    }

    /// Reads the file of rules again, and has its rules hold; comes back when they do.
    ///
    /// # Errors
    /// There is none; the new rules are wrong, or would cut off who asks: those of now go on.
    pub fn reload(&mut self, asked: &Requester) -> Result<Reloaded, RouteError> {
        let rules = self.rules.as_mut().ok_or(RouteError::NoRules)?;
        // Those that are being made come first.
        let earlier = rules.came(&mut self.ports, true);
        rules.begin_reload(asked, &mut self.ports)?;
        let reloaded = rules.came(&mut self.ports, true);
        self.note_rules(earlier);
        self.note_rules(reloaded);
        self.take_reloaded().unwrap_or(Err(RouteError::NoRules))
    }

    /// Begins to read the file of rules again, beside the loop: [`Router::take_reloaded`] tells how it went, [`Router::turn`] has them hold.
    ///
    /// # Errors
    /// There is none; what the kernel refuses.
    pub fn begin_reload(&mut self, asked: &Requester) -> Result<(), RouteError> {
        self.rules.as_mut().ok_or(RouteError::NoRules)?.begin_reload(asked, &mut self.ports)
    }

    /// Whether rules are being made: a reload can begin once they hold.
    pub fn makes_rules(&self) -> bool {
        self.rules.as_ref().is_some_and(RouteRules::is_busy)
    }

    /// How the last reload went, once.
    pub fn take_reloaded(&mut self) -> Option<Result<Reloaded, RouteError>> {
        self.reloaded.take()
    }

    fn note_rules(&mut self, came: Option<Came>) {
        match came {
            Some(Came::Reloaded(result)) => self.reloaded = Some(result),
            Some(Came::Followed(what)) => self.followed.push(what),
            None => {}
        }
    }

    /// The rules before the fast path.
    pub fn rules(&self) -> Option<&RouteRules> {
        self.rules.as_ref()
    }

    fn switch(&mut self, mode: RouteMode) -> Result<(), RouteError> {
        if mode == RouteMode::Shadow && self.outs.is_empty() {
            // Frames that an earlier shadow wrote down at its end are none of this one's.
            self.tables.take_samples(u64::MAX)?;
            self.comparison = ShadowResult::default();
            let attach = |port: &RoutePort| RouteOut::attach(&self.tables, port.seat().interface());
            self.outs = self.ports.iter().map(attach).collect::<Result<_, _>>()?;
        }
        self.tables.set_mode(mode, self.settings.mode == RouteMode::Stateful);
        self.untried = false;
        if mode != RouteMode::Shadow {
            self.outs.clear();
        }
        self.mode = mode;
        Ok(())
    }

    /// Follows what the kernel tells, for `timeout` at the most; gives what happened.
    ///
    /// # Errors
    /// What the kernel refuses. The mode is standard then.
    pub fn turn(&mut self, timeout: Duration) -> Result<Vec<RouteEvent>, RouteError> {
        match self.monitor.wait(timeout) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                return Err(RouteError::System {
                    operation: "wait for changes of the kernel's configuration",
                    source: e,
                });
            }
            _ => {}
        }
        let mut happened = Vec::new();
        let turned = self.follow(&mut happened);
        if turned.is_err() {
            self.tables.set_mode(RouteMode::Standard, false);
            self.mode = RouteMode::Standard;
        }
        turned.map(|()| happened)
    }

    fn follow(&mut self, happened: &mut Vec<RouteEvent>) -> Result<(), RouteError> {
        let (mut anew, mut lost, mut routes_anew) = (false, false, false);
        let (routes, unwatched) = (&mut self.evidence.routes, !self.watch.missing().is_empty());
        let tables = &self.tables;
        let mut told = 0;
        let read = self.monitor.read(|event| {
            // What the kernel's own calls do not tell of is forgotten with the first message.
            if unwatched && told == 0 {
                tables.forget();
            }
            told += 1;
            match event {
                Event::Link(..) | Event::Address(..) | Event::Rule(..) | Event::Nftables(_) => anew = true,
                Event::Nexthop(..) => routes_anew = true,
                Event::Route(Change::Gone, route) => anew |= routes.remove(&route),
                Event::Route(change, route) => {
                    routes_anew |= route.to.address.is_ipv6() && change == Change::Set;
                    anew |= routes.add(route);
                }
                Event::Neighbour(..) => {}
                Event::Lost => lost = true,
            }
        });
        // What changed while these were read was asked for before it changed, perhaps.
        if unwatched && told > 1 {
            tables.forget();
        }
        read.map_err(RouteError::system("read the kernel's changes"))?;
        if lost {
            self.hold_back("the kernel's configuration changed faster than it could be read", happened);
            self.reread_at = Some(Instant::now());
        }
        if routes_anew {
            self.reread_at.get_or_insert_with(|| Instant::now() + REREAD_DELAY);
        }
        let due = self.refreshed.elapsed() >= REFRESH_PERIOD;
        if self.reread_at.is_some_and(|at| at <= Instant::now()) {
            self.reread_at = None;
            self.evidence.routes = self.reader.routes()?;
            anew = true;
        }
        if anew || due || lost {
            self.follow_names(happened);
            let routes = std::mem::take(&mut self.evidence.routes);
            self.evidence = self.reader.read(&self.names(), routes)?;
            let sent = std::mem::take(&mut self.applied.sends);
            self.apply()?;
            happened.extend(changed_exits(&self.settings.ports, &sent, &self.applied.sends));
            self.judge(happened)?;
        }
        self.end_trial(happened)?;
        let came = self.rules.as_mut().and_then(|rules| rules.came(&mut self.ports, false));
        self.note_rules(came);
        happened.extend(self.followed.drain(..).map(|what| RouteEvent::Rules { what }));
        if due {
            self.refreshed = Instant::now();
            self.refresh(happened)?;
        }
        Ok(())
    }

    /// Once a second.
    fn refresh(&mut self, happened: &mut Vec<RouteEvent>) -> Result<(), RouteError> {
        self.tables.next_second();
        let since = self.poked_ns;
        self.poked_ns = now_ns();
        self.keep_alive(&self.tables.used_hops(since)?)?;
        if self.mode == RouteMode::Shadow {
            self.compare()?;
        }
        let online = self.settings.cpus.intersection(&cpus::online()?);
        if online != self.cpus {
            self.deal(&online)?;
            happened.push(RouteEvent::Cpus { cpus: online });
        }
        if let Some(Err(error)) = self.rules.as_mut().map(|rules| rules.follow(&mut self.ports)) {
            self.followed.push(format!("the rules follow neither addresses nor the clock: {error}"));
        }
        let put_back = self.ports.iter().filter_map(|port| port.seat().put_back());
        happened.extend(put_back.map(|what| RouteEvent::PutBack { what }));
        let here: Vec<String> = self.ports.iter().filter_map(name).collect();
        self.ended.retain(|port| !here.contains(port));
        for port in self.ports.iter().filter(|port| name(port).is_none()) {
            if self.ended.insert(port.seat().interface().to_owned()) {
                let moved = || {
                    format!(
                        "{} was moved to another network namespace: its frames are no longer forwarded",
                        port.seat().interface()
                    )
                };
                let why = port.seat().why_ended().unwrap_or_else(moved);
                happened.push(RouteEvent::PortEnded { why });
            }
        }
        Ok(())
    }

    /// Has the kernel ask for those neighbours that frames were sent to and that are stale, as it would if it had sent them itself.
    fn keep_alive(&mut self, used: &[RouteHop]) -> Result<(), RouteError> {
        if used.is_empty() {
            return Ok(());
        }
        let used: HashSet<(u32, IpAddr)> = used.iter().map(|hop| (hop.ifindex, hop.address)).collect();
        let known = neighbours(self.reader.netlink()).map_err(RouteError::system("read the neighbours"))?;
        for stale in known.iter().filter(|n| n.is_stale() && used.contains(&(n.ifindex, n.address))) {
            // One that has just gone is not missed.
            let _ = use_neighbour(self.reader.netlink(), stale.ifindex, stale.address);
        }
        Ok(())
    }

    /// Takes what the shadow has compared.
    ///
    /// # Errors
    /// The kernel refuses to read its map.
    pub fn compare(&mut self) -> Result<&ShadowResult, RouteError> {
        for sample in self.tables.take_samples(now_ns().saturating_sub(SHADOW_WAIT.as_nanos() as u64))? {
            shadow::add(&mut self.comparison, &sample, |index| match self.evidence.links.get(&index) {
                Some(link) => link.name.clone(),
                None => format!("interface {index}"),
            });
        }
        Ok(&self.comparison)
    }

    /// The names of the ports' interfaces now. One that is gone, or in another network namespace, has none: another interface may have its name.
    fn names(&self) -> Vec<String> {
        self.ports.iter().map(|port| name(port).unwrap_or_default()).collect()
    }

    /// Goes by the names that the ports' interfaces have now.
    fn follow_names(&mut self, happened: &mut Vec<RouteEvent>) {
        for (number, name) in self.names().into_iter().enumerate() {
            let known = &mut self.settings.ports[number];
            if !name.is_empty() && name != *known {
                self.ports[number].rename(&name);
                let from = std::mem::replace(known, name.clone());
                happened.push(RouteEvent::Renamed { from, to: name });
            }
        }
    }

    /// Gives the kernel programs what changed.
    fn apply(&mut self) -> Result<(), RouteError> {
        let exits = exits(&self.settings.ports, self.settings.xdp);
        let new = plan(&self.evidence, &self.names(), &exits, self.settings.mark);
        for (port, now) in self.ports.iter().zip(&new.ports) {
            let before = self.applied.ports.get(port.number()).copied().flatten();
            if before != *now {
                // One that is elsewhere now takes no frames there: they are for no address.
                port.set_mac(&self.tables, now.unwrap_or_default());
            }
            // It may have been away and back between two readings. One that has just gone is told of by the next.
            if now.is_some() {
                let _ = port.enter(&self.tables);
            }
        }
        // What next hops depend on is set before ways that may need it.
        if new.key != self.applied.key {
            self.tables.set_key(new.key);
        }
        if new.limits != self.applied.limits {
            self.tables.set_limits(&new.limits)?;
        }
        if new.ways != self.applied.ways {
            self.tables.set_ways(&new.ways)?;
        }
        if new.own != self.applied.own {
            self.tables.set_own_addresses(new.own.iter().copied());
        }
        if new.track != self.applied.track {
            self.tables.set_track(new.track);
        }
        self.applied = new;
        Ok(())
    }

    /// Holds what is there now against the mode.
    fn judge(&mut self, happened: &mut Vec<RouteEvent>) -> Result<(), RouteError> {
        let consent = consent(self.settings.mode, self.settings.mark);
        let now = obstacles(&self.evidence, &self.settings.ports, consent, self.settings.xdp);
        let new: Vec<_> = now.iter().filter(|o| !self.obstacles.contains(o)).cloned().collect();
        let gone: Vec<_> = self.obstacles.iter().filter(|o| !now.contains(o)).cloned().collect();
        self.obstacles = now;
        happened.extend(gone.into_iter().map(RouteEvent::Cleared));
        let first = new.first().map(|obstacle| obstacle.what.clone());
        happened.extend(new.into_iter().map(RouteEvent::Obstacle));
        if let Some(why) = first {
            self.hold_back(&why, happened);
        }
        if self.held_back.is_some() && self.obstacles.is_empty() && self.settings.returns && self.reread_at.is_none() {
            self.held_back = None;
            self.begin()?;
            let why = "no obstacle is left".to_owned();
            happened.push(RouteEvent::Mode { mode: self.mode, why });
        }
        Ok(())
    }

    /// The kernel forwards from now on.
    fn hold_back(&mut self, why: &str, happened: &mut Vec<RouteEvent>) {
        if self.mode == RouteMode::Standard {
            return;
        }
        self.tables.set_mode(RouteMode::Standard, false);
        self.outs.clear();
        self.trial_ends = None;
        self.mode = RouteMode::Standard;
        self.held_back = Some(why.to_owned());
        happened.push(RouteEvent::Mode { mode: RouteMode::Standard, why: why.to_owned() });
    }
}

/// The name that a port's interface has now; none: it is gone, another tool took the program off, or it is in another network namespace.
fn name(port: &RoutePort) -> Option<String> {
    port.seat().is_alive().then(|| sys::link::name_of(port.ifindex())).flatten()
}

fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
