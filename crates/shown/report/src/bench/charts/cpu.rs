//! The CPU time of the box, as bars.

use model::{bench::Mode, profile::Class};

use super::colour;
use crate::{
    bench::figures::{self, Figures, short},
    chart::{
        Room,
        rows::{self, Axis, Bars},
    },
    load_areas,
};

/// Classes with a colour of their own; the others are one.
const CLASSES: usize = 8;

/// The load of the box's cores at the throughput, a row for each kind of frame.
pub(crate) fn cpu_by_frame(figures: Figures<'_>) -> Option<String> {
    let frames = figures.frames();
    let of = |mode: &Mode| {
        let busy = |frame: &&model::bench::FrameSpec| {
            let point = mode.points.iter().find(|p| p.frame == **frame);
            let percent = point.and_then(figures::at_throughput).and_then(figures::busy_percent);
            (percent, percent.map_or_else(String::new, |p| format!("{p:.0} %")))
        };
        Bars::new(&mode.name, colour(mode), frames.iter().map(busy))
    };
    let series: Vec<Bars> = figures.0.modes.iter().map(of).filter(|s| s.bars.iter().any(|b| b.0.is_some())).collect();
    let names: Vec<String> = frames.iter().map(|f| short(f)).collect();
    let label = "Bars: load of the box's cores at the throughput by kind of frame; the figures are in the tables below";
    (!series.is_empty()).then(|| rows::chart("cpu-frames", label, Room::Half, &names, &series, Axis::Numbers(" %")))
}

/// The classes of work of the box's cores at the throughput of the first kind of frame, a stacked bar for each box.
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
    let names: Vec<String> = seen.iter().map(|(mode, _)| mode.name.clone()).collect();
    let bar = |percent: f64| (Some(percent), format!("{percent:.0} %"));
    let of = |class: &Class| {
        let percents = seen.iter().map(|(_, t)| bar(t.observed.classes.get(class).copied().unwrap_or(0.0)));
        Bars::new(class.name(), load_areas::colour(*class), percents)
    };
    let mut series: Vec<Bars> = classes.iter().map(of).collect();
    let small = |t: &model::bench::Trial| {
        let busy = t.observed.classes.iter().filter(|(c, _)| c.is_busy() && !classes.contains(c));
        busy.map(|(_, percent)| percent).sum::<f64>()
    };
    let rest: Vec<_> = seen.iter().map(|(_, t)| bar(small(t))).collect();
    if rest.iter().any(|r| r.0.is_some_and(|p| p >= 0.05)) {
        series.push(Bars::new(load_areas::SMALL_ONES.0, load_areas::SMALL_ONES.1, rest));
    }
    let label =
        "Stacked bars: classes of work of the box's cores at the throughput; the figures are in the tables below";
    (!series.is_empty() && !names.is_empty()).then(|| rows::stacked("cpu-classes", label, Room::Half, &names, &series))
}
