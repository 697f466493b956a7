//! A run of the bench as text.

use std::fmt::Write;

use model::{
    bench::{BenchRun, Mode, Point, Trial},
    sources, units,
};

use super::{
    conditions::conditions,
    figures::{self, Figures, or_dash, seconds, short},
    tables,
};
use crate::{conditions::paragraphs, table::Look};

/// Parts of a run that are shown besides its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BenchView {
    /// Latency at every load, not only idle and at the highest.
    pub every_load: bool,
    /// Steps of the searches.
    pub steps: bool,
    pub trials: bool,
}

pub fn has_figures(run: &BenchRun) -> bool {
    !Figures(run).is_empty()
}

/// The whole run: conclusion, throughput by frame and mode, all tests of every mode, published figures, conditions.
pub fn bench_text(run: &BenchRun, view: BenchView, look: Look) -> String {
    let figures = Figures(run);
    let mut out = look.paragraph(&run.conclusion);
    if let Some((reason, begun)) = figures.partial() {
        out.push_str(&look.paragraph(&format!("PARTIAL: {reason}")));
        out.extend(begun.map(|step| look.paragraph(&format!("PARTIAL: {step}"))));
    }
    if !figures.is_empty() {
        out.push_str(&throughputs(figures, look));
    }
    let is_shown = |p: &Point| p.throughput.is_some() || figures::has_figure(p);
    for mode in run.modes.iter().filter(|m| view.trials || m.points.iter().any(is_shown)) {
        let _ = write!(out, "\n{}", look.paragraph(&format!("{}, {}: {}", mode.key, mode.name, mode.what)));
        for line in &mode.settings {
            out.push_str(&look.item(line));
        }
        let (judged, void) = without_void(mode);
        void.iter().for_each(|line| out.push_str(&look.item(line)));
        for table in tables::all(figures, &judged, view.every_load) {
            let heading = look.paragraph(&format!("{}: {}", mode.name, table.heading));
            let _ = write!(out, "\n{heading}{}", table.text(look));
        }
        for point in mode.points.iter().filter(|_| view.steps) {
            out.push_str(&steps(point, look));
        }
        if view.trials {
            let heading = format!("{}: all trials", mode.name);
            let _ = write!(out, "\n{}{}", look.paragraph(&heading), trials(mode, look));
        }
    }
    let has_result = run.modes.iter().flat_map(|m| &m.points).any(figures::has_result);
    let table = tables::published(figures);
    if has_result && !table.rows.is_empty() {
        let _ = write!(out, "\n{}", look.paragraph(&table.heading));
        out.push_str(&table.text(look));
    }
    out.push('\n');
    for meaning in figures::meanings(run).into_iter().filter(|_| has_result) {
        out.push_str(&look.paragraph(meaning));
    }
    out + &paragraphs(&conditions(figures), look)
}

/// The mode without throughputs of which nothing is known, and a line for each of those: a row of theirs would be dashes.
fn without_void(mode: &Mode) -> (Mode, Vec<String>) {
    let (mut judged, mut void) = (mode.clone(), Vec::new());
    for point in &mut judged.points {
        if let Some(throughput) = point.throughput.take_if(|t| !figures::says_something(t)) {
            void.push(format!("throughput at {}: {}", short(&point.frame), figures::verdict(&throughput.verdict)));
        }
    }
    (judged, void)
}

/// Throughput by frame and mode, and what a filter costs.
fn throughputs(figures: Figures<'_>, look: Look) -> String {
    let run = figures.0;
    let mut out = String::new();
    let heading =
        format!("Throughput in units per second, {}, at a loss of at most {}", figures.total_of(), figures.goal());
    let _ = write!(out, "\n{}{}", look.paragraph(&heading), overview(figures, look));
    out.extend(figures.datagrams_note().map(|note| look.paragraph(&note)));
    let limited = |p: &Point| figures::rate_or_least(p).is_some_and(|(_, limited)| limited);
    if run.modes.iter().flat_map(|m| &m.points).any(limited) {
        out.push_str(&look.paragraph(
            ">= is tester-limited: the tester could not offer enough more, and the box does at least this.",
        ));
    }
    for (mode, frame, cost) in figures.filter_costs() {
        out.push_str(&look.paragraph(&filter_cost(mode, &frame.label(), cost)));
    }
    out
}

/// Cost of a filter here, beside its cost in the study.
pub(crate) fn filter_cost(mode: &str, frame: &str, cost: f64) -> String {
    let (least, most) = sources::FIREWALL_FILTER_COST;
    format!(
        "{mode} takes {} of the router's rate at {frame} bytes (published by others, on other hardware: {:.0}-{:.0} %).",
        units::percent(cost),
        100.0 * least,
        100.0 * most
    )
}

/// Frames down, modes across, and what the tester can do at most.
fn overview(figures: Figures<'_>, look: Look) -> String {
    let mut heads = vec!["FRAME".to_owned()];
    heads.extend(figures.searched().map(|m| format!(">{}", m.key)));
    heads.push(">(ceiling)".into());
    let rows = figures.frames().into_iter().map(|frame| {
        let cell = |m: &Mode| or_dash(m.points.iter().find(|p| p.frame == *frame).and_then(throughput_cell));
        let mut row = vec![short(frame)];
        row.extend(figures.searched().map(cell));
        row.push(or_dash(figures.ceiling_pps(frame).map(units::pps)));
        row
    });
    look.table(&heads, rows)
}

/// The throughput in a few characters.
pub(crate) fn throughput_cell(point: &Point) -> Option<String> {
    let throughput = point.throughput.as_ref()?;
    Some(match figures::rate_or_least(point) {
        Some((pps, false)) => units::pps(pps),
        Some((pps, true)) => format!(">= {}", units::pps(pps)),
        None => match &throughput.verdict {
            model::bench::Verdict::Nothing => "nothing".into(),
            model::bench::Verdict::NotMet { .. } | model::bench::Verdict::SameLoss { .. } => "none".into(),
            _ => "void".into(),
        },
    })
}

fn steps(point: &Point, look: Look) -> String {
    let Some(throughput) = &point.throughput else { return String::new() };
    let mut out = format!("\nSearch at {}\n", point.frame);
    for step in &throughput.steps {
        out.push_str(&look.paragraph(step));
    }
    out
}

fn trials(mode: &Mode, look: Look) -> String {
    let heads = [">NO", "FRAME", "WHY", ">OFFERED", ">CAME THROUGH", ">LOSS", ">LATE", ">TIME", "VOID"];
    let row = |t: &Trial| {
        vec![
            t.number.to_string(),
            short(&t.frame),
            t.purpose.clone(),
            units::pps(t.offered_pps),
            units::pps(t.received_pps),
            units::percent(t.loss_ratio()),
            units::percent(t.failed_ratio() - t.loss_ratio()),
            seconds(t.seconds),
            t.invalid.clone().unwrap_or_default(),
        ]
    };
    look.table(&heads, mode.points.iter().flat_map(|p| &p.trials).map(row))
}
