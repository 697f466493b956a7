//! The plane of a chart with two axes: its margins, grid and names.

use super::{
    scale::Scale,
    svg::{Anchor, Canvas, TEXT, text_width},
};

/// Room between an axis and its names.
const GAP: f64 = 6.0;
/// The height of a line of names below the plane.
const NAMES: f64 = 20.0;

/// The axis that goes up.
pub(crate) struct Up {
    pub(crate) scale: Scale,
    /// A value as the axis names it.
    pub(crate) name: fn(f64) -> String,
    /// Title of the axis, where the text above the chart does not name it.
    pub(crate) title: Option<String>,
}

/// The axis from left to right.
pub(crate) enum Across {
    /// Names at equal distances.
    Names(Vec<String>),
    Numbers {
        scale: Scale,
        /// A value as the axis names it.
        name: fn(f64) -> String,
        title: Option<String>,
    },
}

impl Across {
    fn title(&self) -> Option<&str> {
        match self {
            Self::Names(_) => None,
            Self::Numbers { title, .. } => title.as_deref(),
        }
    }
}

/// The rectangle in which values are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Plane {
    /// The height on the canvas of a value.
    pub(crate) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom - scale.at(value) * (self.bottom - self.top)
    }

    /// The place on the canvas of a value.
    pub(crate) fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.at(value) * (self.right - self.left)
    }

    /// The middle of the `i`th of `n` slots.
    pub(crate) fn slot(&self, i: usize, n: usize) -> f64 {
        self.left + (i as f64 + 0.5) * self.slot_width(n)
    }

    pub(crate) fn slot_width(&self, n: usize) -> f64 {
        (self.right - self.left) / n.max(1) as f64
    }
}

/// Number of names for an axis of that length.
fn names_up(height: f64) -> usize {
    (height / 55.0).clamp(3.0, 8.0) as usize
}

/// Draws grid and names of both axes, and of a second one on the right. The canvas gets this height.
pub(crate) fn draw(canvas: &mut Canvas, height: f64, up: &Up, across: &Across, right: Option<&Up>) -> Plane {
    let wanted = names_up(height);
    let widest = |axis: &Up| {
        let names = axis.scale.names(wanted).into_iter().map(|v| text_width(&(axis.name)(v)));
        names.fold(0.0, f64::max) + GAP + if axis.title.is_some() { TEXT + GAP } else { 0.0 }
    };
    let mut plane = Plane {
        left: widest(up),
        right: canvas.width() - right.map_or(8.0, widest),
        top: 10.0,
        bottom: height - NAMES - across.title().map_or(0.0, |_| TEXT + GAP),
    };
    // Names that are wider than their slots are set aslant.
    let slanted = match across {
        Across::Names(names) => {
            let widest = names.iter().map(|n| text_width(n)).fold(0.0, f64::max);
            let slanted = widest > plane.slot_width(names.len()) - 2.0;
            if slanted {
                plane.bottom -= 0.65 * widest;
            }
            slanted
        }
        Across::Numbers { .. } => false,
    };
    canvas.set_height(height);
    let lines: Vec<_> = up.scale.names(wanted).into_iter().map(|v| plane.y(&up.scale, v)).collect();
    canvas.rules("grid", &lines.iter().map(|y| [(plane.left, *y), (plane.right, *y)]).collect::<Vec<_>>());
    for (value, y) in up.scale.names(wanted).into_iter().zip(lines) {
        canvas.text((plane.left - GAP, y + 0.35 * TEXT), Anchor::End, &(up.name)(value));
    }
    if let Some(axis) = right {
        for value in axis.scale.names(wanted) {
            let y = plane.y(&axis.scale, value);
            canvas.text((plane.right + GAP, y + 0.35 * TEXT), Anchor::Start, &(axis.name)(value));
        }
        if let Some(title) = &axis.title {
            canvas.upright((canvas.width() - 3.0, 0.5 * (plane.top + plane.bottom)), title);
        }
    }
    if let Some(title) = &up.title {
        canvas.upright((TEXT, 0.5 * (plane.top + plane.bottom)), title);
    }
    canvas.rules("axis", &[[(plane.left, plane.bottom), (plane.right, plane.bottom)]]);
    let below = plane.bottom + GAP + 0.8 * TEXT;
    match across {
        Across::Names(names) => {
            for (i, name) in names.iter().enumerate() {
                let x = plane.slot(i, names.len());
                if slanted {
                    canvas.slanted((x + 0.3 * TEXT, below - 2.0), name);
                } else {
                    canvas.text((x, below), Anchor::Middle, name);
                }
            }
        }
        Across::Numbers { scale, name, title } => {
            let values = scale.names(((plane.right - plane.left) / 75.0).clamp(3.0, 9.0) as usize);
            for value in values {
                let (x, text) = (plane.x(scale, value), name(value));
                // The last name must not leave the image.
                let half = 0.5 * text_width(&text);
                canvas.rules("axis", &[[(x, plane.bottom), (x, plane.bottom + 4.0)]]);
                canvas.text((x.min(canvas.width() - half), below), Anchor::Middle, &text);
            }
            if let Some(title) = title {
                canvas.text((0.5 * (plane.left + plane.right), below + TEXT + GAP), Anchor::Middle, title);
            }
        }
    }
    plane
}
