//! Flame graphs, coloured by class.

use std::collections::BTreeSet;

use inferno::flamegraph::{self, Options, color::Color};
use model::{Classified, ErrorClass, profile::Class, visible::visible_word};

use crate::{
    rules::{Rule, Rules},
    tally::Tally,
};

/// A flame graph could not be drawn.
#[allow(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum FlameError {
    #[error("no flame graph: every sample found the CPU idle")]
    Empty,
    #[error("cannot draw the flame graph: {0}")]
    Draw(#[from] std::io::Error),
}

impl Classified for FlameError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Empty => ErrorClass::Lacking,
            Self::Draw(_) => ErrorClass::Internal,
        }
    }
}

/// Helpers, whose caller is charged, and what no rule names.
const GREY: Color = colour(0xc8_c8c8);

const fn colour(rgb: u32) -> Color {
    Color { r: (rgb >> 16) as u8, g: (rgb >> 8) as u8, b: rgb as u8 }
}

/// The colour of a class and its name for the legend.
fn of_class(class: Class) -> (Color, &'static str) {
    match class {
        Class::Interrupts => (colour(0xf2_c14e), "yellow"),
        Class::Receive => (colour(0x4d_9de0), "blue"),
        Class::Bpf => (colour(0xb3_8cd9), "violet"),
        Class::Taps => (colour(0xe0_7bb5), "pink"),
        Class::Ethernet => (colour(0x8f_d0f0), "light blue"),
        Class::Bridge => (colour(0x5f_c4b8), "turquoise"),
        Class::Ip => (colour(0x5f_b760), "green"),
        Class::Netfilter => (colour(0xf0_8a3c), "orange"),
        Class::Transport => (colour(0xa8_d65c), "lime"),
        Class::Transmit => (colour(0x4a_7fb5), "dark blue"),
        Class::Memory => (colour(0xd9_a05b), "brown"),
        Class::Copying => (colour(0xc9_b037), "ochre"),
        Class::Locks => (colour(0xe1_4b4b), "red"),
        Class::Scheduler => (colour(0xe8_a598), "salmon"),
        Class::Timers => (colour(0xd8_d08a), "sand"),
        Class::Syscalls => (colour(0xa9_b8c4), "slate"),
        Class::User => (colour(0x9f_d9a0), "pale green"),
        Class::Unclassified | Class::Idle | Class::Steal => (GREY, "grey"),
    }
}

/// Draws the stacks of a tally that kept them: width is time, colour is the class of the function itself, idle time is left out.
///
/// # Errors
/// There are no stacks.
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
            palette.insert(name, class.map_or(GREY, |c| of_class(c).0));
        }
    }
    let legend: Vec<String> = used.iter().map(|&c| format!("{}: {}", of_class(c).1, c.name())).collect();
    let mut options = Options::default();
    options.title = visible_word(title).into_owned();
    options.subtitle = Some(legend.join(", "));
    options.count_name = "samples".into();
    options.palette_map = Some(&mut palette);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    Ok(svg)
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
        assert!(svg.contains("green: IP") && svg.contains("7 samples") && svg.contains("a &lt;title&gt;"));
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
