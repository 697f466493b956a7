//! Flame graphs, coloured by class.

use std::collections::BTreeSet;

use inferno::flamegraph::{self, Options, TextTruncateDirection, color::Color};
use model::{profile::Class, visible::visible_word};

use crate::{
    rules::{Rule, Rules},
    tally::Tally,
};

/// A flame graph could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FlameError {
    #[error("no flame graph: every sample found the CPU idle")]
    Empty,
    #[error("cannot draw the flame graph: {0}")]
    Draw(#[from] std::io::Error),
}

model::classified!(FlameError: Lacking, Internal: Draw);

/// Helpers, whose caller is charged, and what no rule names.
const GREY: Color = colour(0xc8_c8c8);

const fn colour(rgb: u32) -> Color {
    Color { r: (rgb >> 16) as u8, g: (rgb >> 8) as u8, b: rgb as u8 }
}

/// The colour of a class.
fn of_class(class: Class) -> Color {
    match class {
        Class::Interrupts => colour(0xf2_c14e),
        Class::Receive => colour(0x4d_9de0),
        Class::Bpf => colour(0xb3_8cd9),
        Class::Taps => colour(0xe0_7bb5),
        Class::Ethernet => colour(0x8f_d0f0),
        Class::Bridge => colour(0x5f_c4b8),
        Class::Ip => colour(0x5f_b760),
        Class::Netfilter => colour(0xf0_8a3c),
        Class::Transport => colour(0xa8_d65c),
        Class::Transmit => colour(0x4a_7fb5),
        Class::Memory => colour(0xd9_a05b),
        Class::Copying => colour(0xc9_b037),
        Class::Locks => colour(0xe1_4b4b),
        Class::Scheduler => colour(0xe8_a598),
        Class::Timers => colour(0xd8_d08a),
        Class::Syscalls => colour(0xa9_b8c4),
        Class::User => colour(0x9f_d9a0),
        Class::Unclassified | Class::Idle | Class::Steal => GREY,
    }
}

/// Draws the stacks of a tally that kept them: width is time, colour is the class of the function itself, idle time is left out.
pub fn flame_graph(tally: &Tally, title: &str) -> Result<Vec<u8>, FlameError> {
    // Names come from processes: control characters have no place in XML.
    let shown: Vec<(String, u64)> =
        tally.stacks().map(|(stack, samples)| (visible_word(stack).into_owned(), samples)).collect();
    let mut lines: Vec<String> = shown.iter().map(|(stack, samples)| format!("{stack} {samples}")).collect();
    if lines.is_empty() {
        return Err(FlameError::Empty);
    }
    lines.sort_unstable();
    let mut palette = flamegraph::color::PaletteMap::default();
    let mut used = BTreeSet::new();
    for (stack, _) in &shown {
        for (depth, name) in stack.split(';').enumerate() {
            let class = if depth == 0 || name == "[user mode]" { Some(Class::User) } else { class_of(name) };
            used.extend(class);
            palette.insert(name, class.map_or(GREY, of_class));
        }
    }
    // The frame below all others is no class.
    palette.insert("", GREY);
    let mut options = Options::default();
    options.title = visible_word(title).into_owned();
    options.subtitle = Some("Width: CPU time. Idle time is left out. Colour: class of the function itself".to_owned());
    options.count_name = "samples".into();
    // The head of a name says more than its tail.
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.palette_map = Some(&mut palette);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    let legend: Vec<(String, Color)> = used.iter().map(|&c| (c.name().to_owned(), of_class(c))).collect();
    let grey = [("helper, charged to its caller; or no class".to_owned(), GREY)];
    Ok(with_legend(&String::from_utf8_lossy(&svg), legend.into_iter().chain(grey)).into_bytes())
}

/// The width of the drawing, of a column of the legend, and the height of a row, in pixels.
const WIDTH: usize = 1200;
const COLUMN: usize = 290;
const ROW: usize = 20;

/// Colours for a dark page; frames keep theirs, with dark names on them.
const DARK: &str = "@media (prefers-color-scheme: dark) { #background stop { stop-color: #12181f } \
     #title, #subtitle, #details, #unzoom, #search, #matched, #legend text { fill: #e4eaf0 } }";

