//! A sweep as text.

use std::fmt::Write;

use model::{
    profile::Class,
    sweep::{Published, Setup, Step, Sweep},
    units,
};

use crate::{
    conditions::{self, Conditions},
    table::Look,
};

/// Classes with a column of their own, besides idle.
const COLUMNS_MAX: usize = 4;
/// The heading of the table of costs.
pub(crate) const COSTS_OF_WHAT: &str =
    "CPU time of the box's core per packet that came out, in nanoseconds, at the ceiling: mean (lowest-highest)";
/// Rows of the table of costs.
const COSTS_MAX: usize = 8;

/// The whole sweep: conclusion, a table for each configuration, costs side by side, published figures, conditions.
pub fn sweep_text(sweep: &Sweep, look: Look) -> String {
    let mut out = conditions::disturbed(sweep.disturbed.as_deref(), look);
    out += &look.paragraph(&sweep.conclusion);
    let setups: Vec<&Setup> = sweep.setups.iter().collect();
    out += &step_tables(&setups, COLUMNS_MAX, look);
    if let [standard, optimised] = &sweep.setups[..] {
        let _ = write!(out, "\n{}", look.paragraph(COSTS_OF_WHAT));
        let rows = costs_of(sweep)
            .into_iter()
            .map(|(class, costs)| [class].into_iter().chain(costs.into_iter().map(range)).collect::<Vec<_>>());
        let [a, b] = [standard, optimised].map(|setup| format!(">{}", setup.key.to_uppercase()));
        let heads = ["CLASS", &a, &b];
        out.push_str(&look.table(&heads, rows));
    }
    out += &published(&sweep.sources, look);
    out + "\n" + &conditions::paragraphs(&conditions(sweep), look)
}

/// Published figures of others, as a table; nothing without any.
pub(crate) fn published(sources: &[Published], look: Look) -> String {
    if sources.is_empty() {
        return String::new();
    }
    let heading = look.paragraph(&format!("{}: never measured by evenkeel", crate::page::PUBLISHED));
    let rows = sources.iter().map(|s| [&s.what, &s.standard, &s.optimised, &s.citation].map(String::clone));
    format!("\n{heading}{}", look.table(&["WHAT", ">STANDARD", ">OPTIMISED", "WHO, ON WHAT"], rows))
}

/// A table of steps for each configuration, with its settings. The dearest classes have a column of their own, `most` at most.
pub(crate) fn step_tables(setups: &[&Setup], most: usize, look: Look) -> String {
    let mut out = String::new();
    // What has no column of its own is in the rest: on a narrow page more of it.
    let shown = |n| setups.iter().all(|setup| look.fits(|look| steps(setup, &dearest(setups, n), look)));
    let dearest = dearest(setups, (1..=most).rev().find(|&n| shown(n)).unwrap_or(1));
    for setup in setups {
        let _ = write!(out, "\n{}", look.paragraph(&heading(setup)));
        for line in &setup.settings {
            out.push_str(&look.item(line));
        }
        out.push_str(&steps(setup, &dearest, look));
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
fn dearest(setups: &[&Setup], n: usize) -> Vec<Class> {
    let all = || setups.iter().flat_map(|s| &s.steps);
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

/// The costs of both configurations of a sweep; none without both.
pub(crate) fn costs_of(sweep: &Sweep) -> Vec<(String, Vec<Range>)> {
    let setups: Vec<(&Setup, u32)> = sweep.setups.iter().map(|s| (s, sweep.box_cores)).collect();
    if setups.len() == 2 { costs(&setups) } else { Vec::new() }
}

/// Nanoseconds per packet at the ceiling, by class and in all, of each configuration with its number of cores, dearest first. A class that was not
/// measured in all of them has no row.
pub(crate) fn costs(setups: &[(&Setup, u32)]) -> Vec<(String, Vec<Range>)> {
    let row = |name: &str, percent: &dyn Fn(&Step) -> f64| {
        let all: Option<Vec<Range>> =
            setups.iter().map(|(setup, cores)| setup.ns_per_packet(*cores, percent)).collect();
        all.map(|all| (name.to_owned(), all))
    };
    let most = |(_, ranges): &(String, Vec<Range>)| ranges.iter().map(|r| r[1]).fold(0.0, f64::max);
    let busy = Class::ALL.into_iter().filter(|c| c.is_busy());
    let mut rows: Vec<_> =
        busy.filter_map(|c| row(c.name(), &|step| step.percent(c))).filter(|row| most(row) >= 0.5).collect();
    rows.sort_by(|x, y| most(y).total_cmp(&most(x)));
    if rows.len() > COSTS_MAX {
        let shown: Vec<String> = rows.drain(..COSTS_MAX).map(|(name, _)| name).collect();
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

/// Results of the searches for a ceiling.
fn ceilings(setup: &Setup) -> String {
    let found: Vec<String> = setup.ceilings_pps.iter().map(|&pps| units::pps(pps)).collect();
    format!("{} {} ({})", setup.name, units::pps(setup.ceiling_pps), found.join(", "))
}

pub(crate) fn conditions(sweep: &Sweep) -> Conditions {
    let mut all = vec![
        conditions::machine(&sweep.machine),
        conditions::cores(&sweep.arrangement),
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
    all.extend(sweep.notes.iter().map(|note| ("Note", note.clone())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_a_row_add_up_on_a_machine_that_is_busy_with_other_things() {
        let shares =
            [(Class::Ethernet, 12.0), (Class::Ip, 9.0), (Class::Memory, 8.0), (Class::Idle, 10.0), (Class::Steal, 6.0)];
        let step = Step {
            intended_pps: 1e5,
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
            ceiling_pps: 1e5,
            ceilings_pps: vec![1e5],
            steps: vec![step],
            ..Setup::default()
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
