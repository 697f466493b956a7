//! A run of `bench flood` as one self-contained page: what clients notice, over the rate of the flood.

use askama::Template;
use model::{
    bench::Delays,
    flood::{FloodMode, FloodPoint, FloodRun, UNTOUCHED_P99_NS},
    units,
};
use plotly::{
    Layout, Scatter, Trace,
    common::{DashType, Line, Marker, MarkerSymbol, Mode as Draw},
    layout::{Axis, AxisType, RangeMode, Shape, ShapeLine, ShapeType, TraceOrder},
};

use crate::{PageError, charts, flood};

/// The height of a chart in pixels.
const HEIGHT_PX: usize = 400;
/// Of the line that a percentile is to stay below.
const GOAL: &str = "#8a949e";

#[derive(Template)]
#[template(path = "flood.html")]
struct Page<'a> {
    run: &'a FloodRun,
    library: String,
    conclusion: Vec<String>,
    /// In pairs: heading, what it shows, the chart.
    charts: Vec<Vec<(&'static str, String, String)>>,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn flood_page(run: &FloodRun) -> Result<String, PageError> {
    let setup = &run.setup;
    let of_host = |p: &FloodPoint| p.host_percent(&setup.host_cpus);
    let ms = |get: fn(&Delays) -> u64| move |p: &FloodPoint| Some(get(p.clients.connect.as_ref()?) as f64 / 1e6);
    let from_zero = || charts::value_axis("").range_mode(RangeMode::ToZero).auto_margin(true);
    let success = |p: &FloodPoint| Some(100.0 * p.clients.success_ratio());
    let goodput = |p: &FloodPoint| Some(p.clients.goodput_per_s());
    let answered = |p: &FloodPoint| Some(p.answered_pps() / 1e6);
    let mut all = vec![
        (
            "Success",
            format!("Clients with an answer in time, of {} at each rate of the flood.", setup.connects),
            chart(run, "success", &success, "%{y:.4~g} %", percent_axis(100.0)),
        ),
        (
            "Time to connect, percentile 99",
            "Of the clients that connected in time; logarithmic. What is above the dashed line, 5 ms, is noticed."
                .into(),
            chart(run, "p99", &ms(|d| d.p99_ns), "%{y:.3~g} ms", delay_axis()),
        ),
        (
            "Goodput",
            format!("Answers to clients per second, of {} asked for.", setup.connects_per_s),
            chart(run, "goodput", &goodput, "%{y:.4~g} answers/s", from_zero()),
        ),
        (
            "Time to connect, median",
            "Of the same clients; logarithmic.".into(),
            chart(run, "p50", &ms(|d| d.p50_ns), "%{y:.3~g} ms", delay_axis()),
        ),
        (
            "Flood answered",
            "Million SYN-ACKs per second to spoofed sources, counted at the far end of the link.".into(),
            chart(run, "answered", &answered, "%{y:.3~g} M/s", from_zero()),
        ),
        (
            "Load of the host",
            "Busy time of the host's cores, 100 % for each.".into(),
            chart(run, "host", &of_host, "%{y:.3~g} %", percent_axis(100.0 * setup.host_cpus.len().max(1) as f64)),
        ),
    ]
    .into_iter()
    .peekable();
    let mut pairs = Vec::new();
    while all.peek().is_some() {
        pairs.push(all.by_ref().take(2).collect());
    }
    let page = Page {
        run,
        library: charts::library(),
        conclusion: flood::conclusion(run),
        charts: pairs,
        conditions: flood::conditions(run),
    };
    Ok(page.render()?)
}

/// The colour of a protection: the same in every chart.
fn colour(mode: &FloodMode) -> &'static str {
    match mode.key.as_str() {
        "none" => "#8a949e",
        "plain" => "#2f7fc1",
        "cookies" => "#00a3a3",
        "nft-ingress" => "#e08214",
        "synproxy" => "#c2334d",
        "shield" => "#1a9850",
        "gateway" => "#7b5ea7",
        "gateway-ring" => "#a6611a",
        _ => "#555555",
    }
}

fn symbol(mode: &FloodMode) -> MarkerSymbol {
    match mode.key.as_str() {
        "none" => MarkerSymbol::X,
        "plain" => MarkerSymbol::Square,
        "cookies" => MarkerSymbol::Diamond,
        "nft-ingress" => MarkerSymbol::TriangleUp,
        "synproxy" => MarkerSymbol::TriangleDown,
        "gateway" => MarkerSymbol::Star,
        "gateway-ring" => MarkerSymbol::Cross,
        _ => MarkerSymbol::Circle,
    }
}

