//! An attack on one prefix, from its first look above a limit to its end.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use model::shield_event::{AttackClass, Exceeded, Happened, Measure};
use rules::detect::{DetectConfig, StepConfig};
use rules::{Prefix, Rule, packet::Packet};

use super::{
    baseline::Baseline,
    classify::{Finding, SAMPLES_MIN, classify},
    effect::{self, Effect},
    known::Known,
    ladder,
    mix::{self, Kind},
    window::{Counts, Rates},
};

/// `only` reports what would be dropped after this long.
const ONLY_REPORT_DELAY: Duration = Duration::from_secs(1);

/// A step that has ended less than this part of the traffic after so many seconds is not waited for any longer.
const EFFECT_MIN: f64 = 0.1;
const EFFECT_TIMEOUT_S: f64 = 0.15;

/// The result of one look at one prefix.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    pub now: Duration,
    pub time: Duration,
    /// Traffic to the prefix.
    pub counts: &'a Counts,
    pub samples: &'a [Packet],
    /// Packets that rules applied to, by name.
    pub applied: &'a HashMap<String, u64>,
    /// The rules of the last step did not hold yet when it ended.
    pub pending: bool,
}

#[derive(Debug, Clone)]
pub struct Attack {
    /// Number of the attack, from 1.
    pub number: u64,
    /// The attack as it is now believed to be.
    pub finding: Finding,
    /// No limit is exceeded but what the machine takes in: it may be that its users want more than that.
    busy_alone: bool,
    /// The first and the last look above a limit.
    pub began: Duration,
    last_above: Duration,
    peak: Rates,
    packets: u64,
    steps: Steps,
    judgement: Judgement,
    /// The ladder has changed: the next look begins it anew.
    anew: bool,
}

/// The steps that were taken, and their rules.
#[derive(Debug, Clone, Default)]
struct Steps {
    /// Number of steps against each form that the attack has had.
    taken: BTreeMap<(AttackClass, Kind), usize>,
    /// Rules that act, of all steps so far.
    acting: Vec<Rule>,
    /// Rules of the last step while they only count.
    shadow: Vec<Rule>,
    /// Description of the last step.
    words: String,
    exhausted: bool,
}

/// The judgement of the rules that were changed last.
#[derive(Debug, Clone, Default)]
struct Judgement {
    since: Duration,
    effect: Effect,
    /// Looks since the last judgement of what comes through.
    rest: Rest,
    /// Judgements in a row in which too much came through: one alone may be of counters that were not read at the same moment.
    through: u32,
    /// Judgements in a row in which something came through that no step has met.
    unmet: u32,
    reported: bool,
    /// The rules have changed since the last look that is to be judged: the look in which they began to hold has frames of before.
    fresh: bool,
}

/// Looks together, until they have enough samples: where many prefixes are attacked, each has few.
#[derive(Debug, Clone, Default)]
struct Rest {
    time: Duration,
    counts: Counts,
    samples: Vec<Packet>,
    applied: HashMap<String, u64>,
}

/// The traffic that the steps so far let through.
struct Left {
    finding: Finding,
    above: Vec<Exceeded>,
    rates: Rates,
    unmitigated_pps: f64,
    /// Samples of what comes through.
    rest: Vec<Packet>,
    counts: Counts,
}

impl Rest {
    fn add(&mut self, look: &Look<'_>, rules: &[Rule]) {
        self.time += look.time;
        self.counts.add(look.counts);
        self.samples.extend_from_slice(look.samples);
        for rule in rules {
            if let Some(applied) = look.applied.get(&rule.name) {
                *self.applied.entry(rule.name.clone()).or_default() += applied;
            }
        }
    }
}

impl Attack {
    /// Begins one, at `now`, for what is `above` its limits since `began`, and takes its first step.
    pub fn begin(
        number: u64,
        (began, now): (Duration, Duration),
        finding: Finding,
        above: &[Exceeded],
        prefix: Prefix,
        config: &DetectConfig,
    ) -> (Self, Vec<Happened>) {
        let mut attack = Self {
            number,
            finding,
            busy_alone: is_busy_alone(above),
            began,
            last_above: now,
            peak: Rates::default(),
            packets: 0,
            steps: Steps::default(),
            judgement: Judgement { since: now, ..Judgement::default() },
            anew: false,
        };
        let events = attack.next_step(now, prefix, config).into_iter().collect();
        (attack, events)
    }

