//! Runs of `bench flood` side by side, as text.

use model::{
    flood::compare::{Cell, FloodComparison, Row},
    units,
};

use crate::{flood::percent, table::Look};

/// The comparison: a table for each protection, then what differs beside.
pub fn flood_compare_text(c: &FloodComparison, look: Look) -> String {
    let mut out = String::new();
    for ((letter, name), when) in ('A'..).zip(&c.runs).zip(&c.timestamps) {
        out.push_str(&look.paragraph(&format!("{letter}: {name}, {when}")));
    }
    for rows in c.rows.chunk_by(|a, b| a.mode == b.mode) {
        out.push('\n');
        out.push_str(&look.paragraph(&rows[0].mode));
        let heads = heads(c.runs.len());
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        out.push_str(&look.table(&heads, rows.iter().map(cells)));
    }
    out.push('\n');
    out.push_str(&look.paragraph(
        "A, B: clients with an answer in time, and p99, the time to connect of 99 in 100 of those that connected. SUCCESS is higher or lower \
         than A's where the intervals of 95 % lie apart, else the same; times were measured once and are not judged.",
    ));
    for note in &c.notes {
        out.push_str(&look.paragraph(&format!("Note: {note}")));
    }
    out
}

fn heads(runs: usize) -> Vec<String> {
    let mut heads = vec![">FLOOD".to_owned()];
    for (i, letter) in ('A'..).take(runs).enumerate() {
        heads.extend([format!(">{letter}"), ">p99".to_owned()]);
        if i > 0 {
            heads.push("SUCCESS".to_owned());
        }
    }
    heads
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
