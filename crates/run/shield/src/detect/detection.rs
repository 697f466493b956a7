//! Detection for one shield: counters in, events out, rules out.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bpf::filter::{ShieldCounts, Watch, WatchConfig};
use host::{Root, counters::cpu_times};
use model::{
    shield::{AttackStatus, SourceStatus},
    shield_event::{Happened, ShieldEvent},
};
use rules::{Action, Prefix, Rule, compile::Counters, detect::DetectConfig, tables::RuleCount};
use serve::{OutputSettings, Outputs, OutputsChange, ServeError};

use super::{Detector, Heavy, Learned, Reader, Window, headroom::Headroom};
use crate::{events::event, metrics};

/// Status text of an attack before its first step.
const NO_ACTION: &str = "nothing yet";
/// Sources that `status` shows.
const SOURCES_MAX: usize = 8;

/// The outputs that a configuration asks for.
fn wanted(config: &DetectConfig) -> OutputSettings {
    OutputSettings {
        events: config.events.clone(),
        hook: config.hook.as_ref().map(|hook| (hook.run.clone(), hook.timeout())),
        metrics_file: config.metrics.file.clone(),
        metrics_port: config.metrics.port,
    }
}

/// Detects attacks. Whoever has it calls [`Detection::look`] every [`DetectConfig::every_ms`] and makes the rules hold that it gives.
#[derive(Debug)]
pub struct Detection {
    interface: String,
    protected: Vec<Prefix>,
    reader: Reader,
    detector: Detector,
    heavy: Heavy,
    headroom: Headroom,
    outputs: Outputs,
    last: Last,
    attacks: Vec<AttackStatus>,
    revision: u64,
    /// The moment from which rules are given again that do not hold yet.
    due: Option<Instant>,
    started: Instant,
}

/// Counts at the last look.
#[derive(Debug)]
struct Last {
    /// Packets of the interface.
    packets: u64,
    /// Counts of the mitigations' rules.
    rules: HashMap<String, RuleCount>,
    /// The moment at which they were read.
    at: Instant,
}

/// The outcome of one look.
#[derive(Debug, Default)]
pub struct Seen {
    /// Events. The log and the hook have them already.
    pub events: Vec<ShieldEvent>,
    /// All mitigations' rules, if they are others than before: they are to hold in place of those.
    pub rules: Option<Vec<Rule>>,
    /// Failures of the log, the hook and the metrics.
    pub failures: Vec<ServeError>,
}

/// A configuration and prefixes that take the place of others. All that can fail has been done.
#[derive(Debug)]
pub struct Change {
    config: DetectConfig,
    protected: Vec<Prefix>,
    watch: Option<Watch>,
    outputs: OutputsChange,
}

impl Change {
    /// The configuration for [`bpf::filter::Shield::load`]; none: that of before.
    pub fn watch(&self) -> Option<&WatchConfig> {
        self.watch.as_ref().map(Watch::config)
    }

    /// The prefixes that are protected from then on.
    pub fn protected(&self) -> &[Prefix] {
        &self.protected
    }
}

impl Detection {
    /// Begins to watch `protected` on `interface` through `watch`, which was made or opened for as many prefixes.
    ///
    /// # Errors
    /// The file of events, the hook's thread or the port of the metrics cannot be had.
    pub fn start(
        interface: &str,
        config: DetectConfig,
        protected: &[Prefix],
        watch: Watch,
    ) -> Result<Self, ServeError> {
        Ok(Self {
            interface: interface.to_owned(),
            protected: protected.to_vec(),
            reader: Reader::new(watch),
            outputs: Outputs::start(&wanted(&config))?,
            detector: Detector::new(config, protected),
            heavy: Heavy::default(),
            headroom: Headroom::default(),
            last: Last { packets: 0, rules: HashMap::new(), at: Instant::now() },
            attacks: Vec::new(),
            revision: 0,
            due: None,
            started: Instant::now(),
        })
    }

    /// The configuration for [`bpf::filter::Shield::load`].
    pub fn watch(&self) -> &WatchConfig {
        self.reader.watch().config()
    }

    pub fn protected(&self) -> &[Prefix] {
        &self.protected
    }

    /// Opens what `config` needs and is not open yet. `watch` is for `protected`; none: the same prefixes stay.
    ///
    /// # Errors
    /// As for [`Detection::start`]; nothing has changed.
    pub fn prepare(
        &self,
        config: DetectConfig,
        protected: &[Prefix],
        watch: Option<Watch>,
    ) -> Result<Change, ServeError> {
        let outputs = OutputsChange::open(&wanted(&config), &wanted(self.detector.config()))?;
        Ok(Change { config, protected: protected.to_vec(), watch, outputs })
    }

