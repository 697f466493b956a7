//! Effect of mitigations on the traffic, estimated from samples.

use std::{collections::HashMap, time::Duration};

use rules::{Action, Match, Prefix, Rule, Rules, packet::Packet, reference};

use super::{
    known::Known,
    mix::{self, Kind},
};

/// The samples of traffic since a mitigation began to count or act, and the share that its rules apply to.
#[derive(Debug, Clone, Default)]
pub struct Effect {
    /// The time that passed.
    pub time: Duration,
    /// Packets of the prefix.
    pub packets: u64,
    /// Packets that the rules applied to, by their counters.
    pub applied: u64,
    samples: Vec<Packet>,
}

/// Samples that are kept, at most.
const SAMPLES_MAX: usize = 16_384;

impl Effect {
    pub fn add(&mut self, time: Duration, packets: u64, applied: u64, samples: &[Packet]) {
        self.time += time;
        self.packets += packets;
        self.applied += applied;
        let room = SAMPLES_MAX.saturating_sub(self.samples.len());
        self.samples.extend(samples.iter().take(room));
    }

    /// Of the samples of sources that were known before the attack: how many there are, and the part that `rules` would have
    /// dropped. A challenge drops none of them, as their clients answer; a limit per source those that exceed it.
    pub fn legitimate(&self, rules: &[Rule], known: &Known, began: Duration) -> (u64, Option<f64>) {
        let none = Rules::default();
        let per_sample = self.packets as f64 / self.samples.len().max(1) as f64 / self.time.as_secs_f64().max(1e-3);
        let mut by_source: HashMap<Prefix, f64> = HashMap::new();
        for packet in &self.samples {
            *by_source.entry(mix::source_prefix(packet.source)).or_default() += per_sample;
        }
        let matched = |when: &Match| {
            self.samples.iter().filter(|p| reference::applies(&none, when, p)).count() as f64 * per_sample
        };
        let dropped = |packet: &Packet| -> f64 {
            rules
                .iter()
                .filter(|rule| reference::applies(&none, &rule.when, packet))
                .map(|rule| match rule.action {
                    Action::Drop => 1.0,
                    Action::Limit(limit) => {
                        let pps = match limit.per_source {
                            Some(_) => by_source.get(&mix::source_prefix(packet.source)).copied().unwrap_or(0.0),
                            None => matched(&rule.when),
                        };
                        if pps > limit.pps as f64 { 1.0 - limit.pps as f64 / pps } else { 0.0 }
                    }
                    Action::Challenge | Action::Pass => 0.0,
                })
                .fold(0.0, f64::max)
        };
        let (mut seen, mut hit) = (0u64, 0.0);
        for packet in self.samples.iter().filter(|p| known.was_known(p.source, began)) {
            seen += 1;
            hit += dropped(packet);
        }
        (seen, (seen > 0).then(|| hit / seen as f64))
    }
}

/// The samples that no acting rule ends, and the part of all packets that `limited` of them stand for: a limit ends what exceeds it.
///
/// `ended` is what each rule has ended, in packets, of `packets` in all.
pub fn left_over(samples: &[Packet], rules: &[Rule], ended: &HashMap<String, u64>, packets: u64) -> Vec<(Packet, f64)> {
    let none = Rules::default();
    let per_packet = samples.len() as f64 / packets.max(1) as f64;
    let ends: Vec<f64> = rules
        .iter()
        .map(|rule| match rule.action {
            // Samples do not say what the machine knows about them: the counter does.
            Action::Limit(_) | Action::Drop if rule.action != Action::Drop || !rule.when.known.is_nothing() => {
                let matched = samples.iter().filter(|p| reference::applies(&none, &bytes_alone(rule), p)).count();
                let ended = ended.get(&rule.name).copied().unwrap_or(0) as f64 * per_packet;
                (ended / matched.max(1) as f64).min(1.0)
            }
            Action::Limit(_) | Action::Drop => 1.0,
            // It may have been left out, where there can be no cookies.
            Action::Challenge => f64::from(ended.contains_key(&rule.name)),
            Action::Pass => 0.0,
        })
        .collect();
    samples
        .iter()
        .map(|packet| {
            // A challenge is to all of TCP, but it is SYNs that it ends.
            let counts = |rule: &Rule| rule.action != Action::Challenge || Kind::of(packet) == Kind::Syn;
            let applying = rules
                .iter()
                .zip(&ends)
                .filter(|(rule, _)| counts(rule) && reference::applies(&none, &bytes_alone(rule), packet));
            (*packet, applying.map(|(_, ends)| 1.0 - ends).product())
        })
        .collect()
}

/// The conditions of a rule on a packet's bytes.
fn bytes_alone(rule: &Rule) -> Match {
    Match { known: Default::default(), ..rule.when.clone() }
}

/// The part of a measure's packets that is left over, by the weights of the samples; 1 if there are too few to tell.
pub fn part_left(weighed: &[(Packet, f64)], measure: model::shield_event::Measure) -> f64 {
    use model::shield_event::Measure;
    let weight = |packet: &Packet| -> f64 {
        match measure {
            Measure::Packets | Measure::NewFlows => 1.0,
            Measure::Bits => f64::from(packet.len),
            Measure::Syn => f64::from(Kind::of(packet) == Kind::Syn),
            Measure::SynAck => f64::from(Kind::of(packet) == Kind::SynAck),
            Measure::Udp => f64::from(Kind::of(packet) == Kind::Udp),
            Measure::Icmp => f64::from(Kind::of(packet) == Kind::Icmp),
            Measure::Fragments => f64::from(packet.part != rules::packet::Part::Whole),
        }
    };
    let all: f64 = weighed.iter().map(|(p, _)| weight(p)).sum();
    let left: f64 = weighed.iter().map(|(p, part)| weight(p) * part).sum();
    if all > 0.0 { left / all } else { 1.0 }
}