fn percent_axis(most: f64) -> Axis {
    charts::value_axis(" %").range(vec![-0.02 * most, 1.03 * most]).auto_margin(true)
}

/// Milliseconds, logarithmic.
fn delay_axis() -> Axis {
    let decades = (-3..=4).map(|n| 10f64.powi(n));
    let values: Vec<f64> = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * decade)).collect();
    let names = values.iter().map(|&ms| if ms < 0.995 { format!("{:.0} µs", 1e3 * ms) } else { format!("{ms:.0} ms") });
    let names = names.collect();
    Axis::new().fixed_range(true).type_(AxisType::Log).auto_margin(true).tick_values(values).tick_text(names)
}

/// The rate that was asked for, as the axis has it: rates lie too far apart for a scale.
fn rate(point: &FloodPoint) -> String {
    match point.wanted_pps {
        None => "max".to_owned(),
        Some(0.0) => "none".to_owned(),
        Some(pps) if pps < 1e6 => format!("{} k/s", pps / 1e3),
        Some(pps) => format!("{} M/s", pps / 1e6),
    }
}

/// A line for each protection over the rates.
fn chart(run: &FloodRun, id: &str, value: &dyn Fn(&FloodPoint) -> Option<f64>, hover: &str, axis: Axis) -> String {
    let mut rates: Vec<(f64, String)> =
        run.modes.iter().flat_map(|m| &m.points).map(|p| (p.wanted_pps.unwrap_or(f64::INFINITY), rate(p))).collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    rates.dedup();
    let mut traces: Vec<Box<dyn Trace>> = Vec::new();
    for mode in &run.modes {
        let points: Vec<(&FloodPoint, f64)> = mode.points.iter().filter_map(|p| Some((p, value(p)?))).collect();
        if points.is_empty() {
            continue;
        }
        let colour = colour(mode);
        let offered = points.iter().map(|(p, _)| units::pps(p.offered_pps())).collect();
        let (x, y): (Vec<String>, Vec<f64>) = points.iter().map(|(p, y)| (rate(p), *y)).unzip();
        traces.push(
            Scatter::new(x, y)
                .name(&mode.name)
                .mode(Draw::LinesMarkers)
                .line(Line::new().width(2.0).color(colour))
                .marker(Marker::new().size(8).color(colour).symbol(symbol(mode)))
                .text_array(offered)
                .hover_template(format!("{hover} at %{{text}} offered<extra>%{{fullData.name}}</extra>")),
        );
    }
    let names = rates.into_iter().map(|(_, name)| name).collect();
    let x_axis = Axis::new().type_(AxisType::Category).category_array(names).fixed_range(true);
    let mut layout = Layout::new().show_legend(true).x_axis(x_axis).y_axis(axis);
    if id == "p99" {
        let goal = UNTOUCHED_P99_NS as f64 / 1e6;
        let line = ShapeLine::new().color(GOAL).width(1.5).dash(DashType::Dash);
        let shape = Shape::new().shape_type(ShapeType::Line).x_ref("paper").y_ref("y").x0(0).x1(1).y0(goal).y1(goal);
        layout = layout.shapes(vec![shape.line(line)]);
    }
    charts::plot(id, HEIGHT_PX, TraceOrder::Normal, layout, traces)
}

/// What the template calls.
impl Page<'_> {
    fn heads(&self) -> [(&'static str, bool); 11] {
        let wide = ["ARRIVED", "ANSWERED", "SURELY", "GOODPUT", "AGAIN", "CPU", "CLIENTS"];
        flood::HEADS.map(|head| head.trim_start_matches('>')).map(|head| (head, wide.contains(&head)))
    }

    fn cells(&self, point: &FloodPoint) -> Vec<(String, bool)> {
        flood::row(self.run, point).into_iter().zip(self.heads()).map(|(cell, (_, wide))| (cell, wide)).collect()
    }

    fn ends(&self, mode: &FloodMode) -> Vec<String> {
        mode.points.iter().filter_map(flood::ends).collect()
    }

    fn failures(&self, mode: &FloodMode) -> Vec<String> {
        mode.points.iter().filter_map(flood::failures).collect()
    }
}
