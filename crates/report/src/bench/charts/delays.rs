//! Round trips, one-way delays and jitter.

use model::bench::{Delays, FrameSpec, Latency, Point};
use plotly::{
    Bar, Layout, Trace,
    common::{DashType, Marker, MarkerSymbol},
    layout::{Axis, BarMode, TraceOrder},
};

use super::{HEIGHT_PX, Look, by_frame, colour, frame_axis, line, log_axis};
use crate::{
    bench::figures::{self, Figures},
    charts::{plot, value_axis},
};

/// Name, dash, symbol, nanoseconds.
type Percentile = (&'static str, DashType, MarkerSymbol, fn(&Delays) -> u64);

/// Microseconds, logarithmic.
fn delay_axis() -> Axis {
    log_axis(|us| {
        if us < 0.995 {
            format!("{:.0} ns", 1e3 * us)
        } else if us < 995.0 {
            format!("{us:.0} µs")
        } else {
            format!("{:.0} ms", us / 1e3)
        }
    })
}

/// Jitter at the throughput in microseconds.
pub(crate) fn jitter(figures: Figures<'_>) -> Option<String> {
    let traces: Vec<Box<dyn Trace>> = figures
        .0
        .modes
        .iter()
        .filter_map(|mode| -> Option<Box<dyn Trace>> {
            let (frames, values) = by_frame(mode, |p| figures::jitter_of(p).map(|ns| ns / 1e3));
            let trace = Bar::new(frames, values.clone())
                .name(&mode.name)
                .marker(Marker::new().color(colour(mode)))
                .hover_template("%{x}: %{y:.3~g} µs<extra>%{fullData.name}</extra>");
            (!values.is_empty()).then_some(trace)
        })
        .collect();
    let layout = Layout::new()
        .bar_mode(BarMode::Group)
        .show_legend(true)
        .x_axis(frame_axis(figures))
        .y_axis(value_axis(" µs").auto_margin(true));
    (!traces.is_empty()).then(|| plot("jitter", HEIGHT_PX, TraceOrder::Normal, layout, traces))
}

/// Round trips, idle and at the highest load, on a logarithmic axis.
pub(crate) fn round_trips(figures: Figures<'_>) -> Option<String> {
    let idle = |p: &Point| p.latency.iter().find(|l| l.load == 0.0)?.round_trip_ns;
    let loaded = |p: &Point| figures::highest_load(p)?.round_trip_ns;
    let series: [Series<'_>; 2] = [
        ("idle", DashType::Dot, MarkerSymbol::CircleOpen, &idle),
        ("loaded", DashType::Solid, MarkerSymbol::Circle, &loaded),
    ];
    latency_by_frame(figures, "round-trips", &series)
}

/// One-way delays at the highest load: medians and percentiles 99, on a logarithmic axis.
pub(crate) fn one_way(figures: Figures<'_>) -> Option<String> {
    let of = |p: &Point, get: fn(&Delays) -> u64| {
        figures::highest_load(p).and_then(|l| figures::worse(&l.one_way)).map(|d| get(d) as f64)
    };
    let series: [Series<'_>; 2] = [
        ("p50", DashType::Solid, MarkerSymbol::Circle, &|p| of(p, |d| d.p50_ns)),
        ("p99", DashType::Dot, MarkerSymbol::TriangleUp, &|p| of(p, |d| d.p99_ns)),
    ];
    latency_by_frame(figures, "one-way", &series)
}

/// Name, dash, symbol, nanoseconds.
type Series<'a> = (&'a str, DashType, MarkerSymbol, &'a dyn Fn(&Point) -> Option<f64>);

/// Lines over the frame size, for each mode one of each series; nanoseconds in, microseconds out.
fn latency_by_frame(figures: Figures<'_>, id: &str, series: &[Series<'_>; 2]) -> Option<String> {
    let mut traces: Vec<Box<dyn Trace>> = Vec::new();
    for mode in &figures.0.modes {
        for (name, dash, symbol, ns) in series {
            let (frames, values) = by_frame(mode, |p| ns(p).map(|ns| ns / 1e3));
            if !values.is_empty() {
                let look = Look { colour: colour(mode), dash: dash.clone(), symbol: symbol.clone() };
                traces.push(line(&format!("{} {name}", mode.name), frames, values, look, "%{x}: %{y:.3~g} µs"));
            }
        }
    }
    let layout = Layout::new().show_legend(true).x_axis(frame_axis(figures)).y_axis(delay_axis());
    (!traces.is_empty()).then(|| plot(id, HEIGHT_PX, TraceOrder::Normal, layout, traces))
}

/// The kind of frame of which delays are drawn over the load: the first that was loaded more than once.
pub(crate) fn loaded_frame<'a>(figures: Figures<'a>) -> Option<&'a FrameSpec> {
    let points = figures.0.modes.iter().flat_map(|m| &m.points);
    points
        .filter(|p| p.latency.iter().filter(|l| !l.one_way.iter().all(Option::is_none)).count() > 1)
        .map(|p| &p.frame)
        .next()
}

/// One-way delays of that kind of frame over the load, on a logarithmic axis.
pub(crate) fn over_load(figures: Figures<'_>, frame: &FrameSpec) -> String {
    let mut traces: Vec<Box<dyn Trace>> = Vec::new();
    for mode in &figures.0.modes {
        let Some(point) = mode.points.iter().find(|p| p.frame == *frame) else { continue };
        let percentiles: [Percentile; 2] = [
            ("p50", DashType::Solid, MarkerSymbol::Circle, |d| d.p50_ns),
            ("p99", DashType::Dot, MarkerSymbol::TriangleUp, |d| d.p99_ns),
        ];
        for (name, dash, symbol, get) in percentiles {
            let value = |l: &Latency| Some((100.0 * l.load, get(figures::worse(&l.one_way)?) as f64 / 1e3));
            let (loads, delays): (Vec<f64>, Vec<f64>) = point.latency.iter().filter_map(value).unzip();
            let look = Look { colour: colour(mode), dash, symbol };
            traces.push(line(&format!("{} {name}", mode.name), loads, delays, look, "%{x} %: %{y:.3~g} µs"));
        }
    }
    let layout = Layout::new().show_legend(true).x_axis(value_axis(" %").range(vec![0.0, 103.0])).y_axis(delay_axis());
    plot("over-load", HEIGHT_PX, TraceOrder::Normal, layout, traces)
}
