//! Metrics for Prometheus: what there is to count, in a file or over HTTP on the loopback address.
//!
//! Each name has one unit and one quantity, in base units. Labels do not change their value over time: what changes is a value.

mod family;
mod file;
mod server;

use model::shield::Totals;
use model::shield_event::{AttackClass, Measure};
use rules::tables::RuleCount;

use self::family::{Family, Kind};
pub use self::{
    family::{Metrics, Notation},
    file::MetricsFile,
    server::MetricsServer,
};
use crate::detect::{Detector, State};

/// All metrics of one moment.
pub fn metrics(
    interface: &str,
    totals: &Totals,
    rules: &[(String, RuleCount)],
    detector: Option<&Detector>,
) -> Metrics {
    let mut families = vec![
        Family::new(Kind::Info, "evenkeel_build", "The program that gives these metrics.")
            .with(&[("version", env!("CARGO_PKG_VERSION"))], 1),
    ];
    of_frames(&mut families, interface, totals);
    of_rules(&mut families, interface, rules);
    if let Some(detector) = detector {
        of_prefixes(&mut families, interface, detector);
    }
    Metrics(families)
}

fn of_frames(families: &mut Vec<Family>, interface: &str, totals: &Totals) {
    let mut frames: Vec<Family> = Vec::new();
    for counter in Totals::COUNTERS {
        let labels: Vec<_> = [("interface", interface)].into_iter().chain(counter.label).collect();
        let at = frames.iter().position(|family| family.is(counter.metric)).unwrap_or_else(|| {
            frames.push(Family::of(counter));
            frames.len() - 1
        });
        frames[at].add(&labels, (counter.get)(totals));
    }
    families.extend(frames);
}

fn of_rules(families: &mut Vec<Family>, interface: &str, rules: &[(String, RuleCount)]) {
    let mut packets = Family::new(Kind::Counter, "evenkeel_shield_rule_packets", "Packets that a rule applied to.");
    let mut bytes =
        Family::new(Kind::Counter, "evenkeel_shield_rule_bytes", "Bytes of the frames of these packets.").in_bytes();
    let mut limited =
        Family::new(Kind::Counter, "evenkeel_shield_rule_limited_packets", "Packets that exceeded a rule's limit.");
    for (rule, count) in rules {
        let labels = [("interface", interface), ("rule", rule)];
        packets.add(&labels, count.packets);
        bytes.add(&labels, count.bytes);
        limited.add(&labels, count.limited);
    }
    families.extend([packets, bytes, limited]);
}

/// A protected prefix as labels have it.
fn name(state: &State<'_>) -> String {
    format!("{}/{}", state.prefix.address, state.prefix.len)
}

fn of_prefixes(families: &mut Vec<Family>, interface: &str, detector: &Detector) {
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let mut packets = gauge(
        "evenkeel_shield_prefix_packets_per_second",
        "Packets per second to a protected prefix in the last look, by what is measured; some measures count part of others.",
    );
    let mut bytes =
        gauge("evenkeel_shield_prefix_bytes_per_second", "Bytes per second to a protected prefix in the last look.");
    let mut packet_limit =
        gauge("evenkeel_shield_prefix_limit_packets_per_second", "The limit of the measure, where it has one.");
    let mut byte_limit =
        gauge("evenkeel_shield_prefix_limit_bytes_per_second", "The limit of bytes per second, where there is one.");
    let mut learned = gauge("evenkeel_shield_prefix_limit_learned", "1 if the limit was learned, 0 if it was given.");
    let mut under_attack =
        gauge("evenkeel_shield_under_attack", "1 while a protected prefix is under an attack of the class.");
    for state in detector.states() {
        let prefix = name(&state);
        let of_prefix = [("interface", interface), ("prefix", &*prefix)];
        for (measure, limit) in Measure::ALL.into_iter().zip(state.limits) {
            let of_measure = [of_prefix[0], of_prefix[1], ("measure", measure.word())];
            // Of bits, bytes: the base unit.
            let (rates, limits, labels, unit) = match measure {
                Measure::Bits => (&mut bytes, &mut byte_limit, &of_prefix[..], 8.0),
                _ => (&mut packets, &mut packet_limit, &of_measure[..], 1.0),
            };
            rates.add(labels, state.rates.get(measure) / unit);
            if let Some((limit, is_learned)) = limit {
                limits.add(labels, limit / unit);
                learned.add(&of_measure, u8::from(is_learned));
            }
        }
        for class in AttackClass::ALL {
            let is_so = state.attack.is_some_and(|attack| attack.class() == class);
            under_attack.add(&[of_prefix[0], of_prefix[1], ("class", class.word())], u8::from(is_so));
        }
    }
    families.extend([packets, bytes, packet_limit, byte_limit, learned, under_attack]);
    let attacks = Family::new(Kind::Counter, "evenkeel_shield_attacks", "Attacks seen since the start.");
    families.push(attacks.with(&[("interface", interface)], detector.attacks()));
}
