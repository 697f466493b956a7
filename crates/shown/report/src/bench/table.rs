//! A table that is text on one page and HTML on another.

use crate::table::Look;

/// A column.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// Numbers align right.
    pub(crate) number: bool,
    /// Left out where there is little room.
    pub(crate) wide: bool,
}

impl Column {
    /// Its class on a page.
    pub(crate) fn class(self) -> &'static str {
        match (self.number, self.wide) {
            (true, true) => "n wide",
            (true, false) => "n",
            (false, true) => "wide",
            (false, false) => "",
        }
    }
}

/// Of words.
pub(crate) fn words(head: &'static str) -> Column {
    Column { head, number: false, wide: false }
}

/// Of numbers.
pub(crate) fn number(head: &'static str) -> Column {
    Column { head, number: true, wide: false }
}

/// Of numbers, where there is room.
pub(crate) fn wide(head: &'static str) -> Column {
    Column { head, number: true, wide: true }
}

/// A table with its heading and what has to be said below it.
pub(crate) struct Table {
    pub(crate) heading: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

/// Text of this width has room for the wide columns too.
const WIDE: u16 = 120;

impl Table {
    /// A table without columns that are empty in every row.
    pub(crate) fn new(
        heading: impl Into<String>,
        columns: Vec<Column>,
        rows: Vec<Vec<String>>,
        notes: Vec<String>,
    ) -> Self {
        let mut table = Self { heading: heading.into(), columns, rows, notes };
        let used: Vec<bool> =
            (0..table.columns.len()).map(|i| table.rows.iter().any(|row| !row[i].is_empty())).collect();
        table.keep(&used);
        table
    }

    fn keep(&mut self, kept: &[bool]) {
        fn only<T>(cells: &mut Vec<T>, kept: &[bool]) {
            let mut kept = kept.iter();
            cells.retain(|_| kept.next().copied().unwrap_or(true));
        }
        only(&mut self.columns, kept);
        self.rows.iter_mut().for_each(|row| only(row, kept));
    }

    /// The heading as one of its own.
    pub(crate) fn title(&self) -> String {
        let mut letters = self.heading.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    }

    /// Every row as cells with their columns.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Vec<(Column, &String)>> {
        self.rows.iter().map(|row| self.columns.iter().copied().zip(row).collect())
    }

    /// The table as text, with its notes.
    pub(crate) fn text(mut self, look: Look) -> String {
        if look.width < WIDE {
            let narrow: Vec<bool> = self.columns.iter().map(|c| !c.wide).collect();
            self.keep(&narrow);
        }
        let heads: Vec<String> =
            self.columns.iter().map(|c| if c.number { ">" } else { "" }.to_owned() + &c.head.to_uppercase()).collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut out = look.table(&heads, self.rows);
        out.extend(self.notes.iter().map(|note| look.paragraph(note)));
        out
    }
}
