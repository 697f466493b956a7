//! Runs of the bench side by side, as one self-contained page.

use model::bench::compare::{BenchComparison, Row, Unit, Value};

use super::{
    compare::{judgement, letters, meaning, modes, ratio, shown},
    figures::short,
};
use crate::{
    chart::{
        columns::{self, Column, Columns},
        rows::rate,
    },
    page::{Html, PageError, Section},
};

const RUNS: [&str; 6] = ["#8a949e", "#2f7fc1", "#e08214", "#1a9850", "#7b5ea7", "#c2334d"];

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn bench_compare_page(c: &BenchComparison) -> Result<String, PageError> {
    let modes = modes(c);
    let mut main = Html::default();
    main.heading(1, format_args!("{} runs of the bench, side by side", c.runs.len()));
    main.quiet("A is what the others are compared with.");
    let named = letters().zip(&c.runs).zip(&c.when);
    let named = named.map(|((letter, name), when)| (letter.to_string(), format!("{name}, {when}")));
    main.terms(named.chain(c.notes.iter().map(|note| ("Note".to_owned(), note.clone()))));
    let charts: Vec<Section> =
        modes.iter().filter_map(|(mode, rows)| Some(Section::new(3, *mode, "", rates(c, mode, rows)?))).collect();
    if !charts.is_empty() {
        main.heading(2, "Throughput");
        main.quiet("Units per second by frame size. The line reaches from the load that passed to the one that failed; hatched is tester-limited.");
        main.pair(false, charts);
    }
    main.heading(2, "Every figure");
    main.quiet(meaning(c));
    let mut heads = vec!["=Frame".to_owned(), "What".to_owned()];
    for letter in letters().take(c.runs.len()) {
        heads.push(format!(">{letter}"));
        if letter != 'A' {
            heads.extend([format!(">{letter}/A"), "=".to_owned()]);
        }
    }
    for (mode, rows) in &modes {
        let mut table = Html::default();
        table.table(&heads, rows.iter().map(|row| cells(row)));
        main.details(true, mode, None, &table);
    }
    main.page(&format!("evenkeel report compare: {} runs of the bench", c.runs.len()))
}

/// For each run its value, and for each but the first its difference from the first in words.
fn cells(row: &Row) -> Vec<Html> {
    let mut all = vec![short(&row.frame).into(), Html::from(&row.what)];
    for (at, value) in row.values.iter().enumerate() {
        all.push(value.map_or_else(|| "-".into(), |v| shown(v, row.unit).into()));
        if let Some(change) = at.checked_sub(1).and_then(|at| row.changes.get(at)) {
            let word = judgement(change);
            all.push(change.ratio.map_or_else(Html::default, |it| ratio(it).into()));
            all.push(match word.as_str() {
                "same" | "not judged" => Html::within_quiet(word),
                _ => word.into(),
            });
        }
    }
    all
}

/// The throughputs of every run, as bars with their brackets; none without any. Of several goals the first.
fn rates(c: &BenchComparison, mode: &str, rows: &[&Row]) -> Option<String> {
    let goal = &rows.iter().find(|r| r.unit == Unit::Pps)?.what;
    let rows: Vec<&&Row> = rows.iter().filter(|r| r.what == *goal).collect();
    let mut frames: Vec<String> = Vec::new();
    for row in &rows {
        let frame = short(&row.frame);
        if !frames.contains(&frame) {
            frames.push(frame);
        }
    }
    let column = |row: &Row, v: Value| Column {
        over: short(&row.frame),
        value: v.value / 1e3,
        interval: Some((v.low.unwrap_or(v.value) / 1e3, v.high.unwrap_or(v.value) / 1e3)),
        hatched: v.at_least,
    };
    let series = letters().take(c.runs.len()).enumerate().map(|(i, letter)| Columns {
        name: letter.to_string(),
        colour: RUNS[i % RUNS.len()],
        columns: rows.iter().filter_map(|row| Some(column(row, row.values[i]?))).collect(),
    });
    let label = "Columns: throughput by frame size, one for each run; the figures are in the table below";
    Some(columns::chart(&format!("rates-{mode}"), label, &frames, &series.collect::<Vec<_>>(), "kpps", |kpps| {
        rate(1e3 * kpps)
    }))
}
