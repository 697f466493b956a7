//! The metrics of a shield: all packets, each rule, each protected prefix.

use model::shield::Totals;
use model::shield_event::{AttackClass, Measure};
use rules::tables::RuleCount;
use serve::metrics::{Family, Kind, Metrics};

use crate::detect::{Detector, State, baseline::LimitOrigin};

/// All metrics of one moment.
pub fn metrics(
    interface: &str,
    totals: &Totals,
    rules: &[(String, RuleCount)],
    detector: Option<&Detector>,
) -> Metrics {
    let mut metrics = Metrics::default();
    let build = Family::new(Kind::Info, "evenkeel_build", "The program that gives these metrics.");
    metrics.extend([build.with(&[("version", env!("CARGO_PKG_VERSION"))], 1)]);
    metrics.add_counters(&[("interface", interface)], totals, Totals::COUNTERS);
    of_rules(&mut metrics, interface, rules);
    if let Some(detector) = detector {
        of_prefixes(&mut metrics, interface, detector);
    }
    metrics
}

fn of_rules(metrics: &mut Metrics, interface: &str, rules: &[(String, RuleCount)]) {
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
    metrics.extend([packets, bytes, limited]);
}

/// A protected prefix as labels have it.
fn name(state: &State<'_>) -> String {
    format!("{}/{}", state.prefix.address, state.prefix.len)
}

fn of_prefixes(metrics: &mut Metrics, interface: &str, detector: &Detector) {
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
            if let Some(limit) = limit {
                limits.add(labels, limit.rate / unit);
                learned.add(&of_measure, u8::from(limit.of == LimitOrigin::Learned));
            }
        }
        for class in AttackClass::ALL {
            let is_so = state.attack.is_some_and(|attack| attack.class() == class);
            under_attack.add(&[of_prefix[0], of_prefix[1], ("class", class.word())], u8::from(is_so));
        }
    }
    let attacks = Family::new(Kind::Counter, "evenkeel_shield_attacks", "Attacks seen since the start.");
    let attacks = attacks.with(&[("interface", interface)], detector.attacks());
    metrics.extend([packets, bytes, packet_limit, byte_limit, learned, under_attack, attacks]);
}
