//! Looks in, events and rules out.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use model::shield_event::{Exceeded, Happened, Measure, Picture, Share, ShieldEvent};
use rules::detect::DetectConfig;
use rules::{Prefix, Rule, packet::Packet};

use super::{
    attack::{Attack, Look},
    baseline::{Baseline, Limit},
    classify::{Finding, SAMPLES_MIN, classify},
    known::{self, Known},
    learned::Learned,
    mix::{self, Kind},
    window::{Counts, Rates, Window},
};

/// Sources and ports that a picture names.
const TOP_MAX: usize = 5;
/// A look that took much longer than it should have (the process was held up) says nothing about a moment, and is no look.
const LATE_FACTOR: u32 = 40;

/// Looks that must go by without an attack until the sources of one count as regular.
const PENDING_WINDOWS: usize = 20;

/// Looks that an attack may wait for samples, as a multiple of those that confirm it.
const SAMPLES_WAIT_FACTOR: u32 = 3;

/// Watches all protected prefixes. It reads no clock and no counter: the caller hands both in.
#[derive(Debug)]
pub struct Detector {
    config: DetectConfig,
    prefixes: Vec<Watched>,
    attacks: u64,
    revision: u64,
    /// Sources of the last look that came while there was no attack.
    regular: Vec<IpAddr>,
}

/// A protected prefix.
#[derive(Debug)]
struct Watched {
    prefix: Prefix,
    baseline: Baseline,
    known: Known,
    /// Looks in a row above a limit, while it is not an attack yet.
    above: u32,
    since: Duration,
    seen: Counts,
    seen_time: Duration,
    samples: Vec<Packet>,
    rates: Rates,
    /// Sources of the last looks, which are regular if no attack follows.
    pending: VecDeque<Vec<IpAddr>>,
    /// For how long there was no attack: since then regular sources are remembered.
    calm_time: Duration,
    attack: Option<Attack>,
}

impl Watched {
    fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            baseline: Baseline::default(),
            known: Known::default(),
            above: 0,
            since: Duration::ZERO,
            seen: Counts::default(),
            seen_time: Duration::ZERO,
            samples: Vec::new(),
            rates: Rates::default(),
            pending: VecDeque::new(),
            calm_time: Duration::ZERO,
            attack: None,
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.prefix.address, self.prefix.len)
    }

    fn forget(&mut self) {
        self.above = 0;
        self.seen = Counts::default();
        self.seen_time = Duration::ZERO;
        self.samples.clear();
    }

    /// Traffic since the first look above a limit, less what is usual.
    fn excess(&self) -> Counts {
        let usual = |m| self.baseline.mean(m) * self.seen_time.as_secs_f64();
        let less = |value: u64, usual: f64| (value as f64 - usual).max(0.0) as u64;
        let seen = &self.seen;
        let tcp_usual = (usual(Measure::Packets)
            - [Measure::Syn, Measure::SynAck, Measure::Udp, Measure::Icmp].into_iter().map(usual).sum::<f64>())
        .max(0.0);
        Counts {
            syn: less(seen.syn, usual(Measure::Syn)),
            syn_ack: less(seen.syn_ack, usual(Measure::SynAck)),
            tcp: less(seen.tcp, tcp_usual),
            udp: less(seen.udp, usual(Measure::Udp)),
            icmp: less(seen.icmp, usual(Measure::Icmp)),
            fragments: less(seen.fragments, usual(Measure::Fragments)),
            ..*seen
        }
    }

    /// Sources that are to be remembered now: an attack begins in the middle of a look, and is seen some looks later.
    fn regular(&mut self, samples: &[Packet], config: &DetectConfig) -> Vec<IpAddr> {
        if self.attack.is_some() || !self.baseline.above(&self.rates, 1.0, config).is_empty() {
            self.pending.clear();
            return Vec::new();
        }
        self.pending.push_back(samples.iter().filter(|p| is_remembered(p)).map(|p| p.source).collect());
        if self.pending.len() <= PENDING_WINDOWS { Vec::new() } else { self.pending.pop_front().unwrap_or_default() }
    }

    /// A look while there is no attack; a new attack with its first events.
    fn calm(&mut self, look: &Look<'_>, config: &DetectConfig, number: u64, room: usize) -> Vec<(Duration, Happened)> {
        let above = self.baseline.above(&self.rates, 1.0, config);
        if above.is_empty() {
            self.forget();
            self.calm_time += look.time;
            self.baseline.learn(&self.rates, look.time, config);
            // They say what a mitigation in shadow would do to regular sources, and nothing else.
            for packet in look.samples.iter().filter(|_| config.shadow.is_used()) {
                self.known.see(packet.source, look.now, room);
            }
            return Vec::new();
        }
        if self.above == 0 {
            self.since = look.now.saturating_sub(look.time);
        }
        self.above += 1;
        self.seen.add(look.counts);
        self.seen_time += look.time;
        self.samples.extend_from_slice(look.samples);
        // Where many prefixes are attacked at once, each has few of the samples: sources and ports are waited for, but not for long.
        let has_samples = self.samples.len() >= 2 * SAMPLES_MIN || self.above >= SAMPLES_WAIT_FACTOR * config.confirm;
        if self.above < config.confirm || !has_samples {
            return Vec::new();
        }
        let remembers = self.calm_time.as_secs_f64() >= config.baseline.after_s;
        let finding = Finding { remembers, ..classify(&self.excess(), &self.samples) };
        let kind = finding.kind;
        let (attack, steps) = Attack::begin(number, (self.since, look.now), finding, &above, self.prefix, config);
        let began = Happened::Began(picture(above, &self.rates, look.counts, &self.samples, kind));
        self.attack = Some(attack);
        self.forget();
        std::iter::once(began).chain(steps).map(|what| (self.since, what)).collect()
    }
}

