//! Radars of the CPU time of the box.

use model::{
    bench::{FrameSpec, Mode},
    profile::Class,
};
use plotly::{
    Layout, ScatterPolar, Trace,
    common::{Fill, Line, Marker, Mode as Draw},
    layout::{
        AngularAxis, AngularAxisType, LayoutPolar, Margin, PolarAxisAttributes, PolarAxisTicks, PolarDirection,
        PolarTickMode, RadialAxis, TraceOrder,
    },
};

use super::{HEIGHT_PX, colour};
use crate::{
    bench::figures::{self, Figures, short},
    charts::plot_within,
};

/// A radar with fewer corners than this is none.
const CORNERS: usize = 3;
/// The corners of the radar of classes.
const CLASSES: usize = 8;

/// A radar: the load of the box's cores by kind of frame, or the classes of it at the first kind. None with too few corners.
fn radar(id: &str, corners: &[String], modes: Vec<(&Mode, Vec<f64>)>) -> Option<String> {
    if corners.len() < CORNERS || modes.is_empty() {
        return None;
    }
    let closed = |mut values: Vec<f64>| {
        values.extend(values.first().copied());
        values
    };
    let mut around = corners.to_vec();
    around.extend(corners.first().cloned());
    let most = modes.iter().flat_map(|(_, v)| v).copied().fold(0.0, f64::max);
    let traces = modes.into_iter().map(|(mode, values)| -> Box<dyn Trace> {
        ScatterPolar::new(around.clone(), closed(values))
            .name(&mode.name)
            .mode(Draw::LinesMarkers)
            .fill(Fill::ToSelf)
            .fill_color(format!("{}1f", colour(mode)))
            .line(Line::new().width(2.0).color(colour(mode)))
            .marker(Marker::new().size(6).color(colour(mode)))
            .hover_template("%{theta}: %{r:.1f} %<extra>%{fullData.name}</extra>")
    });
    let ticks = PolarAxisTicks::new().tick_suffix(" %").tick_mode(PolarTickMode::Auto { n_ticks: Some(5) });
    let around =
        AngularAxis::new().axis_type(AngularAxisType::Category).direction(PolarDirection::Clockwise).rotation(90.0);
    // Between the first two corners: on a corner its numbers would run into the corner's name.
    let radial = RadialAxis::new()
        .angle(90.0 - 180.0 / corners.len() as f64)
        .range([0.0.into(), (1.05 * most.max(1.0)).into()])
        .axis_attributes(PolarAxisAttributes::new().ticks(ticks));
    let layout = Layout::new().show_legend(true).polar(LayoutPolar::new().angular_axis(around).radial_axis(radial));
    // The names of the corners stand outside of the circle.
    let margin = Margin::new().left(72).right(72).top(28).bottom(64);
    Some(plot_within(id, HEIGHT_PX, TraceOrder::Normal, layout.margin(margin), traces.collect()))
}

/// The load of the box's cores at the throughput, a corner for each kind of frame.
pub(crate) fn cpu_by_frame(figures: Figures<'_>) -> Option<String> {
    let frames = figures.frames();
    let modes = figures.0.modes.iter().filter_map(|mode| {
        let busy = |frame: &&FrameSpec| {
            let point = mode.points.iter().find(|p| p.frame == **frame)?;
            figures::at_throughput(point).and_then(figures::busy_percent)
        };
        // A corner that was not seen would look like an idle box.
        Some((mode, frames.iter().map(busy).collect::<Option<Vec<f64>>>()?))
    });
    let corners: Vec<String> = frames.iter().map(|f| short(f)).collect();
    radar("cpu-frames", &corners, modes.collect())
}

/// The classes of work of the box's cores at the throughput of the first kind of frame, a corner for each.
pub(crate) fn cpu_by_class(figures: Figures<'_>) -> Option<String> {
    let frame = *figures.frames().first()?;
    let seen: Vec<(&Mode, _)> = figures
        .0
        .modes
        .iter()
        .filter_map(|m| Some((m, figures::at_throughput(m.points.iter().find(|p| p.frame == *frame)?)?)))
        .filter(|(_, trial)| !trial.observed.classes.is_empty())
        .collect();
    let most =
        |class: Class| seen.iter().filter_map(|(_, t)| t.observed.classes.get(&class)).copied().fold(0.0, f64::max);
    let mut classes: Vec<Class> = Class::ALL.into_iter().filter(|&c| c.is_busy() && most(c) > 0.0).collect();
    classes.sort_by(|a, b| most(*b).total_cmp(&most(*a)));
    classes.truncate(CLASSES);
    let modes = seen.iter().map(|(mode, trial)| {
        (*mode, classes.iter().map(|c| trial.observed.classes.get(c).copied().unwrap_or(0.0)).collect())
    });
    let corners: Vec<String> = classes.iter().map(|c| c.key().to_owned()).collect();
    radar("cpu-classes", &corners, modes.collect())
}