    /// The rules that are to hold now.
    pub fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        let Steps { acting, shadow, .. } = &self.steps;
        acting.iter().cloned().chain(shadow.iter().map(|rule| Rule { shadow: true, ..rule.clone() }))
    }

    /// Takes the next step against the present class that has something to act on; what nobody waits for is dropped with the one behind. Of traffic that is
    /// only more than the machine takes in, no step is taken that users lose by: it may be theirs, all of it.
    fn next_step(&mut self, now: Duration, prefix: Prefix, config: &DetectConfig) -> Option<Happened> {
        let steps = config.ladder(self.class());
        let shadow = config.shadow.is_used();
        let (mut found, mut descriptions, mut last) = (Vec::new(), Vec::new(), 0);
        while let Some(step) = steps.get(self.taken()) {
            let number = self.taken() + 1;
            let harmless = matches!(step, StepConfig::DropUnknown {} | StepConfig::Challenge {});
            if self.busy_alone && !harmless && self.finding.kind != Kind::Icmp {
                break;
            }
            self.steps.taken.insert(self.finding.form(), number);
            let Some((rules, words)) = ladder::rules(step, number, &self.finding, prefix) else { continue };
            descriptions.push(words);
            found.extend(rules);
            last = number;
            let goes_on =
                *step == StepConfig::DropUnknown {} && steps.get(number) != Some(&StepConfig::DropStrangers {});
            if !goes_on {
                break;
            }
        }
        if found.is_empty() {
            return None;
        }
        let names = found.iter().map(|r| r.name.clone()).collect();
        if shadow {
            self.steps.shadow = found;
        } else {
            self.steps.acting.extend(found);
        }
        self.begin_effect(now);
        self.steps.words = descriptions.join(", ");
        let action = self.steps.words.clone();
        Some(Happened::Mitigating { step: last, steps: steps.len(), shadow, rules: names, action })
    }

    /// Steps taken against the present form.
    fn taken(&self) -> usize {
        self.steps.taken.get(&self.finding.form()).copied().unwrap_or(0)
    }

    /// Other settings hold than `before`: what only counts by them stops acting, and counts; another ladder is begun at its foot.
    pub fn reconfigure(&mut self, before: &DetectConfig, config: &DetectConfig) {
        self.anew |= self.steps.taken.keys().any(|&(class, _)| before.ladder(class) != config.ladder(class));
        if config.shadow.only && !self.steps.acting.is_empty() {
            self.steps.shadow.splice(0..0, self.steps.acting.drain(..));
            self.begin_effect(self.judgement.since);
        }
    }

    fn begin_effect(&mut self, now: Duration) {
        self.judgement = Judgement { since: now, fresh: true, ..Judgement::default() };
    }

    /// Judges another window; [`Happened::Ended`] is its last event.
    pub fn look(
        &mut self,
        look: &Look<'_>,
        baseline: &Baseline,
        known: &Known,
        prefix: Prefix,
        config: &DetectConfig,
    ) -> Vec<Happened> {
        let rates = Rates::of(look.counts, look.time);
        for (peak, rate) in self.peak.0.iter_mut().zip(rates.0) {
            *peak = peak.max(rate);
        }
        self.packets += look.counts.packets;
        if !baseline.above(&rates, config.leave, config).is_empty() {
            self.last_above = look.now;
        } else if (look.now - self.last_above).as_secs_f64() >= config.quiet_s {
            return vec![self.end()];
        }
        if std::mem::take(&mut self.anew) {
            self.steps = Steps::default();
            // Without a step what came through in this look was met by rules that go now: the looks that follow tell.
            self.begin_effect(look.now);
            return self.next_step(look.now, prefix, config).into_iter().collect();
        }
        if std::mem::replace(&mut self.judgement.fresh, look.pending) {
            // Loading them may have taken longer than a look.
            self.judgement.since = look.now;
            return Vec::new();
        }
        let applied = |rules: &[Rule]| rules.iter().filter_map(|r| look.applied.get(&r.name)).sum::<u64>();
        let of_step = if self.steps.shadow.is_empty() { &self.steps.acting } else { &self.steps.shadow };
        // Only a shadow is judged by its samples, and `only` reports once: nobody asks for more, which would grow with the attack.
        let samples = if self.steps.shadow.is_empty() || self.judgement.reported { &[] } else { look.samples };
        // Of rules that only count, several count one packet.
        self.judgement.effect.add(look.time, look.counts.packets, applied(of_step).min(look.counts.packets), samples);
        if self.steps.shadow.is_empty() {
            self.escalate(look, baseline, prefix, config)
        } else {
            self.judge_shadow(look.now, known, prefix, config)
        }
    }

    /// The rules of a step have counted long enough: act, or try the next step.
    fn judge_shadow(&mut self, now: Duration, known: &Known, prefix: Prefix, config: &DetectConfig) -> Vec<Happened> {
        let wait = Duration::from_secs_f64(config.shadow.first_s).max(if config.shadow.only {
            ONLY_REPORT_DELAY
        } else {
            Duration::ZERO
        });
        if (self.judgement.reported && config.shadow.only) || now - self.judgement.since < wait {
            return Vec::new();
        }
        self.judgement.reported = true;
        let (legitimate_seen, legitimate_share) =
            self.judgement.effect.legitimate(&self.steps.shadow, known, self.began);
        let acts = !config.shadow.only && legitimate_share.is_none_or(|part| part <= config.shadow.legitimate_max);
        let would_apply_pps = self.judgement.effect.applied as f64 / self.judgement.effect.time.as_secs_f64().max(1e-3);
        let mut events = vec![Happened::Shadowed {
            step: self.taken(),
            would_apply_pps,
            legitimate_share,
            legitimate_seen,
            enforced: acts,
        }];
        if acts {
            let rules = std::mem::take(&mut self.steps.shadow);
            let names = rules.iter().map(|r| r.name.clone()).collect();
            self.steps.acting.extend(rules);
            self.begin_effect(now);
            let (step, steps, action) = (self.taken(), config.ladder(self.class()).len(), self.steps.words.clone());
            events.push(Happened::Mitigating { step, steps, shadow: false, rules: names, action });
        } else if !config.shadow.only {
            self.steps.shadow.clear();
            events.extend(self.next_step(now, prefix, config));
        }
        events
    }

    /// If too much still comes through in as many looks as make an attack, the next step against what that is; its class may be another one by now. A step
    /// is given time to act, unless it is in vain; what no step has met yet is not waited for.
    fn escalate(
        &mut self,
        look: &Look<'_>,
        baseline: &Baseline,
        prefix: Prefix,
        config: &DetectConfig,
    ) -> Vec<Happened> {
        self.judgement.rest.add(look, &self.steps.acting);
        if self.judgement.rest.samples.len() < SAMPLES_MIN {
            return Vec::new();
        }
        let rest = std::mem::take(&mut self.judgement.rest);
        let left = self.left(&rest, baseline, config);
        let count = |counted: u32, more: bool| if more { counted + 1 } else { 0 };
        self.judgement.through = count(self.judgement.through, left.is_some());
        self.judgement.unmet = count(self.judgement.unmet, left.as_ref().is_some_and(|left| self.is_unmet(left)));
        let waited = (look.now - self.judgement.since).as_secs_f64();
        let is_over = waited >= config.patience_s || (waited >= EFFECT_TIMEOUT_S && self.is_in_vain());
        if self.judgement.unmet < config.confirm && !(is_over && self.judgement.through >= config.confirm) {
            return Vec::new();
        }
        (self.judgement.through, self.judgement.unmet) = (0, 0);
        let Some(Left { finding, above, rates, unmitigated_pps, rest, counts }) = left else { return Vec::new() };
        let busy_alone = is_busy_alone(&above);
        let mut events = Vec::new();
        if finding.class != self.finding.class {
            let now = super::picture(above, &rates, &counts, &rest, finding.kind);
            events.push(Happened::Reclassified { from: self.finding.class, now });
        }
        (self.finding, self.busy_alone) = (finding, busy_alone);
        // Met from now on, also where no step of its ladder applies.
        self.steps.taken.entry(self.finding.form()).or_default();
        if let Some(next) = self.next_step(look.now, prefix, config).or_else(|| self.refresh(look.now, prefix, config))
        {
            events.push(next);
        } else if !self.steps.exhausted {
            self.steps.exhausted = true;
            events.push(Happened::Exhausted { unmitigated_pps });
        }
        events
    }

    /// True if no step has met this form yet. Samples do not say which of them begin a flow: what is left of those is guessed.
    fn is_unmet(&self, left: &Left) -> bool {
        let is_sure = left.above.iter().any(|above| above.measure != Measure::NewFlows);
        is_sure && !self.steps.taken.contains_key(&left.finding.form())
    }

    /// The part of `rest` that passes, if it is above a limit.
    fn left(&self, rest: &Rest, baseline: &Baseline, config: &DetectConfig) -> Option<Left> {
        let rates = Rates::of(&rest.counts, rest.time);
        let weighed = effect::left_over(&rest.samples, &self.steps.acting, &rest.applied, rest.counts.packets);
        let mut through = rates;
        for measure in Measure::ALL {
            through.0[measure as usize] *= effect::part_left(&weighed, measure);
        }
        let above = baseline.above(&through, 1.0, config);
        if above.is_empty() {
            return None;
        }
        let samples: Vec<Packet> = weighed.iter().filter(|(_, part)| *part > 0.0).map(|(p, _)| *p).collect();
        let finding = Finding { remembers: self.finding.remembers, ..classify(&mix::counts(samples.iter()), &samples) };
        let unmitigated_pps = through.get(Measure::Packets);
        Some(Left { finding, above, rates, unmitigated_pps, rest: samples, counts: rest.counts })
    }

    /// The steps so far have hardly ended anything.
    fn is_in_vain(&self) -> bool {
        (self.judgement.effect.applied as f64) < EFFECT_MIN * self.judgement.effect.packets as f64
    }

    /// No step is left: what names sources or ports may name those that have joined since.
    fn refresh(&mut self, now: Duration, prefix: Prefix, config: &DetectConfig) -> Option<Happened> {
        let steps = config.ladder(self.class());
        for (number, step) in (1..).zip(&steps) {
            let Some((rules, words)) = ladder::rules(step, number, &self.finding, prefix) else { continue };
            let mut names = Vec::new();
            for new in rules {
                let Some(old) = self.steps.acting.iter_mut().find(|old| old.name == new.name) else { continue };
                if add_new(&mut old.when.source, &new.when.source)
                    | add_new(&mut old.when.source_port, &new.when.source_port)
                {
                    names.push(new.name);
                }
            }
            if !names.is_empty() {
                self.begin_effect(now);
                return Some(Happened::Mitigating {
                    step: number,
                    steps: steps.len(),
                    shadow: false,
                    rules: names,
                    action: words,
                });
            }
        }
        None
    }

    /// Summary of an attack that is over.
    pub fn end(&self) -> Happened {
        Happened::Ended {
            duration_s: (self.last_above - self.began).as_secs_f64(),
            peak_pps: self.peak.get(Measure::Packets),
            peak_bps: self.peak.get(Measure::Bits),
            packets: self.packets,
            rules: self.rules().map(|r| r.name).collect(),
        }
    }

    pub fn class(&self) -> AttackClass {
        self.finding.class
    }
}

/// True if only the machine's own limit is exceeded.
fn is_busy_alone(above: &[Exceeded]) -> bool {
    above.iter().all(|above| above.headroom)
}

/// Values that one rule names, at most: more are for a set.
const VALUES_MAX: usize = 256;

/// Adds to `to` what of `from` is not in it. True: something was.
fn add_new<T: PartialEq + Clone>(to: &mut Vec<T>, from: &[T]) -> bool {
    // An empty list says nothing about the packet: it stays so.
    let before = to.len();
    if before > 0 {
        for value in from {
            if to.len() < VALUES_MAX && !to.contains(value) {
                to.push(value.clone());
            }
        }
    }
    to.len() > before
}