impl Detector {
    /// For the protected prefixes, in the order of their numbers. Nothing has been learned yet.
    pub fn new(config: DetectConfig, protected: &[Prefix]) -> Self {
        let prefixes = protected.iter().map(|&p| Watched::new(p)).collect();
        Self { config, prefixes, attacks: 0, revision: 0, regular: Vec::new() }
    }

    /// Other settings or prefixes from now on. What was learned about a prefix that stays, and an attack on it, goes on.
    pub fn reconfigure(&mut self, config: DetectConfig, protected: &[Prefix]) {
        let mut old: HashMap<Prefix, Watched> = self.prefixes.drain(..).map(|w| (w.prefix, w)).collect();
        self.prefixes = protected.iter().map(|&p| old.remove(&p).unwrap_or_else(|| Watched::new(p))).collect();
        let before = std::mem::replace(&mut self.config, config);
        for attack in self.prefixes.iter_mut().filter_map(|w| w.attack.as_mut()) {
            attack.reconfigure(&before, &self.config);
        }
        self.revision += 1;
    }

    /// Attacks on prefixes that are not among `protected` are over as far as is seen from here: what was done about them is done no more.
    pub fn end_attacks(&mut self, protected: &[Prefix], now: Duration, at: jiff::Timestamp) -> Vec<ShieldEvent> {
        let mut events = Vec::new();
        for watched in self.prefixes.iter_mut().filter(|watched| !protected.contains(&watched.prefix)) {
            let Some(attack) = watched.attack.take() else { continue };
            events.push(ShieldEvent {
                timestamp: at.to_string(),
                attack: attack.number,
                prefix: watched.name(),
                class: attack.class(),
                since_s: now.saturating_sub(attack.began).as_secs_f64(),
                what: attack.end(),
            });
            self.revision += 1;
        }
        events
    }

    /// The usual rates of each prefix.
    pub fn baselines(&self) -> impl Iterator<Item = (Prefix, &Baseline)> {
        self.prefixes.iter().map(|w| (w.prefix, &w.baseline))
    }

    /// Takes what was learned earlier about prefixes of which nothing is known yet.
    pub fn recall(&mut self, learned: &Learned) {
        for watched in self.prefixes.iter_mut().filter(|w| w.baseline.learned().is_zero()) {
            watched.baseline = learned.get(watched.prefix).unwrap_or_default();
        }
    }

    /// Judges a window that ended at `now`, by a monotonic clock; `at` is the same moment by wall clock.
    pub fn step(&mut self, window: &Window, now: Duration, at: jiff::Timestamp) -> Vec<ShieldEvent> {
        if window.time.is_zero() || window.time > Duration::from_millis(self.config.every_ms) * LATE_FACTOR {
            return Vec::new();
        }
        self.regular.clear();
        let mut samples: Vec<Vec<Packet>> = vec![Vec::new(); self.prefixes.len()];
        for (number, packet) in &window.samples {
            if let Some(of_prefix) = samples.get_mut(*number) {
                of_prefix.push(*packet);
            }
        }
        let applied: HashMap<String, u64> = window.applied.iter().cloned().collect();
        let (mut events, mut withdrawn) = (Vec::new(), false);
        let room = known::room(self.prefixes.len());
        self.set_ceilings(window);
        for ((watched, counts), samples) in self.prefixes.iter_mut().zip(&window.prefixes).zip(&samples) {
            let look = Look { now, time: window.time, counts, samples, applied: &applied, pending: window.pending };
            watched.rates = Rates::of(counts, window.time);
            self.regular.extend(watched.regular(samples, &self.config));
            let (number, class, happened) = if let Some(mut attack) = watched.attack.take() {
                let rules = attack.rules().count();
                let happened = attack.look(&look, &watched.baseline, &watched.known, watched.prefix, &self.config);
                withdrawn |= attack.rules().count() < rules;
                let key = (attack.number, attack.class());
                let began = attack.began;
                if !happened.iter().any(|what| matches!(what, Happened::Ended { .. })) {
                    watched.attack = Some(attack);
                }
                (key.0, key.1, happened.into_iter().map(|what| (began, what)).collect())
            } else {
                let happened = watched.calm(&look, &self.config, self.attacks + 1, room);
                let Some(attack) = &watched.attack else { continue };
                self.attacks += 1;
                (attack.number, attack.class(), happened)
            };
            let prefix = watched.name();
            events.extend(happened.into_iter().map(|(began, what)| ShieldEvent {
                timestamp: at.to_string(),
                attack: number,
                prefix: prefix.clone(),
                class,
                since_s: (now - began).as_secs_f64(),
                what,
            }));
        }
        let is_step = |e: &ShieldEvent| {
            matches!(e.what, Happened::Mitigating { .. } | Happened::Shadowed { .. } | Happened::Ended { .. })
        };
        if withdrawn || events.iter().any(is_step) {
            self.revision += 1;
        }
        events
    }

