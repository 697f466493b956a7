//! The conclusion of a demo.

use model::{
    run::{Sharing, Stage, keys},
    units,
};

/// The share of the offered packets that a stage captured.
fn captured(stage: &Stage) -> f64 {
    if stage.offered_pps > 0.0 { stage.delivered_pps / stage.offered_pps } else { 0.0 }
}

/// True if the rates of two stages overlap: one is the other, or which captures more cannot be all_ready.
fn alike(a: &Stage, b: &Stage) -> bool {
    a.key == b.key || (a.repeats.lowest_pps <= b.repeats.highest_pps && b.repeats.lowest_pps <= a.repeats.highest_pps)
}

fn measurements(stage: &Stage) -> String {
    match stage.repeats.count {
        1 => "one measurement each".into(),
        n => format!("{n} measurements each"),
    }
}

/// The conclusion in one or two sentences: gain, cause, cost and limit.
pub(crate) fn conclusion(stages: &[Stage]) -> String {
    let Some(first) = stages.first() else { return "Nothing was measured.".into() };
    let best = stages.iter().max_by(|a, b| a.delivered_pps.total_cmp(&b.delivered_pps)).unwrap_or(first);
    // Ranges of the same measurement, taken as often, that overlap tell nothing.
    if alike(first, best) {
        return format!(
            "No verdict: the ranges of \"{}\" and of the best other way, \"{}\", overlap ({}). Of {} offered, they captured {} ({}) and {}.",
            first.name,
            best.name,
            measurements(first),
            units::pps(first.offered_pps),
            units::pps(first.delivered_pps),
            units::percent(captured(first)),
            units::pps(best.delivered_pps),
        );
    }
    let mut text = format!(
        "Of a flood of {}, the kernel as it comes (\"{}\") captured {}; \"{}\" captured {}, {:.1} times as much, on the same \
         machine ({}).",
        units::pps(first.offered_pps),
        first.name,
        units::percent(captured(first)),
        best.name,
        units::percent(captured(best)),
        best.delivered_pps / first.delivered_pps.max(1.0),
        measurements(first),
    );
    let level: Vec<String> = stages
        .iter()
        .filter(|s| s.key != best.key && s.key != first.key && alike(s, best))
        .map(|s| format!("\"{}\"", s.name))
        .collect();
    if !level.is_empty() {
        text.push_str(&format!(" Level with it, as far as these measurements can tell: {}.", level.join(", ")));
    }
    if let (Some(before), Some(after)) = (first.ns_per_packet.per_delivered_ns, best.ns_per_packet.per_delivered_ns) {
        text.push_str(&format!(
            " A captured packet costs {} of CPU time instead of {}.",
            units::nanoseconds(after),
            units::nanoseconds(before)
        ));
    }
    let stack = stages.iter().filter(|s| [keys::RING_FANOUT, keys::RING, keys::FANOUT].contains(&s.key.as_str()));
    if let Some(stack) = stack.max_by(|a, b| a.delivered_pps.total_cmp(&b.delivered_pps))
        && best.key != stack.key
        && !alike(stack, best)
    {
        text.push_str(&format!(
            " Without XDP, \"{}\" is the best of them with {}.",
            stack.name,
            units::percent(captured(stack))
        ));
    }
    if first.arrangement.sharing == Sharing::Inline {
        text.push_str(
            " The generator shares these cores, which takes CPU time from every stage alike; a real flood comes from outside.",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use model::{
        CpuSet,
        run::{Arrangement, CoreRole, Cost, Repeats},
    };

    use super::*;

    fn stage(key: &str, rates: [f64; 3], ns: f64) -> Stage {
        let [lowest_pps, delivered_pps, highest_pps] = rates;
        Stage {
            key: key.into(),
            name: key.into(),
            arrangement: Arrangement {
                sharing: Sharing::Apart,
                roles: vec![CoreRole { cpus: CpuSet::single(0), role: "generator".into() }],
            },
            repeats: Repeats { count: 3, lowest_pps, highest_pps },
            offered_pps: 1e6,
            delivered_pps,
            ns_per_packet: Cost { per_delivered_ns: Some(ns), per_offered_ns: None },
            ..Stage::default()
        }
    }

    #[test]
    fn a_headline_is_reported_only_of_ranges_that_lie_apart() {
        let plain = stage(keys::PLAIN, [1e5, 2e5, 3e5], 900.0);
        let tap = stage(keys::TAP, [8e5, 9e5, 9.5e5], 90.0);
        let ring = stage(keys::RING, [8.5e5, 8.6e5, 8.7e5], 200.0);
        let text = conclusion(&[plain.clone(), ring.clone(), tap.clone()]);
        assert!(text.contains("4.5 times as much") && text.contains("3 measurements each"), "{text}");
        assert!(text.contains("Level with it") && text.contains("90 ns of CPU time instead of 900 ns"), "{text}");
        assert!(!text.contains("Without XDP"), "{text}");
        let wide = stage(keys::PLAIN, [1e5, 2e5, 8.5e5], 900.0);
        let text = conclusion(&[wide, tap]);
        assert!(text.starts_with("No verdict") && !text.contains("times as much"), "{text}");
        assert!(conclusion(&[]).contains("Nothing"));
    }
}
