//! An SVG image as it grows.

use std::fmt::Write as _;

use super::{Dash, Look, Mark, NARROW_BELOW};

/// The size of text in pixels.
pub(crate) const TEXT: f64 = 12.0;
/// Half the size of a mark in pixels.
const MARK: f64 = 4.0;

/// The corners of a star, in halves of a mark.
const STAR: [(f64, f64); 8] =
    [(0.0, -1.4), (0.35, -0.35), (1.4, 0.0), (0.35, 0.35), (0.0, 1.4), (-0.35, 0.35), (-1.4, 0.0), (-0.35, -0.35)];

/// End of a text that stands at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn attribute(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Middle => " class=\"m\"",
            Self::End => " class=\"e\"",
        }
    }
}

/// An image: everything in pixels at scale 1, y downwards.
pub(crate) struct Canvas {
    id: String,
    width: f64,
    height: f64,
    body: String,
    /// Colours that were hatched: each is a pattern of this image.
    hatches: Vec<&'static str>,
}

/// Text for the inside of an element or of an attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() && c != '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// The width of a text in pixels, by the widths of a usual sans-serif face; rather too much than too little.
pub(crate) fn text_width(text: &str) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | 'I' => 0.32,
        ' ' | 'f' | 't' | 'r' | '(' | ')' | '/' | '-' => 0.40,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
        'A'..='Z' | '+' | '=' | '<' | '>' | '≥' => 0.74,
        _ => 0.62,
    };
    TEXT * text.chars().map(em).sum::<f64>()
}

/// A coordinate with a tenth of a pixel.
fn px(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // Not `-0`.
    format!("{}", rounded + 0.0)
}

impl Canvas {
    pub(crate) fn new(id: String, width: f64) -> Self {
        Self { id, width, height: 0.0, body: String::new(), hatches: Vec::new() }
    }

    pub(crate) fn width(&self) -> f64 {
        self.width
    }

    /// True for a phone.
    pub(crate) fn is_narrow(&self) -> bool {
        self.width < NARROW_BELOW
    }

    pub(crate) fn set_height(&mut self, height: f64) {
        self.height = height;
    }

    /// The fill of a shape: the colour, or stripes of it.
    fn fill(&mut self, colour: &'static str, hatched: bool) -> String {
        if !hatched {
            return colour.to_owned();
        }
        let at = self.hatches.iter().position(|c| *c == colour).unwrap_or_else(|| {
            self.hatches.push(colour);
            self.hatches.len() - 1
        });
        format!("url(#{}-h{at})", self.id)
    }

    /// A shape with its tool tip, if there is one. A phone has no pointer that could rest on it.
    fn shape(&mut self, element: &str, attributes: &str, tip: &str) {
        let _ = match if self.is_narrow() { "" } else { tip } {
            "" => write!(self.body, "<{element}{attributes}/>"),
            tip => write!(self.body, "<{element}{attributes}><title>{}</title></{element}>", escaped(tip)),
        };
    }

