//! Colours of text for a terminal. NO_COLOR and TERM=dumb are honoured; pipes and files get none.

use std::io::IsTerminal;

/// Marks of no width around what is painted, so that tables and paragraphs stay as wide as they are. None is ever shown.
const MARKS: [(Colour, char, &str); 4] = [
    (Colour::Red, '\u{2061}', "\x1b[31m"),
    (Colour::Yellow, '\u{2062}', "\x1b[33m"),
    (Colour::Green, '\u{2063}', "\x1b[32m"),
    (Colour::Bold, '\u{2064}', "\x1b[1m"),
];
const END: (char, &str) = ('\u{2060}', "\x1b[0m");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    /// Something was lost, or is wrong.
    Red,
    /// Something waits, or is worth a look.
    Yellow,
    Green,
    Bold,
}

/// True if text is painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Paint(bool);

impl Paint {
    /// Colours if the standard output is a terminal.
    pub fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
        Self(std::io::stdout().is_terminal() && !unwanted && !dumb)
    }

    /// Always, or never.
    pub fn forced(on: bool) -> Self {
        Self(on)
    }

    pub fn is_on(self) -> bool {
        self.0
    }

    /// Replaces the marks by the terminal's codes, or takes them away.
    pub(crate) fn finish(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            let code = MARKS.iter().find(|m| m.1 == c).map(|m| m.2).or((c == END.0).then_some(END.1));
            match code {
                Some(code) if self.0 => out.push_str(code),
                Some(_) => {}
                None => out.push(c),
            }
        }
        out
    }
}

pub(crate) fn mark(colour: Colour, text: &str) -> String {
    MARKS.iter().find(|m| m.0 == colour).map_or_else(|| text.to_owned(), |m| format!("{}{text}{}", m.1, END.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Look;

    #[test]
    fn paint_takes_no_room_and_goes_away() {
        let row = |text: String| Look::plain(80).table(&[">N", "WHAT"], vec![vec![text, "x".to_owned()]]);
        let marked = row(mark(Colour::Red, "12"));
        assert_eq!(Paint::forced(false).finish(&marked), row("12".to_owned()));
        assert!(Paint::forced(true).finish(&marked).contains("\x1b[31m12\x1b[0m"));
    }
}
