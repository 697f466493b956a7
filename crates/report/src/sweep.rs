//! A sweep as text.

use std::fmt::Write;

use model::{
    profile::Class,
    sweep::{Setup, Step, Sweep},
    units,
};

use crate::Look;

/// Classes with a column of their own, besides idle.
const COLUMNS: usize = 4;
/// The heading of the table of costs.
pub(crate) const COSTS_OF_WHAT: &str = "CPU time of the box's core per packet that came out, in nanoseconds, over the steps in which at \
     least half of the most came out";
/// Rows of the table of costs.
const COSTS: usize = 8;

/// The whole sweep: conclusion, a table for each configuration, costs side by side, published figures, conditions.
pub fn sweep_text(sweep: &Sweep, look: Look) -> String {
    let mut out = look.paragraph(&sweep.conclusion);
    let dearest = dearest(sweep, COLUMNS);
    for setup in &sweep.setups {
        let _ = write!(out, "\n{}", look.paragraph(&heading(setup)));
        for line in &setup.settings {
            let _ = writeln!(out, "  {line}");
        }
        out.push_str(&steps(setup, &dearest, look));
    }
    if let [standard, optimised] = &sweep.setups[..] {
        let _ = write!(out, "\n{}", look.paragraph(COSTS_OF_WHAT));
        let rows = costs(sweep).into_iter().map(|(class, a, b)| vec![class, format!("{a:.0}"), format!("{b:.0}")]);
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

/// A row for each load.
fn steps(setup: &Setup, dearest: &[Class], look: Look) -> String {
    let heads: Vec<String> = [">OFFERED", ">OUT", ">LOSS"]
        .into_iter()
        .map(str::to_owned)
        .chain(dearest.iter().map(|c| format!(">{} %", c.key())))
        .chain([">rest %".to_owned(), ">lab %".to_owned(), ">idle %".to_owned()])
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let row = |step: &Step| {
        let own: f64 = dearest.iter().map(|&c| step.percent(c)).sum();
        let lab = step.generator_percent + step.receiver_percent;
        let mut cells =
            vec![units::pps(step.offered_pps), units::pps(step.forwarded_pps), units::percent(step.loss_ratio)];
        cells.extend(dearest.iter().map(|&c| format!("{:.0}", step.percent(c))));
        cells.extend([step.busy_percent() - own, lab, step.percent(Class::Idle)].map(|p| format!("{:.0}", p.max(0.0))));
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

/// Nanoseconds per packet that came out, by class and in all, standard and optimised, dearest first.
pub(crate) fn costs(sweep: &Sweep) -> Vec<(String, f64, f64)> {
    let [a, b] = &sweep.setups[..] else { return Vec::new() };
    let row = |name: &str, percent: &dyn Fn(&Step) -> f64| {
        (name.to_owned(), a.ns_per_packet(sweep.box_cores, percent), b.ns_per_packet(sweep.box_cores, percent))
    };
    let busy = Class::ALL.into_iter().filter(|c| c.is_busy());
    let mut rows: Vec<(String, f64, f64)> =
        busy.map(|c| row(c.name(), &|step| step.percent(c))).filter(|(_, a, b)| a.max(*b) >= 0.5).collect();
    rows.sort_by(|x, y| y.1.max(y.2).total_cmp(&x.1.max(x.2)));
    if rows.len() > COSTS {
        let rest = rows.split_off(COSTS).into_iter().fold((0.0, 0.0), |sum, (_, a, b)| (sum.0 + a, sum.1 + b));
        rows.push(("other classes".into(), rest.0, rest.1));
    }
    rows.push(row("all", &Step::busy_percent));
    rows
}

/// What a reader must know to judge the figures.
pub(crate) fn conditions(sweep: &Sweep) -> Vec<(&'static str, String)> {
    let machine = &sweep.machine;
    let guest = machine.virtualised.as_ref().map_or(String::new(), |v| format!(", a guest of {v}"));
    let roles: Vec<String> = sweep.arrangement.roles.iter().map(|r| format!("CPU {} {}", r.cpus, r.does)).collect();
    let mut conditions = vec![
        (
            "Machine",
            format!(
                "{}, {} CPUs, {}, Linux {}{guest}",
                machine.hostname, machine.cpus, machine.cpu_model, machine.kernel
            ),
        ),
        ("Cores", format!("{}: {}", sweep.arrangement.sharing.word(), roles.join("; "))),
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
    ];
    conditions.extend(sweep.notes.iter().map(|note| ("Note", note.clone())));
    conditions
}
