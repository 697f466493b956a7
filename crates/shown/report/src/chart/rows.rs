//! Bars from left to right, a row for each name: side by side, or the parts of a whole one behind the other.

use super::{
    Key, Room, figure,
    scale::{Scale, number},
    svg::{Anchor, Canvas, TEXT, text_width},
};

/// Room between a bar and its label.
const GAP: f64 = 5.0;
/// The most of a drawing that the names beside the rows take.
const NAMES_SHARE: f64 = 0.35;
/// The height of the names below the axis.
const AXIS: f64 = 24.0;
/// The height of a stacked bar.
const STACK: f64 = 24.0;

/// The axis below bars, in the unit of their labels.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Axis {
    /// Numbers from zero, each with this text behind it.
    Numbers(&'static str),
    Rates,
    /// Nanoseconds. Logarithmic where the longest bar would hide the others.
    Times,
}

/// From this ratio of the longest to the shortest bar on an axis of times is logarithmic.
const HIDES: f64 = 15.0;

impl Axis {
    fn name(self, value: f64) -> String {
        match self {
            Self::Numbers(suffix) => format!("{}{suffix}", number(value)),
            Self::Rates => rate(value),
            Self::Times => time(value),
        }
    }
}

/// Packets per second as an axis names them.
pub(crate) fn rate(pps: f64) -> String {
    match pps {
        0.0 => "0".to_owned(),
        v if v >= 0.9995e6 => format!("{} Mpps", number(v / 1e6)),
        v if v >= 0.9995e3 => format!("{} kpps", number(v / 1e3)),
        v => format!("{} pps", number(v)),
    }
}

/// Nanoseconds as an axis names them.
pub(crate) fn time(ns: f64) -> String {
    match ns.abs() {
        v if v >= 0.9995e9 => format!("{} s", number(ns / 1e9)),
        v if v >= 0.9995e6 => format!("{} ms", number(ns / 1e6)),
        v if v >= 0.9995e3 => format!("{} \u{b5}s", number(ns / 1e3)),
        0.0 => "0".to_owned(),
        _ => format!("{} ns", number(ns)),
    }
}

/// The bars of one colour, a value and a label for each row.
pub(crate) struct Bars {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) hatched: bool,
    pub(crate) bars: Vec<(Option<f64>, String)>,
}

impl Bars {
    pub(crate) fn new(
        name: impl Into<String>,
        colour: &'static str,
        bars: impl IntoIterator<Item = (Option<f64>, String)>,
    ) -> Self {
        Self { name: name.into(), colour, hatched: false, bars: bars.into_iter().collect() }
    }

    /// Bars of figures that others published.
    pub(crate) fn hatched(self) -> Self {
        Self { hatched: true, ..self }
    }
}

/// The left edge of the bars: beside the names, or at the image's edge where names stand above their rows.
struct Layout {
    left: f64,
    above: f64,
}

fn layout(canvas: &Canvas, names: &[String]) -> Layout {
    let widest = names.iter().map(|n| text_width(n)).fold(0.0, f64::max) + 10.0;
    if canvas.is_narrow() || widest > NAMES_SHARE * canvas.width() {
        Layout { left: 1.0, above: TEXT + 7.0 }
    } else {
        Layout { left: widest, above: 0.0 }
    }
}

/// Writes the name of a row whose bars begin at `top` and are that high together.
fn name_row(canvas: &mut Canvas, layout: &Layout, top: f64, height: f64, name: &str) {
    if layout.above > 0.0 {
        canvas.text((layout.left, top - 5.0), Anchor::Start, name);
    } else {
        canvas.text((layout.left - 8.0, top + 0.5 * height + 0.35 * TEXT), Anchor::End, name);
    }
}

