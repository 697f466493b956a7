//! Text tables, and where they are going to be read.

use std::io::IsTerminal;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use model::units;

/// The width given to text that goes to a pipe or a file: wide enough that no cell is ever broken.
const PIPE_WIDTH: u16 = 400;

/// Largest width of prose, also the width if that of the reader's screen is unknown.
const PROSE_WIDTH_MAX: u16 = 100;
/// Smallest value of COLUMNS that is used, and smallest width of prose.
const WIDTH_MIN: u16 = 20;

/// A page is narrow below this width.
const NARROW: u16 = 60;

/// Least width of a last column of words.
const WORDS_WIDTH_MIN: usize = 16;
/// A place where a line may break, of no width; never shown.
const BREAK: char = '\u{200b}';

/// A cell whose list, of CPUs for example, breaks behind a comma if it must.
fn cell(text: &str) -> Cell {
    if text.contains(',') && !text.contains(' ') {
        Cell::new(text.replace(',', &format!(",{BREAK}"))).set_delimiter(BREAK)
    } else {
        Cell::new(text)
    }
}

/// Form of text.
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

    /// Form for the standard output: the terminal's width and lines; for a pipe no lines, and the width of COLUMNS if that is set.
    pub fn of_stdout() -> Self {
        if std::io::stdout().is_terminal() {
            Self { width: columns(&Table::new()), lines: true }
        } else {
            Self::plain(told(std::env::var("COLUMNS").ok().as_deref()).unwrap_or(PIPE_WIDTH))
        }
    }

    /// The form for the standard error.
    pub fn of_stderr() -> Self {
        let mut table = Table::new();
        table.use_stderr();
        if std::io::stderr().is_terminal() {
            Self { width: columns(&table), lines: true }
        } else {
            Self::plain(PIPE_WIDTH)
        }
    }

    /// Renders a table. `heads` that begin with `>` are of columns of numbers and align right.
    pub fn table(self, heads: &[impl AsRef<str>], rows: impl IntoIterator<Item: Into<Vec<String>>>) -> String {
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
            .set_header(heads.iter().map(|h| h.as_ref().trim_start_matches('>')))
            .add_rows(
                rows.into_iter()
                    .map(|row| Into::<Vec<String>>::into(row).iter().map(|text| cell(text)).collect::<Vec<_>>()),
            );
        for (column, head) in table.column_iter_mut().zip(heads) {
            column.set_padding((0, 1));
            if head.as_ref().starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = table.trim_fmt().replace(BREAK, "");
        text.push('\n');
        text
    }

    /// A table is shown without a break within a heading or a cell.
    pub fn fits(self, table: impl FnOnce(Self) -> String) -> bool {
        let whole = table(Self { width: PIPE_WIDTH.max(self.width), ..self });
        // A column ends with a blank, the last one too.
        whole.lines().all(|line| line.chars().count() < usize::from(self.width))
    }

    /// A table that gives columns up, those of `first_to_go` one after the other, until it fits the page. A last column of words may become
    /// narrower before.
    pub fn table_within(self, heads: &[&str], rows: Vec<Vec<String>>, first_to_go: &[&str]) -> String {
        let (mut heads, mut rows, mut going) = (heads.to_vec(), rows, first_to_go.iter());
        while self.needed(&heads, &rows) > usize::from(self.width) {
            let Some(name) = going.next() else { break };
            if let Some(at) = heads.iter().position(|h| h.trim_start_matches('>') == *name) {
                heads.remove(at);
                rows.iter_mut().filter(|row| at < row.len()).for_each(|row| drop(row.remove(at)));
            }
        }
        self.table(&heads, rows)
    }

    /// A table that gives columns up only on a narrow page, where a cell would break into single letters.
    pub(crate) fn narrow_table(self, heads: &[&str], rows: Vec<Vec<String>>, first_to_go: &[&str]) -> String {
        self.table_within(heads, rows, if self.width < NARROW { first_to_go } else { &[] })
    }

    /// The width at which no heading and no number of a table breaks.
    fn needed(self, heads: &[&str], rows: &[Vec<String>]) -> usize {
        // With lines there is one more blank between columns, and none behind the last.
        let (between, last) = if self.lines { (2, 1) } else { (1, 0) };
        let columns = heads.iter().enumerate().map(|(at, head)| {
            let name = head.trim_start_matches('>').chars().count();
            let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
            let words = at + 1 == heads.len() && !head.starts_with('>');
            name.max(if words { cells.min(WORDS_WIDTH_MIN) } else { cells }) + between
        });
        columns.sum::<usize>().saturating_sub(last)
    }

    /// Parts with two blanks between them, on as many lines as they take.
    pub fn line_of(self, parts: &[String]) -> String {
        let mut lines: Vec<String> = Vec::new();
        for part in parts {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 2 + part.chars().count() <= usize::from(self.width) => {
                    line.push_str("  ");
                    line.push_str(part);
                }
                _ => lines.push(part.clone()),
            }
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// An item of a list: a paragraph of which every line is set in by two blanks.
    pub fn item(self, text: &str) -> String {
        let lines = wrapped(text, usize::from(self.width.saturating_sub(2)));
        lines.lines().map(|line| format!("  {line}\n")).collect()
    }

    /// Breaks a paragraph into lines of the width of prose.
    pub fn paragraph(self, text: &str) -> String {
        wrapped(text, usize::from(self.prose()))
    }

    fn prose(self) -> u16 {
        self.read_at().clamp(WIDTH_MIN, PROSE_WIDTH_MAX)
    }

    /// The width of the screen on which prose is likely to be read. Output to a pipe is likely to be read on the terminal of the standard error
    /// (`| less`). Tables do not use this width in a pipe, since they may be searched line by line.
    pub(crate) fn read_at(self) -> u16 {
        if self.width == PIPE_WIDTH && !self.lines && std::io::stderr().is_terminal() {
            Self::of_stderr().width
        } else {
            self.width
        }
    }
}

/// The width by COLUMNS.
fn told(columns: Option<&str>) -> Option<u16> {
    columns?.parse().ok().filter(|&width| width >= WIDTH_MIN)
}

fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in units::pieces(text) {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(&word);
        used += length;
    }
    out.push('\n');
    out
}

