//! Conditions of a bench: the fields that RFC 2544, section 26, asks for, and those that a reader needs to judge the figures.

use std::collections::BTreeMap;

use model::{bench::Goal, units};

use super::figures::{Figures, seconds};
use crate::conditions::{self, Conditions};

/// Pairs of name and text.
pub(crate) fn conditions(figures: Figures<'_>) -> Conditions {
    let run = figures.0;
    let s = &run.setup;
    let ended = run.ended.as_ref().map_or_else(String::new, |e| format!(" to {e}"));
    let mut all = vec![
        ("When", format!("{}{ended}, evenkeel {}", run.timestamp, run.version)),
        conditions::machine(&run.machine),
        ("Preset", s.preset.clone()),
    ];
    all.extend(s.goals.iter().map(|g| ("Goal", goal(g))));
    let directions = if s.bidirectional { "both at once" } else { "one" };
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
        conditions::cores(&s.arrangement),
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

/// Deviation from the intended rates, over all trials that count.
fn pacing(figures: Figures<'_>) -> Option<String> {
    let counted = || figures.trials().map(|(_, t)| t).filter(|t| t.invalid.is_none());
    let mut errors: Vec<f64> = counted().filter_map(|t| t.pacing.error).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let (median, most) = (errors.get(errors.len() / 2)?, errors.last()?);
    let latest = counted().map(|t| t.pacing.max_lag_ns).max()?;
    Some(format!(
        "rates were off by {} (median) to {} (most) in the trials that count; sending was never later than {}",
        units::percent(*median),
        units::percent(*most),
        units::nanoseconds(latest as f64)
    ))
}

/// A reason without the programs that it names behind a colon.
fn what_happened(reason: &str) -> &str {
    // The lists of programs have their numbers, and nothing else has.
    reason.split_once(": ").filter(|(_, rest)| rest.contains("(pid ")).map_or(reason, |(what, _)| what)
}

/// The programs that these reasons name most often.
fn programs(reasons: &[&str]) -> String {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for list in reasons.iter().filter_map(|reason| reason.strip_prefix(what_happened(reason))) {
        let names = list.trim_start_matches(": ").split(", ").filter_map(|one| one.split_once(" (pid "));
        names.for_each(|(name, _)| *named.entry(name).or_default() += 1);
    }
    let mut most: Vec<_> = named.into_iter().collect();
    most.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let words: Vec<String> =
        most.iter().take(NAMED_MAX).map(|(name, count)| format!("{name} in {count} of them")).collect();
    if words.is_empty() { String::new() } else { format!(" (most often {})", words.join(", ")) }
}

/// Programs that are named for all trials of one kind together.
const NAMED_MAX: usize = 3;

/// Number of trials, of void ones with the reason, and the time that the hypervisor took.
fn trials(figures: Figures<'_>) -> String {
    // Reasons that differ in their numbers and programs alone are told once, by the first of them.
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let (mut made, mut sending, mut steal) = (0, 0.0, 0.0f64);
    for (_, trial) in figures.trials() {
        made += 1;
        sending += trial.seconds;
        steal = steal.max(trial.observed.steal_percent);
        if let Some(reason) = &trial.invalid {
            let kind = what_happened(reason).replace(|c: char| c.is_ascii_digit() || c == '.', "");
            reasons.entry(kind).or_default().push(reason);
        }
    }
    let void = match reasons.values().map(Vec::len).sum::<usize>() {
        0 => "none void".to_owned(),
        n => {
            let listed = reasons.values().map(|all| match &all[..] {
                [one] => format!("1: {one}"),
                all => format!("{} such as: {}{}", all.len(), what_happened(all[0]), programs(all)),
            });
            format!("{n} void and not counted ({})", listed.collect::<Vec<_>>().join("; "))
        }
    };
    let kept =
        if figures.partial().is_some() { " (void ones at the end of a run that broke off are not kept)" } else { "" };
    format!("{made}, {} of sending, {void}{kept}; steal up to {steal:.1} %", seconds(sending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_reported_by_what_happened_and_programs_for_all_of_them() {
        let all = [
            "other programs took 58.6 % of the sender's CPU time (17.0 ms at a stretch): rustc (pid 12) 96 % of a core, ld (pid 9) 3 % of a core",
            "other programs took 8 % of the sender's CPU time (1.0 ms at a stretch): rustc (pid 14) 11 % of a core",
            "the burst was cut off after 3 units of 9 units: its time was over",
        ];
        assert_eq!(what_happened(all[1]), "other programs took 8 % of the sender's CPU time (1.0 ms at a stretch)");
        assert_eq!(what_happened(all[2]), all[2]);
        assert_eq!(programs(&all), " (most often rustc in 2 of them, ld in 1 of them)");
        assert_eq!(programs(&all[2..]), "");
    }
}