/// Bars side by side. Each keeps the room for its label: nothing is cut at the right edge.
pub(crate) fn chart(id: &str, label: &str, room: Room, names: &[String], series: &[Bars], axis: Axis) -> String {
    let mut legend: Vec<Key> = series
        .iter()
        .filter(|s| !s.name.is_empty() && s.bars.iter().any(|(value, _)| value.is_some()))
        .map(|s| Key::Block { name: s.name.clone(), colour: s.colour, hatched: s.hatched })
        .collect();
    let bars = || series.iter().flat_map(|s| &s.bars).filter_map(|(v, text)| Some(((*v)?, text)));
    let positive = || bars().map(|(v, _)| v).filter(|v| *v > 0.0);
    let (least, most) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
    let log = matches!(axis, Axis::Times) && most > HIDES * least;
    // Bars of such an axis are not as long as their values.
    legend.extend(log.then_some(Key::Words("logarithmic")));
    figure(id, label, room, &legend, |canvas| {
        let layout = layout(canvas, names);
        let thick = if series.len() > 2 { 15.0 } else { 17.0 };
        let group = thick * series.len() as f64;
        let step = group + 12.0 + layout.above;
        let bottom = step * names.len() as f64 + 4.0;
        let full = canvas.width() - layout.left;
        let scale = if log { Scale::log(positive().chain([least / 2.0])) } else { Scale::linear(0.0, most) };
        // So many pixels that the bar with the least room left still has its label.
        let room = |(v, text): (f64, &String)| {
            let at = scale.at(v).max(0.01);
            (full - GAP - text_width(text)).max(0.2 * full) / at
        };
        let reach = bars().filter(|(v, _)| *v > 0.0).map(room).fold(full, f64::min);
        let x = |value: f64| layout.left + scale.at(value) * reach;
        let wanted = (reach / 90.0).clamp(2.0, 8.0) as usize;
        let mut free = f64::NEG_INFINITY;
        for value in scale.names(wanted) {
            let text = axis.name(value);
            canvas.rules("grid", &[[(x(value), 0.0), (x(value), bottom)]]);
            let half = 0.5 * text_width(&text);
            let middle = x(value).clamp(half, canvas.width() - half);
            // Names of a logarithmic axis may lie close to each other.
            if middle - half >= free {
                canvas.text((middle, bottom + AXIS - 9.0), Anchor::Middle, &text);
                free = middle + half + 8.0;
            }
        }
        for (i, name) in names.iter().enumerate() {
            let top = step * i as f64 + layout.above + 4.0;
            name_row(canvas, &layout, top, group, name);
            for (at, one) in series.iter().enumerate() {
                let Some((Some(value), text)) = one.bars.get(i) else { continue };
                let y = top + thick * at as f64;
                let width = (x(*value) - layout.left).max(1.0);
                let tip = format!("{name}, {}: {text}", one.name);
                canvas.rect((layout.left, y + 1.0), (width, thick - 2.0), one.colour, one.hatched, &tip);
                let label = (layout.left + width + GAP, y + 0.5 * thick + 0.36 * TEXT);
                canvas.text(label, Anchor::Start, text);
            }
        }
        canvas.set_height(bottom + AXIS);
    })
}

/// The parts of a whole, one behind the other, in percent; a part below zero goes to the left of it.
pub(crate) fn stacked(id: &str, label: &str, room: Room, names: &[String], series: &[Bars]) -> String {
    let legend: Vec<Key> = series
        .iter()
        .filter(|s| s.bars.iter().any(|(value, _)| value.is_some_and(|v| v != 0.0)))
        .map(|s| Key::Block { name: s.name.clone(), colour: s.colour, hatched: s.hatched })
        .collect();
    let below = |i: usize| -> f64 { series.iter().filter_map(|s| s.bars.get(i)?.0).filter(|v| *v < 0.0).sum() };
    let above = |i: usize| -> f64 { series.iter().filter_map(|s| s.bars.get(i)?.0).filter(|v| *v > 0.0).sum() };
    let low = (0..names.len()).map(below).fold(0.0, f64::min);
    let high = (0..names.len()).map(above).fold(100.0, f64::max);
    figure(id, label, room, &legend, |canvas| {
        let layout = layout(canvas, names);
        let step = STACK + 10.0 + layout.above;
        let bottom = step * names.len() as f64 + 4.0;
        let (scale, full) = (Scale::linear(low, high), canvas.width() - layout.left - 2.0);
        let x = |value: f64| layout.left + scale.at(value) * full;
        for value in scale.names(5) {
            let text = format!("{} %", number(value));
            let half = 0.5 * text_width(&text);
            canvas.rules("grid", &[[(x(value), 0.0), (x(value), bottom)]]);
            canvas.text((x(value).clamp(half, canvas.width() - half), bottom + AXIS - 9.0), Anchor::Middle, &text);
        }
        for (i, name) in names.iter().enumerate() {
            let top = step * i as f64 + layout.above + 4.0;
            name_row(canvas, &layout, top, STACK, name);
            let (mut up, mut down) = (0.0, 0.0);
            for one in series {
                let Some((Some(value), text)) = one.bars.get(i) else { continue };
                let side = if *value < 0.0 { &mut down } else { &mut up };
                let from = *side;
                *side += value;
                let (left, right) = (x(from.min(*side)), x(from.max(*side)));
                if right - left < 0.05 {
                    continue;
                }
                let tip = format!("{name}, {}: {value:.2} %", one.name);
                canvas.rect((left, top), (right - left, STACK), one.colour, one.hatched, &tip);
                if !text.is_empty() && text_width(text) + 4.0 < right - left {
                    let middle = (0.5 * (left + right), top + 0.5 * STACK + 0.36 * TEXT);
                    canvas.coloured(middle, Anchor::Middle, ink_on(one.colour), text);
                }
            }
        }
        canvas.set_height(bottom + AXIS);
    })
}