/// Columns of the terminal; a serial console says that it has none.
fn columns(table: &Table) -> u16 {
    table.width().filter(|&width| width > 0).unwrap_or(80)
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
    fn a_line_of_parts_breaks_between_them() {
        let parts = ["2026-01-01T00:00:00Z", "host", "interval 1 s"].map(str::to_owned);
        assert_eq!(Look::plain(60).line_of(&parts), "2026-01-01T00:00:00Z  host  interval 1 s\n");
        assert_eq!(Look::plain(30).line_of(&parts), "2026-01-01T00:00:00Z  host\ninterval 1 s\n");
        assert_eq!(Look::plain(20).item("one two three four five"), "  one two three four\n  five\n");
    }

    #[test]
    fn a_list_breaks_behind_a_comma() {
        let rows = vec![vec!["12,14,16,18,20,22".to_owned()]];
        let text = Look::plain(16).table(&["CPUS"], rows.clone());
        assert_eq!(text, "CPUS\n12,14,16,\n18,20,22\n");
        assert_eq!(Look::plain(80).table(&["CPUS"], rows), "CPUS\n12,14,16,18,20,22\n");
    }

    #[test]
    fn a_narrow_table_gives_columns_up_instead_of_breaking_headings() {
        let rows = vec![vec!["eth0".to_owned(), "1.25 Mpps".to_owned(), "12".to_owned()]];
        let at = |width| Look::plain(width).table_within(&["NAME", ">RATE", ">LOST"], rows.clone(), &["LOST", "RATE"]);
        assert_eq!(at(21), "NAME      RATE LOST\neth0 1.25 Mpps   12\n");
        assert_eq!(at(16), "NAME      RATE\neth0 1.25 Mpps\n");
        assert_eq!(at(8), "NAME\neth0\n");
    }

    #[test]
    fn columns_tells_a_width_that_can_be() {
        let cases = [(None, None), (Some("80"), Some(80)), (Some("0"), None), (Some("wide"), None), (Some("19"), None)];
        for (columns, width) in cases {
            assert_eq!(told(columns), width, "{columns:?}");
        }
    }

    #[test]
    fn a_paragraph_keeps_within_the_page() {
        let text = Look::plain(20).paragraph("one two three four five six seven");
        assert!(text.lines().all(|l| l.len() <= 20), "{text}");
        assert_eq!(text.split_whitespace().count(), 7);
    }
}
