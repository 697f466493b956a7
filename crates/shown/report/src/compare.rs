//! Runs side by side, as text: what all comparisons have.

use model::compare::Comparison;

use crate::table::Look;

/// The names of the runs, the tables with their meaning, and the notes, which end with `end`.
pub(crate) fn text<Row>(c: &Comparison<Row>, tables: String, end: &str, look: Look) -> String {
    let names = letters().zip(&c.runs).zip(&c.timestamps);
    let names = names.map(|((letter, name), when)| look.paragraph(&format!("{letter}: {name}, {when}")));
    let notes = c.notes.iter().map(|note| look.paragraph(&format!("Note: {note}{end}")));
    names.chain([tables]).chain(notes).collect()
}

/// The letters by which the runs go.
pub(crate) fn letters() -> impl Iterator<Item = char> {
    'A'..='Z'
}

/// The first columns, those of each run, and those of its change from the first run; `#` is the letter of the run.
pub(crate) type Heads<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str]);

pub(crate) fn table<Row>(
    (first, own, change): Heads<'_>,
    runs: usize,
    rows: impl IntoIterator<Item = Row>,
    cells: impl Fn(Row) -> Vec<String>,
    look: Look,
) -> String {
    let mut heads: Vec<String> = first.iter().map(ToString::to_string).collect();
    for (i, letter) in letters().take(runs).enumerate() {
        let columns = own.iter().chain(if i > 0 { change } else { &[] });
        heads.extend(columns.map(|head| head.replace('#', &letter.to_string())));
    }
    look.table(&heads, rows.into_iter().map(cells))
}
