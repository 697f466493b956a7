//! Throughput: bars by frame size and mode, lines below what could be offered, and what others have published.

use model::{
    bench::{FrameSpec, Point},
    units,
};

use super::{CEILING, by_frame, colour, dots, frame_axis, frame_names, log_axis, not_measured, one_size};
use crate::{
    bench::figures::{self, Figures, short},
    chart::{
        Dash, Look, Mark, Room,
        columns::{self, Column, Columns, significant},
        lines::{self, Line},
        once,
        rows::{self, Axis, Bars},
        scale::number,
    },
    charts::published_colour,
};

/// Name, dash, units per second.
type Limit<'a> = (&'a str, Dash, &'a dyn Fn(&Point) -> Option<f64>);

/// Bars by frame size and mode, hatched where the tester was the limit; none without a throughput.
fn bars(
    figures: Figures<'_>,
    id: &str,
    (unit, axis): (&str, fn(f64) -> String),
    value: impl Fn(&Point, f64) -> f64,
) -> Option<String> {
    let column = |point: &Point| {
        let (pps, limited) = figures::rate_or_least(point)?;
        let interval = figures::main_goal(point).and_then(|found| {
            let lower = found.lower_pps?;
            let (least, most) = (found.forwarded_pps.map_or(lower, |f| f[0]), found.upper_pps.unwrap_or(lower));
            let half = |pps: f64| value(point, (pps - lower).abs());
            Some((value(point, pps) - half(least), value(point, pps) + half(most)))
        });
        Some(Column { over: short(&point.frame), value: value(point, pps), interval, hatched: limited })
    };
    let series = figures.0.modes.iter().map(|mode| Columns {
        name: mode.name.clone(),
        colour: colour(mode),
        columns: mode.points.iter().filter_map(column).collect(),
    });
    let series: Vec<Columns> = not_measured(series.collect());
    let label = format!("Columns: throughput in {unit} by frame size; the figures are in the tables below");
    series
        .iter()
        .any(|s| !s.columns.is_empty())
        .then(|| columns::chart(id, &label, &frame_names(figures), &series, unit, axis))
}

/// Units per second in thousands, of all directions together.
pub(crate) fn rates(figures: Figures<'_>) -> Option<String> {
    bars(figures, "rates", ("kpps", kpps_tick), |_, pps| pps / 1e3)
}

/// Payload in millions of bits per second, of all directions together.
pub(crate) fn bits(figures: Figures<'_>) -> Option<String> {
    bars(figures, "bits", ("Mbit/s", mbit_tick), |point, pps| figures.payload_bps(&point.frame, pps) / 1e6)
}

/// Thousand packets per second as an axis names them.
fn kpps_tick(kpps: f64) -> String {
    rows::rate(1e3 * kpps)
}

/// Million bits per second as an axis names them.
fn mbit_tick(mbit: f64) -> String {
    match mbit {
        0.0 => "0".to_owned(),
        v if v >= 999.5 => format!("{} Gbit/s", number(v / 1e3)),
        v => format!("{} Mbit/s", number(v)),
    }
}

/// A round rate: `200 k`, `5 M`.
fn rate_tick(pps: f64) -> String {
    match pps {
        v if v < 995.0 => number(v),
        v if v < 995e3 => format!("{} k", number(v / 1e3)),
        v => format!("{} M", number(v / 1e6)),
    }
}

/// Every mode against what could be offered at most, on a logarithmic axis (RFC 2544, section 26.1).
pub(crate) fn theory(figures: Figures<'_>) -> Option<String> {
    let line = |name: &str, frames: &[String], pps: &[f64], look| Line {
        name: name.to_owned(),
        look,
        dots: dots(figures, frames, pps, |pps| format!("{} kpps", significant(pps / 1e3))),
    };
    let mut all: Vec<Line> = Vec::new();
    for mode in &figures.0.modes {
        let (frames, pps) = by_frame(mode, |p| figures::rate_or_least(p).map(|(pps, _)| pps));
        all.push(line(&mode.name, &frames, &pps, Look { colour: colour(mode), dash: Dash::Solid, mark: Mark::Circle }));
    }
    let points = || figures.0.modes.iter().flat_map(|m| &m.points);
    let limits: [Limit<'_>; 2] = [
        ("tester's ceiling", Dash::Dashed, &|p| p.ceiling_pps),
        ("line rate", Dash::Dotted, &|p| figures.line_pps(&p.frame)),
    ];
    for (name, dash, limit) in limits {
        let of = |frame: &FrameSpec| points().filter(|p| p.frame == *frame).find_map(limit);
        let (frames, pps): (Vec<String>, Vec<f64>) =
            figures.frames().into_iter().filter_map(|f| Some((short(f), of(f)?))).unzip();
        all.push(line(name, &frames, &pps, Look { colour: CEILING, dash, mark: Mark::Bar }));
    }
    all.retain(|line| !line.dots.is_empty());
    let label =
        "Lines: throughput of every box by frame size beside the most that could be offered, on a logarithmic axis";
    // A ceiling without a box beside it says nothing.
    if !figures.0.modes.iter().any(|m| all.iter().any(|l| l.name == m.name)) {
        return None;
    }
    if figures.frames().len() == 1 {
        return one_size("theory", &all, |pps| (pps, units::pps(pps)), Axis::Rates);
    }
    let axis = log_axis(&all, rate_tick);
    (!all.is_empty()).then(|| lines::chart("theory", label, &frame_axis(figures), &axis, &all, None))
}

/// Published figures of others, in rows of their own; rates of one direction are doubled. None without any.
pub(crate) fn published(figures: Figures<'_>) -> Option<String> {
    let sources = &figures.0.sources;
    let rows = once(sources.iter().map(|s| format!("{}, {}", s.mode, s.frame_bytes)));
    let platforms = once(sources.iter().map(|s| s.platform.as_str()));
    let bars = platforms.iter().enumerate().map(|(i, platform)| {
        let total = |row: &String| {
            let rate =
                sources.iter().find(|s| s.platform == **platform && format!("{}, {}", s.mode, s.frame_bytes) == *row);
            let kpps = rate.map(|s| s.pps * if s.per_direction { 2.0 } else { 1.0 } / 1e3);
            (kpps, kpps.map_or_else(String::new, |kpps| format!("{kpps:.0} kpps")))
        };
        Bars::new(*platform, published_colour(i), rows.iter().map(total)).hatched()
    });
    let bars: Vec<Bars> = bars.collect();
    let label = "Hatched bars: rates that others have published; the figures are in a table below";
    (!sources.is_empty()).then(|| rows::chart("published", label, Room::Half, &rows, &bars, Axis::Numbers(" kpps")))
}
