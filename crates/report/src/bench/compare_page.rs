//! Runs of the bench side by side, as one self-contained page.

use askama::Template;
use model::bench::compare::{BenchComparison, Row, Unit, Value};
use plotly::{
    Bar, Layout, Trace,
    common::{ErrorData, ErrorType, Marker, Pattern, PatternShape},
    layout::{Axis, AxisType, BarMode, TraceOrder},
};

use super::{
    compare::{judgement, letters, meaning, modes, ratio, shown},
    figures::short,
};
use crate::{
    PageError,
    charts::{self, plot, value_axis},
};

/// The height of a chart in pixels.
const HEIGHT_PX: usize = 360;
const RUNS: [&str; 6] = ["#8a949e", "#2f7fc1", "#e08214", "#1a9850", "#7b5ea7", "#c2334d"];
const INTERVAL: &str = "#5a6774";

#[derive(Template)]
#[template(path = "bench_compare.html")]
struct Page<'a> {
    c: &'a BenchComparison,
    library: String,
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
        library: charts::library(),
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
    let traces = letters().take(c.runs.len()).enumerate().map(|(i, letter)| -> Box<dyn Trace> {
        let found: Vec<(String, Value)> = rows.iter().filter_map(|r| Some((short(&r.frame), r.values[i]?))).collect();
        let column = |get: fn(&Value) -> f64| found.iter().map(|(_, v)| get(v) / 1e3).collect::<Vec<f64>>();
        let interval = ErrorData::new(ErrorType::Data)
            .symmetric(false)
            .array(column(|v| v.high.map_or(0.0, |high| high - v.value)))
            .array_minus(column(|v| v.low.map_or(0.0, |low| v.value - low)))
            .thickness(1.0)
            .width(2)
            .color(INTERVAL);
        let shapes = found.iter().map(|(_, v)| match v.at_least {
            true => PatternShape::RightDiagonalLine,
            false => PatternShape::None,
        });
        let pattern = Pattern::new().shape_array(shapes.collect()).solidity(0.4);
        Bar::new(found.iter().map(|(frame, _)| frame.clone()).collect(), column(|v| v.value))
            .name(letter.to_string())
            .error_y(interval)
            .marker(Marker::new().color(RUNS[i % RUNS.len()]).pattern(pattern))
            .hover_template("%{x}: %{y:.4~g} kpps<extra>%{fullData.name}</extra>")
    });
    let layout = Layout::new()
        .bar_mode(BarMode::Group)
        .show_legend(true)
        .separators(". ")
        .x_axis(Axis::new().type_(AxisType::Category).fixed_range(true))
        .y_axis(value_axis("").tick_format(",~r").auto_margin(true));
    Some(plot(&format!("rates-{mode}"), HEIGHT_PX, TraceOrder::Normal, layout, traces.collect()))
}

/// What the template calls.
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
