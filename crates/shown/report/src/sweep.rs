//! A sweep as text.

use std::fmt::Write;

use model::{
    profile::Class,
    sweep::{Setup, Step, Sweep},
    units,
};

use crate::{
    Look,
    machine::{machine_line, roles},
};

/// Classes with a column of their own, besides idle.
const COLUMNS: usize = 4;
/// The heading of the table of costs.
pub(crate) const COSTS_OF_WHAT: &str =
    "CPU time of the box's core per packet that came out, in nanoseconds, at the ceiling: mean (lowest-highest)";
/// Rows of the table of costs.
const COSTS: usize = 8;

/// The whole sweep: conclusion, a table for each configuration, costs side by side, published figures, conditions.
pub fn sweep_text(sweep: &Sweep, look: Look) -> String {
    let mut out = look.paragraph(&sweep.conclusion);
    // What has no column of its own is in the rest: on a narrow page more of it.
    let shown = |n| sweep.setups.iter().all(|setup| look.fits(|look| steps(setup, &dearest(sweep, n), look)));
    let dearest = dearest(sweep, (1..=COLUMNS).rev().find(|&n| shown(n)).unwrap_or(1));
    for setup in &sweep.setups {
        let _ = write!(out, "\n{}", look.paragraph(&heading(setup)));
        for line in &setup.settings {
            out.push_str(&look.item(line));
        }
        out.push_str(&steps(setup, &dearest, look));
    }
    if let [standard, optimised] = &sweep.setups[..] {
        let _ = write!(out, "\n{}", look.paragraph(COSTS_OF_WHAT));
        let rows = costs(sweep).into_iter().map(|(class, a, b)| vec![class, range(a), range(b)]);
        let heads =
            ["CLASS", &format!(">{}", standard.key.to_uppercase()), &format!(">{}", optimised.key.to_uppercase())];
        out.push_str(&look.table(&heads, rows));
    }
    if !sweep.sources.is_empty() {
        let _ = write!(out, "\n{}", look.paragraph(&format!("{}: never measured by evenkeel", crate::PUBLISHED)));
        let rows = sweep
            .sources
            .iter()
            .map(|s| vec![s.what.clone(), s.standard.clone(), s.optimised.clone(), s.citation.clone()]);
        out.push_str(&look.table(&["WHAT", ">STANDARD", ">OPTIMISED", "WHO, ON WHAT"], rows));
    }
    out.push('\n');
    for (what, text) in conditions(sweep) {
        out.push_str(&look.paragraph(&format!("{what}: {text}")));
    }
    out
}

fn heading(setup: &Setup) -> String {
    format!("{}, {}: {}", setup.key, setup.name, setup.what)
}

/// A row for each load: the columns from the first class on add up to 100.
fn steps(setup: &Setup, dearest: &[Class], look: Look) -> String {
    let heads: Vec<String> = [">OFFERED", ">OUT", ">LOSS"]
        .into_iter()
        .map(str::to_owned)
        .chain(dearest.iter().map(|c| format!(">{} %", c.key())))
        .chain([">rest %", ">lab %", ">others %", ">steal %", ">idle %"].map(str::to_owned))
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let row = |step: &Step| {
        let own: f64 = dearest.iter().map(|&c| step.percent(c)).sum();
        let lab = step.generator_percent + step.receiver_percent;
        let mut cells =
            vec![units::pps(step.offered_pps), units::pps(step.forwarded_pps), units::percent(step.loss_ratio)];
        cells.extend(dearest.iter().map(|&c| format!("{:.0}", step.percent(c))));
        let rest = step.busy_percent() - own;
        let shares = [rest, lab, step.others_percent, step.percent(Class::Steal), step.percent(Class::Idle)];
        cells.extend(shares.map(|p| format!("{:.0}", p.max(0.0))));
        cells
    };
    look.table(&heads, setup.steps.iter().map(row))
}

/// The classes of the box's own work that took the most time over the whole sweep.
pub(crate) fn dearest(sweep: &Sweep, n: usize) -> Vec<Class> {
    let all = || sweep.setups.iter().flat_map(|s| &s.steps);
    let mut classes: Vec<(Class, f64)> = Class::ALL
        .into_iter()
        .filter(|c| c.is_busy())
        .map(|class| (class, all().map(|s| s.percent(class)).sum()))
        .filter(|(_, sum)| *sum > 0.0)
        .collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    classes.truncate(n);
    classes.into_iter().map(|(class, _)| class).collect()
}

/// Lowest, mean and highest nanoseconds per packet.
pub(crate) type Range = [f64; 3];

/// A cost and its range.
pub(crate) fn range([low, mean, high]: Range) -> String {
    format!("{mean:.0} ({low:.0}-{high:.0})")
}

