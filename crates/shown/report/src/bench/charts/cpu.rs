//! Radars of the CPU time of the box.

use model::{
    bench::{FrameSpec, Mode},
    profile::Class,
};

use super::colour;
use crate::{
    bench::figures::{self, Figures, short},
    chart::radar::{self, Shape},
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
    let shapes =
        modes.into_iter().map(|(mode, values)| Shape { name: mode.name.clone(), colour: colour(mode), values });
    let label =
        "Radar: CPU time of the box at the throughput, a shape for each box; the figures are in the tables below";
    Some(radar::chart(id, label, corners, &shapes.collect::<Vec<_>>()))
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
