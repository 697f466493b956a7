//! Text tables, and where they are going to be read.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// The width given to text that goes to a pipe or a file: wide enough that no cell is ever broken.
const PIPE_WIDTH: u16 = 400;

/// How text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The width of the page in columns.
    pub width: u16,
    /// Draw lines between the head and the rows (for a terminal).
    pub lines: bool,
}

impl Look {
    /// Without lines, for pipes and files, at most `width` columns wide.
    pub fn plain(width: u16) -> Self {
        Self { width, lines: false }
    }

    /// What suits the standard output: the terminal's width and lines, or neither for a pipe.
    pub fn of_stdout() -> Self {
        if std::io::stdout().is_terminal() {
            Self { width: Table::new().width().unwrap_or(80), lines: true }
        } else {
            Self::plain(PIPE_WIDTH)
        }
    }

    /// Renders a table. `heads` that begin with `>` are of columns of numbers and align right.
    pub fn table(self, heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
        let style = match self.lines {
            true => TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')),
            false => TableStyle::new(),
        };
        let mut table = Table::new();
        table
            .load_style(style)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .force_no_tty()
            .set_width(self.width)
            .set_header(heads.iter().map(|h| h.trim_start_matches('>')))
            .add_rows(rows);
        for (column, head) in table.column_iter_mut().zip(heads) {
            column.set_padding((0, 1));
            if head.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = table.trim_fmt();
        text.push('\n');
        text
    }

    /// Breaks a paragraph into lines of the page's width, of 100 columns at most.
    pub fn paragraph(self, text: &str) -> String {
        let width = usize::from(self.width.clamp(20, 100));
        let mut out = String::new();
        let mut used = 0;
        for word in text.split_whitespace() {
            let length = word.chars().count();
            if used > 0 && used + 1 + length > width {
                out.push('\n');
                used = 0;
            } else if used > 0 {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += length;
        }
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_align_right() {
        let rows = vec![vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "100".to_owned()]];
        assert_eq!(Look::plain(80).table(&["NAME", ">N"], rows), "NAME   N\na      1\nbcd  100\n");
    }

    #[test]
    fn a_paragraph_keeps_within_the_page() {
        let text = Look::plain(20).paragraph("one two three four five six seven");
        assert!(text.lines().all(|l| l.len() <= 20), "{text}");
        assert_eq!(text.split_whitespace().count(), 7);
    }
}
