//! The charts of a bench's page.

mod cpu;
mod delays;
mod losses;
mod rates;

use model::bench::{Mode, Point};
use plotly::{
    Scatter, Trace,
    common::{DashType, Line, Marker, MarkerSymbol, Mode as Draw},
    layout::{Axis, AxisType},
};
use serde::Serialize;

pub(crate) use cpu::{cpu_by_class, cpu_by_frame};
pub(crate) use delays::{jitter, loaded_frame, one_way, over_load, round_trips};
pub(crate) use losses::losses;
pub(crate) use rates::{bits, published, rates, theory};

use super::figures::{Figures, short};

/// The height of a chart in pixels.
const HEIGHT_PX: usize = 400;
const CEILING: &str = "#8a949e";

/// The colour of a mode: the same in every chart.
fn colour(mode: &Mode) -> &'static str {
    match mode.key.as_str() {
        "router" => "#2f7fc1",
        "stateless" => "#e08214",
        "stateful" => "#c2334d",
        "bridge" => "#7b5ea7",
        "xdp-fib" => "#1a9850",
        "ports" => "#00838f",
        _ => CEILING,
    }
}

/// Frame sizes from left to right, as names: their distances mean nothing.
fn frame_axis(figures: Figures<'_>) -> Axis {
    let names = figures.frames().into_iter().map(short).collect();
    Axis::new().type_(AxisType::Category).category_array(names).fixed_range(true)
}

/// A value for every kind of frame of the run, those without it left out.
fn by_frame<T>(mode: &Mode, value: impl Fn(&Point) -> Option<T>) -> (Vec<String>, Vec<T>) {
    mode.points.iter().filter_map(|p| Some((short(&p.frame), value(p)?))).unzip()
}

/// A logarithmic axis with a tick at 1, 2 and 5 of every decade: an axis left to itself writes so many that they overlap.
fn log_axis(tick: impl Fn(f64) -> String) -> Axis {
    let decades = (-3..=9).map(|n| 10f64.powi(n));
    let values: Vec<f64> = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * decade)).collect();
    let names = values.iter().map(|&v| tick(v)).collect();
    Axis::new().fixed_range(true).type_(AxisType::Log).auto_margin(true).tick_values(values).tick_text(names)
}

/// How a line looks.
struct Look {
    colour: &'static str,
    dash: DashType,
    symbol: MarkerSymbol,
}

fn line<X, Y>(name: &str, x: Vec<X>, y: Vec<Y>, look: Look, hover: &str) -> Box<dyn Trace>
where
    X: Serialize + Clone + 'static,
    Y: Serialize + Clone + 'static,
{
    Scatter::new(x, y)
        .name(name)
        .mode(Draw::LinesMarkers)
        .line(Line::new().width(2.0).color(look.colour).dash(look.dash))
        .marker(Marker::new().size(7).color(look.colour).symbol(look.symbol))
        .hover_template(format!("{hover}<extra>%{{fullData.name}}</extra>"))
}
