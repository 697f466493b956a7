//! Shapes around a middle, a corner for each name.

use std::f64::consts::TAU;

use super::{
    Dash, Key, Look, Mark, Room, figure,
    scale::{Scale, number},
    svg::{Anchor, TEXT, text_width},
};

/// Height of the image in pixels.
const HEIGHT: f64 = 340.0;
/// How much of the page shines through a shape.
const OPACITY: f64 = 0.12;

/// One shape: a value in percent for each corner.
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) values: Vec<f64>,
}

pub(crate) fn chart(id: &str, label: &str, corners: &[String], shapes: &[Shape]) -> String {
    let look = |shape: &Shape| Look { colour: shape.colour, dash: Dash::Solid, mark: Mark::Circle };
    let legend: Vec<Key> = shapes.iter().map(|s| Key::Line { name: s.name.clone(), look: look(s) }).collect();
    let scale = Scale::from_zero(shapes.iter().flat_map(|s| s.values.iter().copied()).chain([1.0]), 4);
    figure(id, label, Room::Half, &legend, |canvas| {
        canvas.set_height(HEIGHT);
        let widest = corners.iter().map(|c| text_width(c)).fold(0.0, f64::max);
        let middle = (0.5 * canvas.width(), 0.5 * HEIGHT);
        let radius = (0.5 * HEIGHT - 2.2 * TEXT).min(0.5 * canvas.width() - widest - 10.0).max(60.0);
        let angle = |i: f64| TAU * i / corners.len().max(1) as f64;
        let at = |i: f64, share: f64| {
            (middle.0 + share * radius * angle(i).sin(), middle.1 - share * radius * angle(i).cos())
        };
        for value in scale.names(4) {
            let ring: Vec<(f64, f64)> = (0..corners.len()).map(|i| at(i as f64, scale.at(value))).collect();
            canvas.ring(&ring, "grid");
        }
        for (i, corner) in corners.iter().enumerate() {
            canvas.rules("grid", &[[middle, at(i as f64, 1.0)]]);
            let (x, y) = at(i as f64, 1.0 + 8.0 / radius);
            let (anchor, sine, cosine) = (Anchor::Middle, angle(i as f64).sin(), angle(i as f64).cos());
            let anchor = match sine {
                s if s > 0.2 => Anchor::Start,
                s if s < -0.2 => Anchor::End,
                _ => anchor,
            };
            canvas.text((x, y + (0.35 - 0.45 * cosine) * TEXT), anchor, corner);
        }
        for shape in shapes {
            let corners_of = || shape.values.iter().enumerate();
            let mut points: Vec<(f64, f64)> = corners_of().map(|(i, v)| at(i as f64, scale.at(*v))).collect();
            canvas.polygon(&points, shape.colour, OPACITY, "");
            points.extend(points.first().copied());
            canvas.polyline(&points, look(shape), 2.0);
        }
        for shape in shapes {
            let mark = |(i, value): (usize, &f64)| {
                let tip = format!("{}\n{}: {value:.1} %", shape.name, corners.get(i).map_or("", String::as_str));
                (at(i as f64, scale.at(*value)), tip)
            };
            canvas.marks(look(shape), shape.values.iter().enumerate().map(mark));
        }
        // Between the first two corners, where no name of a corner is.
        for value in scale.names(4) {
            let (x, y) = at(0.5, scale.at(value) * angle(0.5).cos().max(0.7));
            canvas.text((x, y + 0.35 * TEXT), Anchor::Start, &format!("{} %", number(value)));
        }
    })
}
