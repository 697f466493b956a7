//! A run of `bench flood` as one self-contained page: what clients notice, over the rate of the flood.

use askama::Template;
use model::flood::{FloodMode, FloodPoint, FloodRun, UNTOUCHED_P99_NS};
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
    success: String,
    goodput: String,
    delays: String,
    host: String,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn flood_page(run: &FloodRun) -> Result<String, PageError> {
    let of_host = |p: &FloodPoint| p.host_percent(&run.setup.host_cpus);
    let page = Page {
        run,
        library: charts::library(),
        conclusion: flood::conclusion(run),
        success: chart(
            run,
            "success",
            &[("", DashType::Solid, &|p| Some(100.0 * p.clients.success_ratio()))],
            "%{y:.4~g} %",
            percent_axis(100.0),
        ),
        goodput: chart(
            run,
            "goodput",
            &[("", DashType::Solid, &|p| Some(p.clients.goodput_per_s()))],
            "%{y:.4~g} answers/s",
            charts::value_axis("").range_mode(RangeMode::ToZero).auto_margin(true),
        ),
        delays: delays(run),
        host: chart(
            run,
            "host",
            &[("", DashType::Solid, &of_host)],
            "%{y:.3~g} %",
            percent_axis(100.0 * run.setup.host_cpus.len().max(1) as f64),
        ),
        conditions: flood::conditions(run),
    };
    Ok(page.render()?)
}

/// Name, dash, value.
type Series<'a> = (&'a str, DashType, &'a dyn Fn(&FloodPoint) -> Option<f64>);

/// The colour of a protection: the same in every chart.
fn colour(mode: &FloodMode) -> &'static str {
    match mode.key.as_str() {
        "none" => "#8a949e",
        "plain" => "#2f7fc1",
        "cookies" => "#00a3a3",
        "nft-ingress" => "#e08214",
        "synproxy" => "#c2334d",
        "shield" => "#1a9850",
        _ => "#7b5ea7",
    }
}

fn symbol(mode: &FloodMode) -> MarkerSymbol {
    match mode.key.as_str() {
        "none" => MarkerSymbol::X,
        "plain" => MarkerSymbol::Square,
        "cookies" => MarkerSymbol::Diamond,
        "nft-ingress" => MarkerSymbol::TriangleUp,
        "synproxy" => MarkerSymbol::TriangleDown,
        _ => MarkerSymbol::Circle,
    }
}

fn percent_axis(most: f64) -> Axis {
    charts::value_axis(" %").range(vec![-0.02 * most, 1.03 * most]).auto_margin(true)
}

/// Milliseconds, logarithmic, with the line that percentile 99 is to stay below.
fn delays(run: &FloodRun) -> String {
    let p50 = |p: &FloodPoint| p.clients.connect.as_ref().map(|c| c.p50_ns as f64 / 1e6);
    let p99 = |p: &FloodPoint| p.clients.connect.as_ref().map(|c| c.p99_ns as f64 / 1e6);
    let decades = (-3..=4).map(|n| 10f64.powi(n));
    let values: Vec<f64> = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * decade)).collect();
    let names = values.iter().map(|&ms| if ms < 0.995 { format!("{:.0} µs", 1e3 * ms) } else { format!("{ms:.0} ms") });
    let names = names.collect();
    let axis = Axis::new().fixed_range(true).type_(AxisType::Log).auto_margin(true);
    let axis = axis.tick_values(values).tick_text(names);
    chart(
        run,
        "delays",
        &[("p50", DashType::Dot, &p50), ("p99", DashType::Solid, &p99)],
        "%{y:.3~g} ms",
        axis,
    )
}

/// Lines over the offered rate, one of each series for each protection.
fn chart(run: &FloodRun, id: &str, series: &[Series<'_>], hover: &str, axis: Axis) -> String {
    let top = run.modes.iter().flat_map(|m| &m.points).map(FloodPoint::offered_pps).fold(1.0, f64::max);
    let (scale, unit) = if top >= 2e6 { (1e6, "Mpps") } else { (1e3, "kpps") };
    let mut traces: Vec<Box<dyn Trace>> = Vec::new();
    for mode in &run.modes {
        for (name, dash, value) in series {
            let points = mode.points.iter().filter_map(|p| Some((p.offered_pps() / scale, value(p)?)));
            let (x, y): (Vec<f64>, Vec<f64>) = points.unzip();
            if x.is_empty() {
                continue;
            }
            let name = [&mode.name, *name].join(" ");
            let colour = colour(mode);
            traces.push(
                Scatter::new(x, y)
                    .name(name.trim_end())
                    .mode(Draw::LinesMarkers)
                    .line(Line::new().width(2.0).color(colour).dash(dash.clone()))
                    .marker(Marker::new().size(7).color(colour).symbol(symbol(mode)))
                    .hover_template(format!("{hover} at %{{x:.3~g}} {unit}<extra>%{{fullData.name}}</extra>")),
            );
        }
    }
    let x_axis = Axis::new().fixed_range(true).range_mode(RangeMode::ToZero).n_ticks(6).title(format!("flood offered, {unit}"));
    let mut layout = Layout::new().show_legend(true).x_axis(x_axis).y_axis(axis);
    if id == "delays" {
        let goal = UNTOUCHED_P99_NS as f64 / 1e6;
        let line = ShapeLine::new().color(GOAL).width(1.5).dash(DashType::Dash);
        let shape = Shape::new().shape_type(ShapeType::Line).x_ref("paper").y_ref("y").x0(0).x1(1).y0(goal).y1(goal);
        layout = layout.shapes(vec![shape.line(line)]);
    }
    charts::plot(id, HEIGHT_PX, TraceOrder::Normal, layout, traces)
}

/// What the template calls.
impl Page<'_> {
    fn heads(&self) -> [(&'static str, bool); 9] {
        let wide = ["ANSWERED", "GOODPUT", "SYN x2", "CPU"];
        flood::HEADS.map(|head| head.trim_start_matches('>')).map(|head| (head, wide.contains(&head)))
    }

    fn cells(&self, point: &FloodPoint) -> Vec<(String, bool)> {
        flood::row(self.run, point).into_iter().zip(self.heads()).map(|(cell, (_, wide))| (cell, wide)).collect()
    }

    fn ends(&self, mode: &FloodMode) -> Vec<String> {
        mode.points.iter().filter_map(flood::ends).collect()
    }
}