/// The drawing with a swatch and a name for each class below it.
fn with_legend(svg: &str, legend: impl Iterator<Item = (String, Color)>) -> String {
    let Some(height) = attribute(svg, "height") else { return svg.to_owned() };
    let columns = WIDTH / COLUMN;
    let mut entries = String::new();
    let mut rows = 0;
    for (i, (name, Color { r, g, b })) in legend.enumerate() {
        let (x, y) = (10 + COLUMN * (i % columns), height + ROW * (i / columns));
        rows = i / columns + 1;
        entries += &format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"2\" fill=\"rgb({r},{g},{b})\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            x + 20,
            y + 12
        );
    }
    let taller = height + ROW * rows + ROW / 2;
    let svg = svg
        .replace(&format!("height=\"{height}\""), &format!("height=\"{taller}\""))
        .replace(&format!("viewBox=\"0 0 {WIDTH} {height}\""), &format!("viewBox=\"0 0 {WIDTH} {taller}\""));
    let end = format!("<style type=\"text/css\">{DARK}</style><g id=\"legend\">{entries}</g></svg>");
    match svg.rfind("</svg>") {
        Some(at) => format!("{}{end}{}", &svg[..at], &svg[at + "</svg>".len()..]),
        None => svg,
    }
}

/// The first value of an attribute, as a whole number.
fn attribute(svg: &str, name: &str) -> Option<usize> {
    let (_, rest) = svg.split_once(&format!("{name}=\""))?;
    rest.split('"').next()?.parse().ok()
}

/// The class of a function by itself; none for helpers and for what no rule names.
fn class_of(function: &str) -> Option<Class> {
    match Rules::built_in().rule(function)? {
        Rule::Class(class) => Some(class),
        Rule::Lock | Rule::Waiting => Some(Class::Locks),
        Rule::Caller => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Seen;

    #[test]
    fn functions_have_the_colour_of_their_class() {
        let mut tally = Tally::new().keeping_stacks();
        let frames = vec!["fib_table_lookup", "ip_rcv", "frobnicate"];
        tally.add(&Seen { comm: "napi/eth0-1", frames, samples: 7, ..Seen::default() });
        let svg = String::from_utf8(flame_graph(&tally, "a <title>").unwrap()).unwrap();
        let rect_of = |name: &str| svg.split("<g>").find(|g| g.contains(&format!("<title>{name} "))).unwrap();
        assert!(rect_of("fib_table_lookup").contains("rgb(95,183,96)"), "{}", rect_of("fib_table_lookup"));
        assert!(rect_of("frobnicate").contains("rgb(200,200,200)"));
        assert!(rect_of("all").contains("rgb(200,200,200)"), "{}", rect_of("all"));
        let legend = svg.split("<g id=\"legend\">").nth(1).unwrap();
        assert!(legend.contains("fill=\"rgb(95,183,96)\"") && legend.contains(">IP</text>"), "{legend}");
        assert!(!legend.contains(Class::Bridge.name()) && svg.contains("prefers-color-scheme"), "{legend}");
        assert!(svg.contains("Idle time is left out") && svg.contains("7 samples") && svg.contains("a &lt;title&gt;"));
    }

    #[test]
    fn the_drawing_stays_well_formed_whatever_a_process_calls_itself() {
        let mut tally = Tally::new().keeping_stacks();
        tally.add(&Seen { comm: "\x1b]0;\x07\u{9b}\n;x 9", frames: vec!["ip_rcv"], samples: 7, ..Seen::default() });
        let svg = String::from_utf8(flame_graph(&tally, "host\x1b[2J").unwrap()).unwrap();
        let body = svg.replace("\r\n", "\n");
        assert!(!body.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{body:?}");
        assert!(body.contains("host\\x1b[2J"));
    }

    #[test]
    fn nothing_but_idleness_is_no_graph() {
        let mut tally = Tally::new().keeping_stacks();
        tally.add(&Seen { frames: vec!["do_idle"], samples: 7, ..Seen::default() });
        assert!(matches!(flame_graph(&tally, ""), Err(FlameError::Empty)));
    }
}
