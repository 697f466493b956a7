//! Loss over the offered rate.

use model::bench::Mode;
use plotly::{
    Layout, Trace,
    common::{DashType, MarkerSymbol},
    layout::{RangeMode, TraceOrder},
};

use super::{HEIGHT_PX, Look, line};
use crate::{
    bench::figures::{self, Figures, short},
    charts::{plot, value_axis},
};

/// Loss over the offered rate: a panel for each mode, a line for each kind of frame.
pub(crate) fn losses<'a>(figures: Figures<'a>) -> Vec<(&'a Mode, String)> {
    const SHADES: [&str; 9] =
        ["#2f7fc1", "#00a3a3", "#1a9850", "#8cb400", "#d0a000", "#e8701a", "#c2334d", "#9b6bb8", "#8a949e"];
    let frames = figures.frames();
    let modes = figures.0.modes.iter().filter_map(|mode| {
        let traces: Vec<Box<dyn Trace>> = mode
            .points
            .iter()
            .filter_map(|point| {
                let (points, _) = figures::losses(point);
                let (offered, lost): (Vec<f64>, Vec<f64>) =
                    points.iter().map(|(pps, loss)| (pps / 1e3, 100.0 * loss)).unzip();
                let at = frames.iter().position(|f| **f == point.frame).unwrap_or(0);
                let look =
                    Look { colour: SHADES[at % SHADES.len()], dash: DashType::Solid, symbol: MarkerSymbol::Circle };
                let name = short(&point.frame);
                (!offered.is_empty()).then(|| line(&name, offered, lost, look, "%{y:.3~g} % of %{x:.4~g} kpps"))
            })
            .collect();
        let layout = Layout::new()
            .show_legend(true)
            .separators(". ")
            .x_axis(value_axis("").tick_format(",~r").range_mode(RangeMode::ToZero))
            .y_axis(value_axis(" %").range(vec![-2.0, 102.0]).auto_margin(true));
        let id = format!("loss-{}", mode.key);
        (!traces.is_empty()).then(|| (mode, plot(&id, HEIGHT_PX, TraceOrder::Normal, layout, traces)))
    });
    modes.collect()
}
