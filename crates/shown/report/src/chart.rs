//! Charts as SVG that stands in the page: no script, no network, light and dark by the page's own variables.
//!
//! Each chart is drawn once for every width that the page may give it, so that text keeps its size on a phone and on a wide screen; the
//! page's style shows the drawing that fits.

pub(crate) mod areas;
pub(crate) mod columns;
pub(crate) mod heat;
pub(crate) mod lines;
pub(crate) mod plane;
pub(crate) mod rows;
pub(crate) mod scale;
pub(crate) mod svg;

use std::fmt::Write as _;

use svg::{Canvas, escaped};

/// Each value once, in their order.
pub(crate) fn once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    all.into_iter().fold(Vec::new(), |mut found, one| {
        if !found.contains(&one) {
            found.push(one);
        }
        found
    })
}

/// The width for phones, in pixels at scale 1.
const NARROW: f64 = 360.0;
const NARROW_BELOW: f64 = 450.0;

/// The place that a chart has on its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Half of the width, for two beside each other.
    Half,
    Whole,
}

impl Room {
    /// The widths that are drawn, each with the class that the page's style knows it by.
    fn widths(self) -> &'static [(f64, &'static str)] {
        match self {
            Self::Half => &[(NARROW, "narrow"), (560.0, "middle full")],
            Self::Whole => &[(NARROW, "narrow"), (560.0, "middle"), (1080.0, "full")],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dash {
    Solid,
    Dashed,
    Dotted,
    /// No line: marks alone.
    None,
}

/// A mark at a point of a line. Marks tell lines apart where colours do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Circle,
    Open,
    Square,
    Diamond,
    Up,
    Down,
    Cross,
    Plus,
    Star,
    Bar,
    /// No mark: a line alone.
    None,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) colour: &'static str,
    pub(crate) dash: Dash,
    pub(crate) mark: Mark,
}

pub(crate) enum Key {
    Block {
        name: String,
        colour: &'static str,
        hatched: bool,
    },
    Line {
        name: String,
        look: Look,
    },
    /// Words beside the colours, about the axis for instance.
    Words(&'static str),
}

/// A chart with that id: `draw` is called once for each width. `label` says for a screen reader what is seen.
pub(crate) fn figure(id: &str, label: &str, room: Room, legend: &[Key], draw: impl Fn(&mut Canvas)) -> String {
    let id = escaped(id);
    let mut html = format!("<figure class=\"drawing\" id=\"{id}\">");
    for (width, class) in room.widths() {
        let first = class.split(' ').next().unwrap_or(class);
        let mut canvas = Canvas::new(format!("{id}-{first}"), *width);
        draw(&mut canvas);
        html += &canvas.finish(class, label);
    }
    if !legend.is_empty() {
        html += "<ul class=\"legend\">";
        for (i, key) in legend.iter().enumerate() {
            let mut canvas = Canvas::new(format!("{id}-key{i}"), 26.0);
            canvas.set_height(14.0);
            let name = match key {
                Key::Words(words) => {
                    let _ = write!(html, "<li class=\"quiet\">{words}</li>");
                    continue;
                }
                Key::Block { name, colour, hatched } => {
                    canvas.rect((6.0, 1.0), (14.0, 12.0), colour, *hatched, "");
                    name
                }
                Key::Line { name, look } => {
                    canvas.polyline(&[(1.0, 7.0), (25.0, 7.0)], *look, 2.0);
                    canvas.marks(*look, [((13.0, 7.0), String::new())]);
                    name
                }
            };
            let _ = write!(html, "<li>{}{}</li>", canvas.finish_key(), escaped(name));
        }
        html += "</ul>";
    }
    html + "</figure>"
}
