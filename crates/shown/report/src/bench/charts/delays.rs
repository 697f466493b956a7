//! Round trips, one-way delays and jitter.

use model::{
    bench::{Delays, FrameSpec, Latency, Point},
    units,
};

use super::{by_frame, colour, dots, frame_axis, frame_names, log_axis, not_measured, one_size};
use crate::{
    bench::figures::{self, Figures},
    chart::{
        Dash, Look, Mark,
        columns::{self, Column, Columns, significant},
        lines::{self, Dot, Line},
        plane::Across,
        rows::Axis,
        scale::{Scale, number},
    },
};

/// Name, dash, symbol, nanoseconds.
type Percentile = (&'static str, Dash, Mark, fn(&Delays) -> u64);

/// Microseconds as an axis names them.
fn delay(us: f64) -> String {
    if us < 0.995 {
        format!("{} ns", number(1e3 * us))
    } else if us < 995.0 {
        format!("{} µs", number(us))
    } else {
        format!("{} ms", number(us / 1e3))
    }
}

/// Jitter at the throughput in microseconds.
pub(crate) fn jitter(figures: Figures<'_>) -> Option<String> {
    let series = figures.0.modes.iter().map(|mode| {
        let (frames, values) = by_frame(mode, |p| figures::jitter_of(p).map(|ns| ns / 1e3));
        let column = |(over, value)| Column { over, value, interval: None, hatched: false };
        let columns = frames.into_iter().zip(values).map(column).collect();
        Columns { name: mode.name.clone(), colour: colour(mode), columns }
    });
    let series: Vec<Columns> = not_measured(series.collect());
    let label = "Columns: jitter at the throughput by frame size; the figures are in the tables below";
    let axis = |us: f64| format!("{} µs", number(us));
    series
        .iter()
        .any(|s| !s.columns.is_empty())
        .then(|| columns::chart("jitter", label, &frame_names(figures), &series, "µs", axis))
}

/// Round trips, idle and at the highest load, on a logarithmic axis.
pub(crate) fn round_trips(figures: Figures<'_>) -> Option<String> {
    let idle = |p: &Point| p.latency.iter().find(|l| l.load == 0.0)?.round_trip_ns;
    let loaded = |p: &Point| figures::highest_load(p)?.round_trip_ns;
    let series: [Series<'_>; 2] =
        [("idle", Dash::Dotted, Mark::Open, &idle), ("loaded", Dash::Solid, Mark::Circle, &loaded)];
    latency_by_frame(figures, "round-trips", &series)
}

/// The chart of delays at the highest load: medians and percentiles 99, on a logarithmic axis.
pub(crate) fn one_way(figures: Figures<'_>) -> Option<String> {
    let of = |p: &Point, get: fn(&Delays) -> u64| {
        figures::highest_load(p).and_then(|l| figures::worse(&l.one_way)).map(|d| get(d) as f64)
    };
    let series: [Series<'_>; 2] = [
        ("p50", Dash::Solid, Mark::Circle, &|p| of(p, |d| d.p50_ns)),
        ("p99", Dash::Dotted, Mark::Up, &|p| of(p, |d| d.p99_ns)),
    ];
    latency_by_frame(figures, "one-way", &series)
}

/// Name, dash, symbol, nanoseconds.
type Series<'a> = (&'a str, Dash, Mark, &'a dyn Fn(&Point) -> Option<f64>);

/// Lines over the frame size, for each mode one of each series; nanoseconds in, microseconds out.
fn latency_by_frame(figures: Figures<'_>, id: &str, series: &[Series<'_>; 2]) -> Option<String> {
    let mut all = Vec::new();
    for mode in &figures.0.modes {
        for (name, dash, mark, ns) in series {
            let (frames, values) = by_frame(mode, |p| ns(p).map(|ns| ns / 1e3));
            let dots = dots(figures, &frames, &values, |us| format!("{} µs", significant(us)));
            let look = Look { colour: colour(mode), dash: *dash, mark: *mark };
            all.push(Line { name: format!("{} {name}", mode.name), look, dots });
        }
    }
    all.retain(|line| !line.dots.is_empty());
    let label = "Lines: delays by frame size on a logarithmic axis; the figures are in the tables below";
    if figures.frames().len() == 1 {
        return one_size(id, &all, |us| (1e3 * us, units::nanoseconds(1e3 * us)), Axis::Times);
    }
    let axis = log_axis(&all, delay);
    (!all.is_empty()).then(|| lines::chart(id, label, &frame_axis(figures), &axis, &all, None))
}

/// The kind of frame of which delays are drawn over the load: the first that was loaded more than once.
pub(crate) fn loaded_frame<'a>(figures: Figures<'a>) -> Option<&'a FrameSpec> {
    let points = figures.0.modes.iter().flat_map(|m| &m.points);
    points
        .filter(|p| p.latency.iter().filter(|l| !l.one_way.iter().all(Option::is_none)).count() > 1)
        .map(|p| &p.frame)
        .next()
}

/// The chart of delays of that kind of frame over the load, on a logarithmic axis.
pub(crate) fn over_load(figures: Figures<'_>, frame: &FrameSpec) -> String {
    let mut all = Vec::new();
    for mode in &figures.0.modes {
        let Some(point) = mode.points.iter().find(|p| p.frame == *frame) else { continue };
        let percentiles: [Percentile; 2] =
            [("p50", Dash::Solid, Mark::Circle, |d| d.p50_ns), ("p99", Dash::Dotted, Mark::Up, |d| d.p99_ns)];
        for (name, dash, mark, get) in percentiles {
            let dot = |l: &Latency| {
                let (x, y) = (100.0 * l.load, get(figures::worse(&l.one_way)?) as f64 / 1e3);
                Some(Dot { x, y, tip: format!("{} %: {} µs", significant(x), significant(y)) })
            };
            let look = Look { colour: colour(mode), dash, mark };
            let dots = point.latency.iter().filter_map(dot).collect();
            all.push(Line { name: format!("{} {name}", mode.name), look, dots });
        }
    }
    all.retain(|line| !line.dots.is_empty());
    let across =
        Across::Numbers { scale: Scale::linear(0.0, 103.0), name: |v| format!("{} %", number(v)), title: None };
    let label = "Lines: one-way delay over the load on a logarithmic axis; the figures are in the tables below";
    lines::chart("over-load", label, &across, &log_axis(&all, delay), &all, None)
}
