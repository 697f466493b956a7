//! Runs of the bench side by side, as text.

use model::{
    bench::compare::{BenchComparison, Change, Judgement, Row, SIGNIFICANCE, Unit, Value},
    units,
};

use super::figures::{or_dash, short};
use crate::table::Look;

/// The comparison: which runs, a table of figures and differences, what else differs.
pub fn bench_compare_text(c: &BenchComparison, look: Look) -> String {
    let mut out = String::new();
    for ((letter, name), when) in letters().zip(&c.runs).zip(&c.timestamps) {
        out.push_str(&look.paragraph(&format!("{letter}: {name}, {when}")));
    }
    for (mode, rows) in modes(c) {
        out.push('\n');
        out.push_str(&look.paragraph(mode));
        out.push_str(&table(c, &rows, look));
    }
    out.push('\n');
    out.push_str(&look.paragraph(&meaning(c)));
    for note in &c.notes {
        out.push_str(&look.paragraph(&format!("Note: {note}")));
    }
    out
}

fn modes(c: &BenchComparison) -> Vec<(&str, Vec<&Row>)> {
    let mut modes: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &c.rows {
        match modes.iter_mut().find(|(mode, _)| *mode == row.mode) {
            Some((_, rows)) => rows.push(row),
            None => modes.push((&row.mode, vec![row])),
        }
    }
    modes
}

/// Short names of the runs.
fn letters() -> impl Iterator<Item = char> {
    'A'..='Z'
}

fn table(c: &BenchComparison, rows: &[&Row], look: Look) -> String {
    let mut heads = vec!["FRAME".to_owned(), "WHAT".to_owned()];
    for (i, letter) in letters().take(c.runs.len()).enumerate() {
        heads.push(format!(">{letter}"));
        if i > 0 {
            heads.extend([format!(">{letter}/A"), String::new()]);
        }
    }
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let cells = |row: &&Row| {
        let mut cells = vec![short(&row.frame), row.what.clone()];
        for (i, value) in row.values.iter().enumerate() {
            cells.push(or_dash(value.map(|v| shown(v, row.unit))));
            if let Some(change) = i.checked_sub(1).and_then(|i| row.changes.get(i)) {
                cells.extend([or_dash(change.ratio.map(ratio)), judgement(change)]);
            }
        }
        cells
    };
    look.table(&heads, rows.iter().map(cells))
}

fn shown(v: Value, unit: Unit) -> String {
    let text = match unit {
        Unit::Pps => units::pps(v.value),
        Unit::Nanoseconds => units::nanoseconds(v.value),
        Unit::Seconds => units::nanoseconds(1e9 * v.value),
        Unit::Count => format!("{:.0}", v.value),
    };
    if v.at_least { format!(">= {text}") } else { text }
}

fn ratio(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * ratio)
}

/// Its word, none where there is nothing to compare.
fn judgement(change: &Change) -> String {
    if change.judgement == Judgement::NotJudged && change.ratio.is_none() {
        return String::new();
    }
    change.judgement.word().to_owned()
}

/// Meaning of the table's words.
fn meaning(c: &BenchComparison) -> String {
    let means = c.rows.iter().flat_map(|r| &r.changes).filter(|change| change.probability.is_some()).count();
    let chance = match means {
        0 => String::new(),
        n => format!(
            " {n} means are compared; of so many, about {:.0} would seem to differ by chance alone.",
            (n as f64 * SIGNIFICANCE).ceil()
        ),
    };
    format!(
        "Throughputs are judged by their brackets: higher or lower where the load that passed in one run is beyond the load that failed \
         in the other. Means of repetitions are judged by Welch's test at {:.0} %.{chance} What was measured once, or is only a least \
         value (>=) because the tester was the limit, is not judged where that could change the answer. What changed besides between the \
         runs is not in it.",
        100.0 * SIGNIFICANCE
    )
}