    /// Goes by `change` from now on. What was learned about prefixes that stay, and attacks on them, go on.
    pub fn change(&mut self, change: Change) -> Vec<ServeError> {
        let failures = self.end_attacks(&change.protected);
        if let Some(watch) = change.watch {
            self.reader = Reader::new(watch);
        }
        self.outputs.change(change.outputs);
        self.detector.reconfigure(change.config, &change.protected);
        // The caller has their rules: Detector::rules_for.
        self.revision = self.detector.revision();
        self.protected = change.protected;
        let names: Vec<String> = self.protected.iter().map(|p| format!("{}/{}", p.address, p.len)).collect();
        self.attacks.retain(|attack| names.contains(&attack.prefix));
        failures
    }

    /// Ends for good: attacks are over, the file of metrics goes, and a hook whose program still runs is not waited for.
    pub fn end(mut self) -> Vec<ServeError> {
        let failures = self.end_attacks(&[]);
        self.outputs.end_metrics();
        self.outputs.let_hook_end();
        failures
    }

    /// Goes on in the file of events that is at its path now, after a reload.
    pub fn follow_log(&mut self) -> Option<ServeError> {
        self.outputs.follow_log()
    }

    /// Takes what was learned earlier about prefixes of which nothing is known yet.
    pub fn recall(&mut self, learned: &Learned) {
        self.detector.recall(learned);
    }

    /// Has the first look be at what comes from now on.
    pub fn begin_now(&mut self) {
        self.reader.look();
    }

    /// Goes by the interface's new name.
    pub fn rename(&mut self, interface: &str) {
        interface.clone_into(&mut self.interface);
    }

    /// Looks at what came since the last look. `read` reads the shield's counts, by the slots of `counters`.
    pub fn look(&mut self, read: impl FnOnce() -> ShieldCounts, counters: &Counters) -> Seen {
        let mut window = self.reader.look();
        let now = Instant::now();
        let counts = &read();
        let counted = now - std::mem::replace(&mut self.last.at, now);
        window.pending = self.due.is_some();
        self.heavy.look(&window);
        let mut before = std::mem::take(&mut self.last.rules);
        for rule in self.detector.rules() {
            let Some(count) = counters.count(&rule.name, &counts.rules) else { continue };
            // A rule of that name may have counted in an earlier attack.
            let last = before.remove(&rule.name).unwrap_or(count);
            let of =
                |count: &RuleCount| if matches!(rule.action, Action::Limit(_)) { count.limited } else { count.packets };
            let applied = of(&count).saturating_sub(of(&last));
            window.applied.push((rule.name.clone(), within(applied, counted, window.time)));
            self.last.rules.insert(rule.name, count);
        }
        self.look_at_cpus(counts, &mut window);
        let mut seen = Seen {
            events: self.detector.step(&window, self.started.elapsed(), jiff::Timestamp::now()),
            ..Seen::default()
        };
        if self.detector.revision() != self.revision || self.due.is_some_and(|due| due <= Instant::now()) {
            (self.revision, self.due) = (self.detector.revision(), None);
            seen.rules = Some(self.detector.rules());
        }
        seen.failures.extend(self.outputs.emit(seen.events.iter().map(event)));
        let Self { outputs, interface, detector, .. } = self;
        outputs.publish(|| {
            let rules: Vec<_> = counters.iter(&counts.rules).map(|(name, count)| (name.to_owned(), count)).collect();
            metrics::metrics(interface, &counts.totals, &rules, Some(detector))
        });
        seen.failures.extend(self.outputs.failures());
        self.note(&seen.events);
        seen
    }

    /// Fills in what the machine takes in.
    fn look_at_cpus(&mut self, counts: &ShieldCounts, window: &mut Window) {
        // What is answered counts as challenged alone; what a challenge drops counts twice, which makes the limit no lower than it should be.
        let packets = counts.totals.passed + counts.totals.dropped + counts.totals.challenged;
        window.packets = packets.saturating_sub(std::mem::replace(&mut self.last.packets, packets));
        let (baseline, now) = (&self.detector.config().baseline, self.started.elapsed());
        if !baseline.learn || baseline.busy_max >= 1.0 {
            self.headroom = Headroom::default();
        } else if self.headroom.is_due(now) {
            // A machine without /proc/stat has no such limit.
            let cpus = Root::live().read("proc/stat").map(|text| cpu_times(&text)).unwrap_or_default();
            self.headroom.look(now, packets, cpus, baseline.busy_max);
        }
        window.ceiling = self.headroom.ceiling();
    }

