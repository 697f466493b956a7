//! Columns side by side over names, with the interval of each value.

use super::{
    Key, Room, figure,
    plane::{self, Across, Up},
    scale::{Scale, number},
};

/// Height of the image in pixels.
const HEIGHT: f64 = 300.0;
/// Half the width of an interval's ends.
const END: f64 = 3.0;

pub(crate) struct Column {
    /// The name below it.
    pub(crate) over: String,
    pub(crate) value: f64,
    /// Bounds within which the value may lie.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) hatched: bool,
}

/// The columns of one colour.
pub(crate) struct Columns {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) columns: Vec<Column>,
}

/// The chart; `unit` stands behind values in tool tips, and on the axis where `axis` gives its name.
pub(crate) fn chart(
    id: &str,
    label: &str,
    names: &[String],
    series: &[Columns],
    unit: &str,
    axis: fn(f64) -> String,
) -> String {
    let legend: Vec<Key> = series
        .iter()
        .filter(|s| !s.columns.is_empty())
        .map(|s| Key::Block { name: s.name.clone(), colour: s.colour, hatched: false })
        .collect();
    let all = || series.iter().flat_map(|s| &s.columns);
    let tops = || all().map(|c| c.interval.map_or(c.value, |(_, high)| high.max(c.value)));
    figure(id, label, Room::Half, &legend, |canvas| {
        let up = Up { scale: Scale::from_zero(tops(), 5), name: axis, title: None };
        let plane = plane::draw(canvas, HEIGHT, &up, &Across::Names(names.to_vec()), None);
        let slot = plane.slot_width(names.len());
        // A series without columns takes no width, so that the others are centred over their names.
        let shown: Vec<&Columns> = series.iter().filter(|s| !s.columns.is_empty()).collect();
        let width = 0.8 * slot / shown.len().max(1) as f64;
        for (at, one) in shown.into_iter().enumerate() {
            let mut intervals = Vec::new();
            for column in &one.columns {
                let Some(i) = names.iter().position(|n| *n == column.over) else { continue };
                let left = plane.left + (i as f64 + 0.1) * slot + at as f64 * width;
                let top = plane.y(&up.scale, column.value);
                let tip = format!("{}, {}: {} {unit}", one.name, column.over, significant(column.value));
                let inset = (0.06 * width).min(2.0);
                let size = (width - 2.0 * inset, plane.bottom - top);
                canvas.rect((left + inset, top), size, one.colour, column.hatched, &tip);
                if let Some((low, high)) = column.interval {
                    let (x, low, high) = (left + 0.5 * width, plane.y(&up.scale, low), plane.y(&up.scale, high));
                    let end = END.min(0.4 * width);
                    let cap = |y: f64| [(x - end, y), (x + end, y)];
                    intervals.extend([[(x, low), (x, high)], cap(low), cap(high)]);
                }
            }
            canvas.rules("interval", &intervals);
        }
    })
}

/// A value with four significant digits.
pub(crate) fn significant(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) };
    let scale = 10f64.powi(digits);
    let round = |v: f64| number((v * scale).round() / scale);
    round(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_stands_over_its_name_though_one_beside_it_has_none() {
        let columns = |all: &[f64]| Columns {
            name: "a".into(),
            colour: "#000",
            columns: all
                .iter()
                .map(|value| Column { over: "64".into(), value: *value, interval: None, hatched: false })
                .collect(),
        };
        let drawn = |series: &[Columns]| chart("id", "label", &["64".to_owned()], series, "kpps", number);
        assert_eq!(drawn(&[columns(&[]), columns(&[7.0])]), drawn(&[columns(&[7.0])]));
    }
}
