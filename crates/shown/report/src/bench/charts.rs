//! The charts of a bench's page.

mod cpu;
mod delays;
mod losses;
mod rates;

use model::bench::{Mode, Point};

pub(crate) use cpu::{cpu_by_class, cpu_by_frame};
pub(crate) use delays::{jitter, loaded_frame, one_way, over_load, round_trips};
pub(crate) use losses::losses;
pub(crate) use rates::{bits, published, rates, theory};

use super::figures::{Figures, short};
use crate::chart::{
    Room,
    columns::Columns,
    lines::{Dot, Line},
    plane::{Across, Up},
    rows::{self, Axis, Bars},
    scale::Scale,
};

const CEILING: &str = "#8a949e";

/// The colour of a mode: the same in every chart.
fn colour(mode: &Mode) -> &'static str {
    match mode.key.as_str() {
        "router" => "#2f7fc1",
        "stateless" => "#e08214",
        "stateful" => "#c2334d",
        "bridge" => "#7b5ea7",
        "xdp-fib" => "#1a9850",
        "route-standard" => "#5e7f9b",
        "route" => "#7a9a01",
        "route-rules" => "#b5a000",
        "route-stateful" => "#b8860b",
        "nat" => "#a3621a",
        "route-nat" => "#35978f",
        "ports" => "#00838f",
        _ => CEILING,
    }
}

/// Frame sizes from left to right, as names: their distances mean nothing.
fn frame_names(figures: Figures<'_>) -> Vec<String> {
    figures.frames().into_iter().map(short).collect()
}

/// A value for every kind of frame of the run, those without it left out.
fn by_frame<T>(mode: &Mode, value: impl Fn(&Point) -> Option<T>) -> (Vec<String>, Vec<T>) {
    mode.points.iter().filter_map(|p| Some((short(&p.frame), value(p)?))).unzip()
}

/// A logarithmic axis for the values of all lines.
fn log_axis(lines: &[Line], name: fn(f64) -> String) -> Up {
    Up { scale: Scale::log(lines.iter().flat_map(|l| &l.dots).map(|d| d.y)), name, title: None }
}

/// Values over frame sizes as the dots of a line.
fn dots(figures: Figures<'_>, frames: &[String], values: &[f64], tip: impl Fn(f64) -> String) -> Vec<Dot> {
    let names = frame_names(figures);
    let dot = |(frame, y): (&String, &f64)| {
        let x = names.iter().position(|n| n == frame)?;
        Some(Dot { x: x as f64, y: *y, tip: format!("{frame}: {}", tip(*y)) })
    };
    frames.iter().zip(values).filter_map(dot).collect()
}

/// The axis of frame sizes.
fn frame_axis(figures: Figures<'_>) -> Across {
    Across::Names(frame_names(figures))
}

/// Lines over one frame size have one dot each: bars instead. `bar` makes of a value that of the bar and its label.
fn one_size(id: &str, lines: &[Line], bar: impl Fn(f64) -> (f64, String), axis: Axis) -> Option<String> {
    let names: Vec<String> = lines.iter().map(|l| l.name.clone()).collect();
    let value = |line: &Line| {
        line.dots.first().map_or((None, String::new()), |d| {
            let (value, text) = bar(d.y);
            (Some(value), text)
        })
    };
    let series = [Bars::new("", "#2f7fc1", lines.iter().map(value))];
    let label = "Bars: the values of the one frame size; the figures are in the tables below";
    (!lines.is_empty()).then(|| rows::chart(id, label, Room::Half, &names, &series, axis))
}

/// A box without a column says so in the legend.
fn not_measured(mut series: Vec<Columns>) -> Vec<Columns> {
    for one in series.iter_mut().filter(|s| s.columns.is_empty()) {
        one.name = format!("{}: not measured", one.name);
    }
    series
}