    /// Reports to the log and the hook that attacks on prefixes beyond `protected` are over: nothing is done about them any more.
    pub fn end_attacks(&mut self, protected: &[Prefix]) -> Vec<ServeError> {
        let events = self.detector.end_attacks(protected, self.started.elapsed(), jiff::Timestamp::now());
        self.outputs.emit(events.iter().map(event))
    }

    /// Takes the file of metrics away.
    pub fn end_metrics(&mut self) {
        self.outputs.end_metrics();
    }

    /// Has the rules of the last look, which do not hold yet, given again after so long.
    pub fn give_again(&mut self, after: Duration) {
        self.due = Some(Instant::now() + after);
    }

    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// The attacks that go on, as `status` shows them.
    pub fn attacks(&self) -> &[AttackStatus] {
        &self.attacks
    }

    /// The sources that send most just now, as `status` shows them.
    pub fn sources(&self) -> Vec<SourceStatus> {
        let name = |prefix: Prefix| match prefix.len {
            32 => prefix.address.to_string(),
            len => format!("{}/{len}", prefix.address),
        };
        let top = self.heavy.top(SOURCES_MAX).into_iter();
        top.map(|(prefix, pps)| SourceStatus { source: name(prefix), pps }).collect()
    }

    /// Takes down what is shown of these events.
    fn note(&mut self, events: &[ShieldEvent]) {
        events.iter().for_each(|event| self.note_event(event));
        for attack in &mut self.attacks {
            let found = self.detector.states().filter_map(|state| state.attack).find(|it| it.number == attack.number);
            if let Some(found) = found {
                attack.since_s = self.started.elapsed().saturating_sub(found.began).as_secs_f64();
            }
        }
    }

    fn note_event(&mut self, event: &ShieldEvent) {
        let at = self.attacks.iter().position(|attack| attack.number == event.attack);
        let at = at.unwrap_or_else(|| {
            self.attacks.push(AttackStatus {
                number: event.attack,
                prefix: event.prefix.clone(),
                class: String::new(),
                since_s: 0.0,
                mitigation: NO_ACTION.to_owned(),
                shadow: false,
            });
            self.attacks.len() - 1
        });
        let attack = &mut self.attacks[at];
        (attack.class, attack.since_s) = (event.class.to_string(), event.since_s);
        match &event.what {
            Happened::Began(_) | Happened::Reclassified { .. } => {}
            Happened::Mitigating { step, steps, shadow, action, .. } => {
                attack.mitigation = format!("step {step} of {steps}: {action}");
                attack.shadow = *shadow;
            }
            Happened::Shadowed { would_apply_pps, legitimate_share, .. } => {
                let legitimate = legitimate_share.map_or_else(String::new, |part| {
                    format!(", {} of the traffic of known sources", model::units::percent(part))
                });
                attack.mitigation = format!("would apply to {}{legitimate}", model::units::pps(*would_apply_pps));
            }
            Happened::Exhausted { unmitigated_pps } => {
                let mut states = self.detector.states().filter_map(|state| state.attack);
                let acts = states.any(|it| it.number == event.attack && it.rules().next().is_some());
                if attack.mitigation == NO_ACTION || !acts {
                    attack.mitigation = "nothing: no step of the ladder applies".to_owned();
                }
                let (through, at) =
                    (model::units::pps(*unmitigated_pps), event.timestamp.get(11..19).unwrap_or(&event.timestamp));
                attack.mitigation = format!("NO STEP LEFT: {through} came through at {at} UTC; {}", attack.mitigation);
            }
            Happened::Ended { .. } => {
                self.attacks.remove(at);
            }
        }
    }
}

/// Of what was counted in a time `of`, what falls to `time`: on a busy machine the process may be held up between the readings of two counters, and what
/// came meanwhile is in one alone.
fn within(count: u64, of: Duration, time: Duration) -> u64 {
    if of.is_zero() { count } else { (count as f64 * time.as_secs_f64() / of.as_secs_f64()).round() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_were_read_later_are_those_of_the_same_time() {
        let ms = Duration::from_millis;
        // 25,000 packets/s, all dropped; the process was held up for 30 ms between the readings, and in the look after that not.
        assert_eq!(within(2000, ms(80), ms(50)), 1250);
        assert_eq!(within(1250, ms(50), ms(80)), 2000);
        assert_eq!(within(7, Duration::ZERO, ms(50)), 7);
    }
}