/// Nanoseconds per packet at the ceiling, by class and in all, standard and optimised, dearest first.
pub(crate) fn costs(sweep: &Sweep) -> Vec<(String, Range, Range)> {
    let [a, b] = &sweep.setups[..] else { return Vec::new() };
    let row = |name: &str, percent: &dyn Fn(&Step) -> f64| {
        let both = a.ns_per_packet(sweep.box_cores, percent).zip(b.ns_per_packet(sweep.box_cores, percent));
        both.map(|(a, b)| (name.to_owned(), a, b))
    };
    let busy = Class::ALL.into_iter().filter(|c| c.is_busy());
    let mut rows: Vec<_> =
        busy.filter_map(|c| row(c.name(), &|step| step.percent(c))).filter(|(_, a, b)| a[1].max(b[1]) >= 0.5).collect();
    rows.sort_by(|x, y| y.1[1].max(y.2[1]).total_cmp(&x.1[1].max(x.2[1])));
    if rows.len() > COSTS {
        let shown: Vec<String> = rows.drain(..COSTS).map(|(name, ..)| name).collect();
        let is_rest = |class: &Class| class.is_busy() && !shown.iter().any(|name| name == class.name());
        let rest = |step: &Step| Class::ALL.into_iter().filter(is_rest).map(|c| step.percent(c)).sum::<f64>();
        rows = shown
            .iter()
            .filter_map(|name| {
                let class = Class::ALL.into_iter().find(|c| c.name() == name)?;
                row(name, &|step| step.percent(class))
            })
            .chain(row("other classes", &rest))
            .collect();
    }
    rows.extend(row("all", &Step::busy_percent));
    rows
}

/// What the searches for a ceiling found.
fn ceilings(setup: &Setup) -> String {
    let found: Vec<String> = setup.ceilings_pps.iter().map(|&pps| units::pps(pps)).collect();
    format!("{} {} ({})", setup.name, units::pps(setup.ceiling_pps), found.join(", "))
}

/// What a reader must know to judge the figures.
pub(crate) fn conditions(sweep: &Sweep) -> Vec<(&'static str, String)> {
    let mut conditions = vec![
        ("Machine", machine_line(&sweep.machine)),
        ("Cores", format!("{}: {}", sweep.arrangement.sharing.word(), roles(&sweep.arrangement))),
        (
            "Load",
            format!(
                "UDP frames of {} bytes of {} flows in turn, {} per step",
                sweep.frame_bytes,
                sweep.flows,
                units::nanoseconds(sweep.seconds_per_step * 1e9)
            ),
        ),
        (
            "Generator",
            format!(
                "{}; ceiling {} ({})",
                sweep.generator.backend,
                units::pps(sweep.generator.ceiling_pps),
                sweep.generator.ceiling_conditions
            ),
        ),
        ("Samples", format!("{} a second of the box's core", sweep.frequency_hz)),
        ("Ceilings", sweep.setups.iter().map(ceilings).collect::<Vec<_>>().join("; ")),
    ];
    conditions.extend(sweep.notes.iter().map(|note| ("Note", note.clone())));
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_a_row_add_up_on_a_machine_that_is_busy_with_other_things() {
        let shares =
            [(Class::Ethernet, 12.0), (Class::Ip, 9.0), (Class::Memory, 8.0), (Class::Idle, 10.0), (Class::Steal, 6.0)];
        let step = Step {
            wanted_pps: 1e5,
            offered_pps: 1e5,
            forwarded_pps: 9e4,
            loss_ratio: 0.1,
            classes: shares.into_iter().collect(),
            generator_percent: 7.0,
            receiver_percent: 9.0,
            others_percent: 39.0,
            stat_idle_percent: 10.0,
            samples: 1000,
            lost_samples: 0,
        };
        let setup = Setup {
            key: "standard".into(),
            name: "x".into(),
            what: "x".into(),
            settings: Vec::new(),
            ceiling_pps: 1e5,
            ceilings_pps: vec![1e5],
            at_ceiling: Vec::new(),
            steps: vec![step],
        };
        let text = steps(&setup, &[Class::Ethernet, Class::Ip], Look::plain(200));
        let [heads, row]: [Vec<&str>; 2] = text
            .lines()
            .map(|l| l.split("  ").filter(|w| !w.is_empty()).collect())
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        assert!(text.lines().next().unwrap().contains("lab % others % steal % idle %"), "{text}");
        assert!(!heads.is_empty());
        let cells: Vec<f64> = row.iter().flat_map(|c| c.split(' ')).filter_map(|w| w.parse().ok()).collect();
        let sum: f64 = cells[cells.len() - 7..].iter().sum();
        assert!((sum - 100.0).abs() < 0.5, "{sum}: {text}");
    }
}
