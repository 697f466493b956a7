//! A table that is text on one page and HTML on another.

use crate::{page::Html, table::Look};

/// A table with its heading and what has to be said below it.
pub(crate) struct Table {
    pub(crate) heading: String,
    /// Heads of the columns, marked as those of pages.
    pub(crate) heads: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

/// Text of this width has room for the wide columns too.
const WIDE: u16 = 120;

impl Table {
    /// A table without columns that are empty in every row.
    pub(crate) fn new(
        heading: impl Into<String>,
        heads: Vec<&'static str>,
        rows: Vec<Vec<String>>,
        notes: Vec<String>,
    ) -> Self {
        let mut table = Self { heading: heading.into(), heads, rows, notes };
        let used: Vec<bool> = (0..table.heads.len()).map(|i| table.rows.iter().any(|row| !row[i].is_empty())).collect();
        table.keep(&used);
        table
    }

    fn keep(&mut self, kept: &[bool]) {
        fn only<T>(cells: &mut Vec<T>, kept: &[bool]) {
            let mut kept = kept.iter();
            cells.retain(|_| kept.next().copied().unwrap_or(true));
        }
        only(&mut self.heads, kept);
        self.rows.iter_mut().for_each(|row| only(row, kept));
    }

    /// The heading as one of its own.
    pub(crate) fn title(&self) -> String {
        let mut letters = self.heading.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    }

    pub(crate) fn on_page(&self, html: &mut Html) {
        html.table(&self.heads, self.rows.iter().map(|row| row.iter().map(String::as_str)));
        self.notes.iter().for_each(|note| html.quiet(note));
    }

    pub(crate) fn text(mut self, look: Look) -> String {
        if look.width < WIDE {
            let narrow: Vec<bool> =
                self.heads.iter().map(|head| !head.starts_with(">>") && !head.starts_with('~')).collect();
            self.keep(&narrow);
        }
        let mark = |head: &str| if head.starts_with('>') { ">" } else { "" };
        let heads = self.heads.iter().map(|h| mark(h).to_owned() + &h.trim_start_matches(['>', '~']).to_uppercase());
        let heads: Vec<String> = heads.collect();
        let mut out = look.table(&heads, self.rows);
        out.extend(self.notes.iter().map(|note| look.paragraph(note)));
        out
    }
}
