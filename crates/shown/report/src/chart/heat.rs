//! A field for each pair of row and column, coloured by its value in percent.

use super::{
    Room, figure,
    rows::ink_on,
    svg::{Anchor, TEXT, text_width},
};

/// More columns than this are many.
const MANY: usize = 64;
/// The height of a field.
const HIGH: f64 = 30.0;
/// The colours from 0 % to 100 %.
const COLOURS: [&str; 11] = [
    "#e8f1fa", "#ece8da", "#f1dfba", "#f5d69a", "#f9cd7a", "#fdc46a", "#f8a75a", "#f38a4b", "#ee6a3b", "#ca3d26",
    "#a50f15",
];

fn colour(percent: f64) -> &'static str {
    COLOURS[((percent / 10.0).round().clamp(0.0, 10.0)) as usize]
}

/// The chart: a value for each row and column.
pub(crate) fn chart(
    id: &str,
    label: &str,
    rows: &[String],
    columns: &[String],
    value: impl Fn(usize, usize) -> Option<f64>,
) -> String {
    figure(id, label, Room::Whole, &[], |canvas| {
        let widest = rows.iter().map(|n| text_width(n)).fold(0.0, f64::max) + 10.0;
        // Beside the rows where that leaves room for the fields, above them otherwise.
        let above = if canvas.is_narrow() { TEXT + 7.0 } else { 0.0 };
        let left = if above > 0.0 { 0.0 } else { widest.min(0.4 * canvas.width()) };
        let wide = (canvas.width() - left) / columns.len().max(1) as f64;
        let bottom = rows.len() as f64 * (HIGH + above);
        for (i, row) in rows.iter().enumerate() {
            let top = i as f64 * (HIGH + above) + above;
            if above > 0.0 {
                canvas.text((0.0, top - 5.0), Anchor::Start, row);
            } else {
                canvas.text((left - 8.0, top + 0.5 * HIGH + 0.35 * TEXT), Anchor::End, row);
            }
            let values: Vec<Option<f64>> = (0..columns.len()).map(|j| value(i, j)).collect();
            // Where there are many, neighbours of one colour are one field: a page stays small on a large machine.
            let alike = |a: &Option<f64>, b: &Option<f64>| columns.len() > MANY && a.map(colour) == b.map(colour);
            let mut j = 0;
            for fields in values.chunk_by(alike) {
                let (first, next) = (j, j + fields.len());
                j = next;
                let Some(percent) = fields[0] else { continue };
                let (x, end) = (left + first as f64 * wide, left + next as f64 * wide);
                let to = if fields.len() > 1 { format!(" to {}", columns[next - 1]) } else { String::new() };
                let (tip, colour) = (format!("{row}, {}{to}: {percent:.0} % busy", columns[first]), colour(percent));
                let gap = if wide > 8.0 { 2.0 } else { 0.0 };
                canvas.rect((x, top), (end - x - gap, HIGH - 2.0), colour, false, &tip);
                let text = format!("{percent:.0} %");
                if text_width(&text) + 4.0 < wide {
                    let middle = (x + 0.5 * (wide - gap), top + 0.5 * HIGH + 0.25 * TEXT);
                    canvas.coloured(middle, Anchor::Middle, ink_on(colour), &text);
                }
            }
        }
        // As many names of columns as have room.
        let every = (0..).map(|n| 1usize << n).find(|n| {
            let widest = columns.iter().map(|c| text_width(c)).fold(0.0, f64::max);
            widest + 8.0 < wide * *n as f64 || *n >= columns.len()
        });
        for (j, column) in columns.iter().enumerate().step_by(every.unwrap_or(1)) {
            canvas.text((left + (j as f64 + 0.5) * wide, bottom + TEXT + 2.0), Anchor::Middle, column);
        }
        canvas.set_height(bottom + TEXT + 8.0);
    })
}
