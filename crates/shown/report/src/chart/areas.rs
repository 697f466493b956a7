//! Areas on top of each other over a number, in percent, and a line on an axis of its own at the right.

use super::{
    Dash, Look, Mark, Room, figure,
    plane::{self, Across, Up},
};

/// Height of the image in pixels.
const HEIGHT: f64 = 360.0;
/// The line has the page's ink.
const INK: Look = Look { colour: "var(--ink)", dash: Dash::Solid, mark: Mark::Circle };

/// An area: a value for each step.
pub(crate) struct Area {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) percent: Vec<f64>,
}

/// The steps, from left to right.
pub(crate) struct Steps {
    pub(crate) x: Vec<f64>,
    /// The values of the line.
    pub(crate) line: Vec<f64>,
    /// Text under the pointer at each step.
    pub(crate) tips: Vec<String>,
}

pub(crate) fn chart(
    id: &str,
    label: &str,
    across: &Across,
    up: &Up,
    right: &Up,
    areas: &[Area],
    steps: &Steps,
) -> String {
    figure(id, label, Room::Half, &[], |canvas| {
        let plane = plane::draw(canvas, HEIGHT, up, across, Some(right));
        let x = |i: usize| match across {
            Across::Numbers { scale, .. } => plane.x(scale, steps.x[i]),
            Across::Names(names) => plane.slot(i, names.len()),
        };
        let mut base = vec![0.0; steps.x.len()];
        for area in areas {
            let edge = |heights: &[f64], i: usize| (x(i), plane.y(&up.scale, heights[i]));
            let top: Vec<f64> = base.iter().zip(&area.percent).map(|(b, p)| b + p).collect();
            let there = (0..steps.x.len()).map(|i| edge(&top, i));
            let back = (0..steps.x.len()).rev().map(|i| edge(&base, i));
            let outline: Vec<(f64, f64)> = there.chain(back).collect();
            canvas.polygon(&outline, area.colour, 1.0, &area.name);
            base = top;
        }
        let points: Vec<(f64, f64)> =
            steps.line.iter().enumerate().map(|(i, v)| (x(i), plane.y(&right.scale, *v))).collect();
        canvas.polyline(&points, INK, 2.5);
        // Each step has a strip that tells all of its values.
        for i in 0..steps.x.len() {
            let from = if i == 0 { plane.left } else { 0.5 * (x(i - 1) + x(i)) };
            let to = if i + 1 == steps.x.len() { plane.right } else { 0.5 * (x(i) + x(i + 1)) };
            let size = (to - from, plane.bottom - plane.top);
            canvas.rect((from, plane.top), size, "transparent", false, &steps.tips[i]);
        }
        canvas.marks(INK, points.into_iter().zip(steps.tips.iter().cloned()));
    })
}
