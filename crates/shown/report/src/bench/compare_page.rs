//! Runs of the bench side by side, as one self-contained page.

use askama::Template;
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
    page::PageError,
};

const RUNS: [&str; 6] = ["#8a949e", "#2f7fc1", "#e08214", "#1a9850", "#7b5ea7", "#c2334d"];

#[derive(Template)]
#[template(path = "bench_compare.html")]
struct Page<'a> {
    c: &'a BenchComparison,
    charts: Vec<(&'a str, String)>,
    modes: Vec<(&'a str, Vec<&'a Row>)>,
    meaning: String,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn bench_compare_page(c: &BenchComparison) -> Result<String, PageError> {
    let modes = modes(c);
    let page = Page {
        c,
        charts: modes.iter().filter_map(|(mode, rows)| Some((*mode, rates(c, mode, rows)?))).collect(),
        modes,
        meaning: meaning(c),
    };
    Ok(page.render()?)
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

impl Page<'_> {
    fn named(&self) -> Vec<(char, &String, &String)> {
        letters().zip(&self.c.runs).zip(&self.c.when).map(|((letter, name), when)| (letter, name, when)).collect()
    }

    fn frame(&self, row: &Row) -> String {
        short(&row.frame)
    }

    /// For each run its value, and for each but the first its difference from the first in words.
    fn cells(&self, row: &Row) -> Vec<(String, Option<(String, String)>)> {
        let change = |i: usize| {
            let change = row.changes.get(i.checked_sub(1)?)?;
            Some((change.ratio.map_or_else(String::new, ratio), judgement(change)))
        };
        let value = |v: &Option<Value>| v.map_or_else(|| "-".to_owned(), |v| shown(v, row.unit));
        row.values.iter().enumerate().map(|(i, v)| (value(v), change(i))).collect()
    }
}
