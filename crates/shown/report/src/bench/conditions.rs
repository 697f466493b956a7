//! What the figures of a bench depend on: the fields that RFC 2544, section 26, asks for, and those that a reader needs to judge them.

use std::collections::BTreeMap;

use model::{bench::Goal, units};

use super::figures::{Figures, seconds};
use crate::machine::roles;

/// Pairs of name and text.
pub(crate) fn conditions(figures: Figures<'_>) -> Vec<(&'static str, String)> {
    let run = figures.0;
    let (m, s) = (&run.machine, &run.setup);
    let ended = run.ended.as_ref().map_or_else(String::new, |e| format!(" to {e}"));
    let guest = m.virtualised.as_ref().map_or_else(|| "not virtualised".into(), |v| format!("a guest of {v}"));
    let mut all = vec![
        ("When", format!("{}{ended}, evenkeel {}", run.when, run.version)),
        (
            "Machine",
            format!("{}, {} CPUs, {}, {}, {guest}", m.cpu_model, m.cpus, units::bytes(m.memory_bytes), m.hostname),
        ),
        ("Kernel", m.kernel.clone()),
        ("Preset", s.preset.clone()),
    ];
    all.extend(s.goals.iter().map(|g| ("Goal", goal(g))));
    let directions = if s.both_ways { "both at once" } else { "one" };
    all.extend([
        ("Directions", format!("{directions}; rates are units per second, {} unless marked", figures.total_of())),
        (
            "Units",
            format!(
                "{}; IPv{}, {} flow{} in each direction",
                s.protocol,
                s.ip_version,
                units::grouped(s.flows.into()),
                if s.flows == 1 { "" } else { "s" }
            ),
        ),
        ("Filter", filter(figures)),
        ("Addressing", s.addressing.clone()),
    ]);
    all.extend(s.ports.iter().map(|p| ("Port", p.clone())));
    let line = s.line_bits_per_s.map_or_else(
        || "none: the ports have no rate of their own, shares are of the tester's ceiling".into(),
        units::bits_per_second,
    );
    all.extend([
        ("Line rate", line),
        ("Cores", format!("{}: {}", s.arrangement.sharing.word(), roles(&s.arrangement))),
        (
            "Stamps",
            format!(
                "one costs {}, resolution {}; one unit in {} bears one in trials of throughput, every unit in trials of latency",
                units::nanoseconds(s.stamps.cost_ns),
                units::nanoseconds(s.stamps.resolution_ns),
                s.stamps.one_in
            ),
        ),
    ]);
    all.extend(pacing(figures).map(|text| ("Pacing", text)));
    all.push(("Trials", trials(figures)));
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all.retain(|(_, text)| !text.is_empty());
    all
}

fn goal(g: &Goal) -> String {
    format!(
        "{}: loss of at most {} in trials of {}, {} in all for each load, of which {} may be worse; found within {}",
        g.name,
        units::percent(g.loss_ratio),
        seconds(g.trial_s),
        seconds(g.sum_s),
        units::percent(g.exceed_ratio),
        units::percent(g.width)
    )
}

fn filter(figures: Figures<'_>) -> String {
    let filters = figures.0.modes.iter().any(|m| matches!(m.key.as_str(), "stateful" | "stateless"));
    if !filters {
        return String::new();
    }
    let order = match figures.0.setup.rule_order.as_str() {
        "rfc2544" => "RFC 2544's order: blocks, then a permit",
        _ => "the study's order: rules for each side, then one for both",
    };
    format!("{} rules of which the last matches, in {order}", figures.0.setup.rules)
}

/// How well the wanted rates were kept, over all trials that count.
fn pacing(figures: Figures<'_>) -> Option<String> {
    let counted = || figures.trials().map(|(_, t)| t).filter(|t| t.void.is_none());
    let mut errors: Vec<f64> = counted().filter_map(|t| t.pacing.error).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let (median, most) = (errors.get(errors.len() / 2)?, errors.last()?);
    let latest = counted().map(|t| t.pacing.latest_ns).max()?;
    Some(format!(
        "rates were off by {} (median) to {} (most) in the trials that count; sending was never later than {}",
        units::percent(*median),
        units::percent(*most),
        units::nanoseconds(latest as f64)
    ))
}

/// How many trials, how many of them void and why, and what the hypervisor took.
fn trials(figures: Figures<'_>) -> String {
    // Reasons that differ in their numbers alone are told once, by the first of them.
    let mut reasons: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    let (mut made, mut sending, mut steal) = (0, 0.0, 0.0f64);
    for (_, trial) in figures.trials() {
        made += 1;
        sending += trial.seconds;
        steal = steal.max(trial.observed.steal_percent);
        if let Some(reason) = &trial.void {
            reasons.entry(reason.replace(|c: char| c.is_ascii_digit(), "")).or_insert((0, reason)).0 += 1;
        }
    }
    let void = match reasons.values().map(|(n, _)| n).sum::<usize>() {
        0 => "none void".to_owned(),
        n => {
            let listed = reasons.values().map(|(n, first)| match n {
                1 => format!("1: {first}"),
                n => format!("{n} such as: {first}"),
            });
            format!("{n} void and not counted ({})", listed.collect::<Vec<_>>().join("; "))
        }
    };
    format!("{made}, {} of sending, {void}; steal up to {steal:.1} %", seconds(sending))
}
