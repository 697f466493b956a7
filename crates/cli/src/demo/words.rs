//! What a demo run means, in plain words.

use model::{
    run::{Sharing, Stage, keys},
    units,
};

/// The share of the offered packets that a stage captured.
fn captured(stage: &Stage) -> f64 {
    if stage.offered_pps > 0.0 { stage.delivered_pps / stage.offered_pps } else { 0.0 }
}

/// One or two sentences: from where to where, by what, at which cost; and what bounds it.
pub(crate) fn conclusion(stages: &[Stage]) -> String {
    let Some(first) = stages.first() else { return "Nothing was measured.".into() };
    let best = stages.iter().max_by(|a, b| a.delivered_pps.total_cmp(&b.delivered_pps)).unwrap_or(first);
    if best.key == first.key {
        return format!(
            "Of {} offered, \"{}\" captured {} ({}), and no other way did better on this machine.",
            units::pps(first.offered_pps),
            first.name,
            units::pps(first.delivered_pps),
            units::percent(captured(first)),
        );
    }
    let mut text = format!(
        "Of a flood of {}, the kernel as it comes (\"{}\") captured {}; \"{}\" captures {}, {:.1} times as much, on the same \
         machine.",
        units::pps(first.offered_pps),
        first.name,
        units::percent(captured(first)),
        best.name,
        units::percent(captured(best)),
        best.delivered_pps / first.delivered_pps.max(1.0),
    );
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
