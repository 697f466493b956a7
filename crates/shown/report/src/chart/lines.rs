//! Lines with a mark at each value.

use super::{
    Key, Look, Room, figure,
    plane::{self, Across, Up},
};

/// Height of the image in pixels.
const HEIGHT: f64 = 320.0;

/// A value of a line.
pub(crate) struct Dot {
    /// Its number on the axis, or which of the axis's names it belongs to.
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) tip: String,
}

pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) dots: Vec<Dot>,
}

/// The chart, with a dashed line at `goal`.
pub(crate) fn chart(id: &str, label: &str, across: &Across, up: &Up, lines: &[Line], goal: Option<f64>) -> String {
    let legend: Vec<Key> = lines.iter().map(|l| Key::Line { name: l.name.clone(), look: l.look }).collect();
    figure(id, label, Room::Half, &legend, |canvas| {
        let plane = plane::draw(canvas, HEIGHT, up, across, None);
        let place = |dot: &Dot| {
            let x = match across {
                Across::Names(names) => plane.slot(dot.x as usize, names.len()),
                Across::Numbers { scale, .. } => plane.x(scale, dot.x),
            };
            (x, plane.y(&up.scale, dot.y))
        };
        if let Some(goal) = goal {
            let y = plane.y(&up.scale, goal);
            canvas.rules("goal", &[[(plane.left, y), (plane.right, y)]]);
        }
        for line in lines {
            let points: Vec<(f64, f64)> = line.dots.iter().map(place).collect();
            canvas.polyline(&points, line.look, 2.0);
        }
        for line in lines {
            let tip = |dot: &Dot| (place(dot), format!("{}\n{}", line.name, dot.tip));
            canvas.marks(line.look, line.dots.iter().map(tip));
        }
    })
}