    /// The machine's capacity less the traffic of the others is each prefix's limit: only one that has most of it can be above. While there is an attack, it
    /// stays as it was: drops cost less than what they are about, and would have it look harmless.
    fn set_ceilings(&mut self, window: &Window) {
        if self.prefixes.iter().any(|watched| watched.attack.is_some()) {
            return;
        }
        let pps = |packets: u64| packets as f64 / window.time.as_secs_f64();
        for (watched, counts) in self.prefixes.iter_mut().zip(&window.prefixes) {
            let others = pps(window.packets.saturating_sub(counts.packets));
            watched.baseline.set_ceiling(window.ceiling.map(|ceiling| (ceiling - others).max(ceiling / 2.0)));
        }
    }

    /// Changes whenever [`Detector::rules`] may have changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The rules of all mitigations, to be put behind the management rules by [`super::insert`].
    pub fn rules(&self) -> Vec<Rule> {
        self.prefixes.iter().filter_map(|w| w.attack.as_ref()).flat_map(Attack::rules).collect()
    }

    /// Rules of the mitigations that continue if only `protected` is watched.
    pub fn rules_for(&self, protected: &[Prefix]) -> Vec<Rule> {
        let stays = self.prefixes.iter().filter(|w| protected.contains(&w.prefix));
        stays.filter_map(|w| w.attack.as_ref()).flat_map(Attack::rules).collect()
    }

    /// The state of each prefix, in the order of their numbers.
    pub fn states(&self) -> impl Iterator<Item = State<'_>> {
        self.prefixes.iter().map(|w| State {
            prefix: w.prefix,
            rates: w.rates,
            learning_s: w.baseline.learning_s(&self.config),
            limits: Measure::ALL.map(|m| w.baseline.limit(m, &self.config)),
            attack: w.attack.as_ref(),
        })
    }

    /// Sources of the last look that are to be remembered: there was no attack on what they sent to.
    pub fn regular(&self) -> &[IpAddr] {
        &self.regular
    }

    pub fn config(&self) -> &DetectConfig {
        &self.config
    }

    pub fn attacks(&self) -> u64 {
        self.attacks
    }
}

/// A SYN alone says nothing: anybody's address can be in it.
fn is_remembered(packet: &Packet) -> bool {
    Kind::of(packet) != Kind::Syn
}

/// State of a prefix.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    pub prefix: Prefix,
    /// Rates of the last look.
    pub rates: Rates,
    /// Seconds until limits that are learned count; 0: they do, or none are learned.
    pub learning_s: f64,
    /// Limits in the order of [`Measure::ALL`].
    pub limits: [Option<Limit>; Measure::ALL.len()],
    pub attack: Option<&'a Attack>,
}

/// The attack as people see it. `kind` is that of most of its packets; the UDP beside an attack of another kind is not the attack's.
pub(super) fn picture(above: Vec<Exceeded>, rates: &Rates, counts: &Counts, samples: &[Packet], kind: Kind) -> Picture {
    let sources = mix::sources(samples.iter()).into_iter();
    let ports = if kind == Kind::Udp { mix::udp_ports(samples.iter()) } else { Vec::new() }.into_iter();
    let name = |prefix: Prefix| match prefix.len {
        32 => prefix.address.to_string(),
        len => format!("{}/{len}", prefix.address),
    };
    Picture {
        exceeded: above,
        pps: rates.get(Measure::Packets),
        bps: rates.get(Measure::Bits),
        sources: counts.sources.round(),
        top_sources: sources.take(TOP_MAX).map(|(p, part)| Share { name: name(p), share: part }).collect(),
        top_ports: ports.take(TOP_MAX).map(|(p, part)| Share { name: p.to_string(), share: part }).collect(),
    }
}
