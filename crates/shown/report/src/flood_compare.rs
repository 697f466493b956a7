//! Runs of `bench flood` side by side, as text.

use model::{
    compare::Comparison,
    flood::compare::{Cell, Row},
    units,
};

use crate::{
    compare::{self, Heads},
    flood::percent,
    table::Look,
};

/// The comparison: a table for each protection, then what differs beside.
pub fn flood_compare_text(c: &Comparison<Row>, look: Look) -> String {
    let heads: Heads<'_> = (&[">FLOOD"], &[">#", ">p99"], &["SUCCESS"]);
    let table = |rows: &[Row]| {
        format!("\n{}{}", look.paragraph(&rows[0].mode), compare::table(heads, c.runs.len(), rows, cells, look))
    };
    let tables: String = c.rows.chunk_by(|a, b| a.mode == b.mode).map(table).collect();
    let meaning = "A, B: clients with an answer in time, and p99, the time to connect of 99 in 100 of those that connected. SUCCESS is higher or lower \
         than A's where the intervals of 95 % lie apart, else the same; times were measured once and are not judged.";
    compare::text(c, format!("{tables}\n{}", look.paragraph(meaning)), "", look)
}

fn cells(row: &Row) -> Vec<String> {
    let dash = || "-".to_owned();
    let mut cells = vec![row.intended_pps.map_or_else(|| "max".to_owned(), units::pps)];
    for (i, cell) in row.cells.iter().enumerate() {
        let p99 = |c: &Cell| c.p99_ns.map(|ns| units::nanoseconds(ns as f64));
        cells.push(cell.as_ref().map_or_else(dash, |c| percent(c.success)));
        cells.push(cell.as_ref().and_then(p99).unwrap_or_else(dash));
        if let Some(change) = i.checked_sub(1).and_then(|i| row.changes.get(i)) {
            cells.push(change.word().to_owned());
        }
    }
    cells
}
