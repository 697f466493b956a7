//! Throughput: bars by frame size and mode, lines below what could be offered, and what others have published.

use model::bench::{FrameSpec, Point};
use plotly::{
    Bar, Layout, Trace,
    common::{
        DashType, ErrorData, ErrorType, HoverInfo, Marker, MarkerSymbol, Orientation, Pattern, PatternShape,
        TextPosition,
    },
    layout::{BarMode, TraceOrder},
};

use super::{CEILING, HEIGHT_PX, Look, by_frame, colour, frame_axis, line, log_axis};
use crate::{
    bench::figures::{self, Figures, short},
    charts::{category_axis, plot, published_marker, value_axis},
};

/// Name, dash, units per second.
type Limit<'a> = (&'a str, DashType, &'a dyn Fn(&Point) -> Option<f64>);

/// Bars by frame size and mode, hatched where the tester was the limit; none without a throughput.
fn bars(figures: Figures<'_>, id: &str, unit: &str, value: impl Fn(&Point, f64) -> f64) -> Option<String> {
    let traces = figures.0.modes.iter().filter_map(|mode| -> Option<Box<dyn Trace>> {
        let (frames, values) = by_frame(mode, figures::rate_or_least);
        let points = mode.points.iter().filter(|p| figures::rate_or_least(p).is_some());
        let heights: Vec<f64> = points.zip(&values).map(|(p, (pps, _))| value(p, *pps)).collect();
        let shapes = values.iter().map(|&(_, limited)| match limited {
            true => PatternShape::RightDiagonalLine,
            false => PatternShape::None,
        });
        let from_to = mode.points.iter().filter(|p| figures::rate_or_least(p).is_some()).map(|p| {
            let found = figures::main_goal(p)?;
            let lower = found.lower_pps?;
            let share = |pps: f64| value(p, (pps - lower).abs());
            Some((share(found.forwarded_pps.map_or(lower, |f| f[0])), share(found.upper_pps.unwrap_or(lower))))
        });
        let (below, above): (Vec<f64>, Vec<f64>) = from_to.map(Option::unwrap_or_default).unzip();
        let interval = ErrorData::new(ErrorType::Data)
            .symmetric(false)
            .array(above)
            .array_minus(below)
            .thickness(1.0)
            .width(2)
            .color(CEILING);
        let pattern = Pattern::new().shape_array(shapes.collect()).solidity(0.4);
        let trace = Bar::new(frames, heights)
            .name(&mode.name)
            .error_y(interval)
            .marker(Marker::new().color(colour(mode)).pattern(pattern))
            .hover_template(format!("%{{x}}: %{{y:.4~g}} {unit}<extra>%{{fullData.name}}</extra>"));
        (!values.is_empty()).then_some(trace)
    });
    let layout = Layout::new()
        .bar_mode(BarMode::Group)
        .show_legend(true)
        .x_axis(frame_axis(figures))
        .separators(". ")
        .y_axis(value_axis("").tick_format(",~r").auto_margin(true));
    let traces: Vec<Box<dyn Trace>> = traces.collect();
    (!traces.is_empty()).then(|| plot(id, HEIGHT_PX, TraceOrder::Normal, layout, traces))
}

/// Units per second in thousands, of all directions together.
pub(crate) fn rates(figures: Figures<'_>) -> Option<String> {
    bars(figures, "rates", "kpps", |_, pps| pps / 1e3)
}

/// Payload in millions of bits per second, of all directions together.
pub(crate) fn bits(figures: Figures<'_>) -> Option<String> {
    bars(figures, "bits", "Mbit/s", |point, pps| figures.payload_bps(&point.frame, pps) / 1e6)
}

/// A round rate: `200 k`, `5 M`.
fn rate_tick(pps: f64) -> String {
    match pps {
        v if v < 995.0 => format!("{v:.0}"),
        v if v < 995e3 => format!("{:.0} k", v / 1e3),
        v => format!("{:.0} M", v / 1e6),
    }
}

/// Every mode against what could be offered at most, on a logarithmic axis (RFC 2544, section 26.1).
pub(crate) fn theory(figures: Figures<'_>) -> Option<String> {
    let hover = "%{x}: %{y:.4~s}pps";
    let modes = figures.0.modes.iter();
    let mut traces: Vec<Box<dyn Trace>> = modes
        .filter_map(|mode| {
            let (frames, pps) = by_frame(mode, |p| figures::rate_or_least(p).map(|(pps, _)| pps));
            let look = Look { colour: colour(mode), dash: DashType::Solid, symbol: MarkerSymbol::Circle };
            (!pps.is_empty()).then(|| line(&mode.name, frames, pps, look, hover))
        })
        .collect();
    let points = || figures.0.modes.iter().flat_map(|m| &m.points);
    let limits: [Limit<'_>; 2] = [
        ("tester's ceiling", DashType::Dash, &|p| p.ceiling_pps),
        ("line rate", DashType::Dot, &|p| figures.line_pps(&p.frame)),
    ];
    for (name, dash, limit) in limits {
        let of = |frame: &FrameSpec| points().filter(|p| p.frame == *frame).find_map(limit);
        let (frames, pps): (Vec<String>, Vec<f64>) =
            figures.frames().into_iter().filter_map(|f| Some((short(f), of(f)?))).unzip();
        if !pps.is_empty() {
            traces.push(line(
                name,
                frames,
                pps,
                Look { colour: CEILING, dash, symbol: MarkerSymbol::LineEWOpen },
                hover,
            ));
        }
    }
    let layout = Layout::new().show_legend(true).x_axis(frame_axis(figures)).y_axis(log_axis(rate_tick));
    (!traces.is_empty()).then(|| plot("theory", HEIGHT_PX, TraceOrder::Normal, layout, traces))
}

/// What others have published, in rows of its own; rates of one direction are doubled. None when there is nothing.
pub(crate) fn published(figures: Figures<'_>) -> Option<String> {
    let sources = &figures.0.sources;
    let (mut rows, mut platforms): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for s in sources {
        let row = format!("{}, {}", s.mode, s.frame_bytes);
        if !rows.contains(&row) {
            rows.push(row);
        }
        if !platforms.contains(&s.on.as_str()) {
            platforms.push(&s.on);
        }
    }
    rows.reverse();
    let traces = platforms.iter().enumerate().rev().map(|(i, platform)| -> Box<dyn Trace> {
        let total = |row: &String| {
            let rate = sources.iter().find(|s| s.on == **platform && format!("{}, {}", s.mode, s.frame_bytes) == *row);
            rate.map(|s| s.pps * if s.per_direction { 2.0 } else { 1.0 } / 1e3)
        };
        let values: Vec<Option<f64>> = rows.iter().map(total).collect();
        let labels = values.iter().map(|v| v.map_or_else(String::new, |kpps| format!("{kpps:.0} kpps"))).collect();
        Bar::new(values, rows.clone())
            .name(*platform)
            .orientation(Orientation::Horizontal)
            .marker(published_marker(i))
            .text_array(labels)
            .text_position(TextPosition::Outside)
            .clip_on_axis(false)
            .hover_info(HoverInfo::Skip)
    });
    let traces: Vec<Box<dyn Trace>> = traces.collect();
    let longest = sources.iter().map(|s| s.pps / 1e3).fold(0.0, f64::max);
    let layout = Layout::new()
        .bar_mode(BarMode::Group)
        .show_legend(true)
        .y_axis(category_axis())
        .x_axis(value_axis(" k").range(vec![0.0, 1.25 * longest]));
    (!sources.is_empty()).then(|| plot("published", HEIGHT_PX, TraceOrder::Reversed, layout, traces))
}