    pub(crate) fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        colour: &'static str,
        hatched: bool,
        tip: &str,
    ) {
        let fill = self.fill(colour, hatched);
        let edge = if hatched { format!(" stroke=\"{colour}\"") } else { String::new() };
        let (width, height) = (width.max(0.0), height.max(0.0));
        let attributes = format!(
            " x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"{edge}",
            px(x),
            px(y),
            px(width),
            px(height)
        );
        self.shape("rect", &attributes, tip);
    }

    /// Straight lines of the page's own: `grid`, `axis`, `interval` or `goal` of its style.
    pub(crate) fn rules(&mut self, class: &str, lines: &[[(f64, f64); 2]]) {
        let d = strokes(lines);
        self.shape("path", &format!(" class=\"{class}\" d=\"{d}\""), "");
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], look: Look, width: f64) {
        let dash = match look.dash {
            Dash::Solid => "",
            Dash::Dashed => " stroke-dasharray=\"7 4\"",
            Dash::Dotted => " stroke-dasharray=\"2 3\"",
            Dash::None => return,
        };
        let attributes = format!(
            " points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"{dash}",
            listed(points),
            look.colour
        );
        self.shape("polyline", &attributes, "");
    }

    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], colour: &str, opacity: f64, tip: &str) {
        let attributes = format!(" points=\"{}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"", listed(points));
        self.shape("polygon", &attributes, tip);
    }

    /// The marks of a line, each with its tool tip.
    pub(crate) fn marks(&mut self, look: Look, marks: impl IntoIterator<Item = ((f64, f64), String)>) {
        if look.mark == Mark::None {
            return;
        }
        let fill = if look.mark == Mark::Open { "var(--page)" } else { look.colour };
        let width = if matches!(look.mark, Mark::Cross | Mark::Plus | Mark::Bar) { " stroke-width=\"2\"" } else { "" };
        let _ = write!(self.body, "<g fill=\"{fill}\" stroke=\"{}\"{width}>", look.colour);
        for ((x, y), tip) in marks {
            let at = |(dx, dy): (f64, f64)| (x + dx * MARK, y + dy * MARK);
            let surface = |points: &[(f64, f64)]| {
                let moved: Vec<(f64, f64)> = points.iter().map(|p| at(*p)).collect();
                format!(" points=\"{}\"", listed(&moved))
            };
            let cross = |lines: &[[(f64, f64); 2]]| {
                let moved: Vec<[(f64, f64); 2]> = lines.iter().map(|[a, b]| [at(*a), at(*b)]).collect();
                format!(" d=\"{}\"", strokes(&moved))
            };
            let (element, attributes) = match look.mark {
                Mark::Circle | Mark::Open => ("circle", format!(" cx=\"{}\" cy=\"{}\"", px(x), px(y))),
                Mark::Square => ("polygon", surface(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)])),
                Mark::Diamond => ("polygon", surface(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)])),
                Mark::Up => ("polygon", surface(&[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)])),
                Mark::Down => ("polygon", surface(&[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)])),
                Mark::Star => ("polygon", surface(&STAR)),
                Mark::Cross => ("path", cross(&[[(-1.0, -1.0), (1.0, 1.0)], [(-1.0, 1.0), (1.0, -1.0)]])),
                Mark::Plus => ("path", cross(&[[(-1.1, 0.0), (1.1, 0.0)], [(0.0, -1.1), (0.0, 1.1)]])),
                Mark::Bar => ("path", cross(&[[(-1.4, 0.0), (1.4, 0.0)]])),
                Mark::None => continue,
            };
            self.shape(element, &attributes, &tip);
        }
        self.body += "</g>";
    }

    /// Text in the page's ink.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.styled((x, y), anchor, "", text);
    }

    pub(crate) fn coloured(&mut self, (x, y): (f64, f64), anchor: Anchor, colour: &str, text: &str) {
        self.styled((x, y), anchor, &format!(" style=\"fill:{colour}\""), text);
    }

    /// Text that rises to the right and ends at its point.
    pub(crate) fn slanted(&mut self, (x, y): (f64, f64), text: &str) {
        let turned = format!(" transform=\"rotate(-40 {} {})\"", px(x), px(y));
        self.styled((x, y), Anchor::End, &turned, text);
    }

    /// Text from bottom to top, its middle at its point.
    pub(crate) fn upright(&mut self, (x, y): (f64, f64), text: &str) {
        let turned = format!(" transform=\"rotate(-90 {} {})\"", px(x), px(y));
        self.styled((x, y), Anchor::Middle, &turned, text);
    }

    fn styled(&mut self, (x, y): (f64, f64), anchor: Anchor, style: &str, text: &str) {
        let anchor = anchor.attribute();
        let _ = write!(self.body, "<text x=\"{}\" y=\"{}\"{anchor}{style}>{}</text>", px(x), px(y), escaped(text));
    }

    /// The patterns of the hatched colours.
    fn patterns(&self) -> String {
        let mut out = String::new();
        for (i, colour) in self.hatches.iter().enumerate() {
            let _ = write!(
                out,
                "<pattern id=\"{}-h{i}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
                 <path d=\"M1 0V6\" stroke=\"{colour}\" stroke-width=\"2\"/></pattern>",
                self.id
            );
        }
        if out.is_empty() { out } else { format!("<defs>{out}</defs>") }
    }

    /// The image, which takes the width that it is given.
    pub(crate) fn finish(&self, class: &str, label: &str) -> String {
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}{}</svg>",
            px(self.width),
            px(self.height),
            escaped(label),
            self.patterns(),
            self.body
        )
    }

    /// The image as a sign in a line of text.
    pub(crate) fn finish_key(&self) -> String {
        format!(
            "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" aria-hidden=\"true\">{2}{3}</svg>",
            px(self.width),
            px(self.height),
            self.patterns(),
            self.body
        )
    }
}

fn listed(points: &[(f64, f64)]) -> String {
    let pairs: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y))).collect();
    pairs.join(" ")
}

/// Lines as the data of a path.
fn strokes(lines: &[[(f64, f64); 2]]) -> String {
    let stroke = |[a, b]: &[(f64, f64); 2]| {
        let (from, to) = ((px(a.0), px(a.1)), (px(b.0), px(b.1)));
        let rest = match (from.0 == to.0, from.1 == to.1) {
            (true, _) => format!("V{}", to.1),
            (_, true) => format!("H{}", to.0),
            _ => format!("L{} {}", to.0, to.1),
        };
        format!("M{} {}{rest}", from.0, from.1)
    };
    lines.iter().map(stroke).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        let mut canvas = Canvas::new("x".into(), 100.0);
        canvas.text((0.0, 0.0), Anchor::Start, "</text><script>\u{1b}");
        canvas.rect((0.0, 0.0), (1.0, 1.0), "#000000", true, "\"<b>");
        let image = canvas.finish("wide", "a \"label\"");
        assert!(!image.contains("<script>") && !image.contains("<b>") && !image.contains('\u{1b}'), "{image}");
        assert!(image.contains("a &quot;label&quot;") && image.contains("url(#x-h0)"), "{image}");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!((px(1.0), px(0.26), px(-0.01)), ("1".into(), "0.3".into(), "0".into()));
    }
}