/// Black or white: what can be read on a colour (#rrggbb).
pub(crate) fn ink_on(colour: &str) -> &'static str {
    match luminance(colour) {
        None => "var(--ink)",
        Some(light) if light > 0.21 => "#111820",
        Some(_) => "#ffffff",
    }
}

/// The relative luminance of a colour (WCAG 2), 0 to 1, with the square for the exact curve; none of what is not #rrggbb.
pub(crate) fn luminance(colour: &str) -> Option<f64> {
    let part = |at: usize| Some(f64::from(u8::from_str_radix(colour.get(at..at + 2)?, 16).ok()?) / 255.0);
    Some(0.2126 * part(1)?.powi(2) + 0.7152 * part(3)?.powi(2) + 0.0722 * part(5)?.powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(values: [f64; 2]) -> String {
        let bars = values.map(|ns| (Some(ns), time(ns))).to_vec();
        let series = [Bars { name: "delay".into(), colour: "#000000", hatched: false, bars }];
        chart("x", "", Room::Half, &["a".to_owned(), "b".to_owned()], &series, Axis::Times)
    }

    #[test]
    fn a_legend_names_what_is_drawn() {
        let series = [("seen", Some(1.0)), ("missing", None)].map(|(name, value)| Bars {
            name: name.into(),
            colour: "#000000",
            hatched: false,
            bars: vec![(value, String::new())],
        });
        let names = ["a".to_owned()];
        let side = chart("x", "", Room::Half, &names, &series, Axis::Numbers(""));
        for drawn in [side, stacked("x", "", Room::Half, &names, &series)] {
            let legend = drawn.split("class=\"legend\"").nth(1).expect("a legend");
            assert!(legend.contains("seen") && !legend.contains("missing"), "{legend}");
        }
    }

    #[test]
    fn an_axis_has_the_unit_of_its_bars_and_is_logarithmic_where_one_hides_the_others() {
        let widths = |chart: &str| -> Vec<f64> {
            let full = chart.split("full\"").nth(1).expect("a drawing");
            let rects = full.split("<rect ").skip(1).take(2);
            rects.filter_map(|r| r.split("width=\"").nth(1)?.split('"').next()?.parse().ok()).collect()
        };
        let near = widths(&drawn([20e6, 40e6]));
        assert!((near[1] / near[0] - 2.0).abs() < 0.05, "{near:?}");
        assert!(!drawn([20e6, 40e6]).contains("logarithmic"));
        let far = drawn([32e3, 14e6]);
        let of_far = widths(&far);
        assert!(of_far[0] > 0.05 * of_far[1], "the short bar is seen: {of_far:?}");
        assert!(
            far.contains("<li class=\"quiet\">logarithmic</li>")
                && far.contains(">1 ms<")
                && !far.contains("000 \u{b5}s"),
            "{far}"
        );
    }
}
