//! Runs of the bench side by side, as text.

use model::{
    bench::compare::{Change, Row, SIGNIFICANCE, Unit, Value},
    compare::{Comparison, Judgement},
    units,
};

use super::figures::{or_dash, short};
use crate::{
    compare::{self, Heads},
    table::Look,
};

/// The comparison: which runs, a table of figures and differences, what else differs.
pub fn bench_compare_text(c: &Comparison<Row>, look: Look) -> String {
    let heads: Heads<'_> = (&["FRAME", "WHAT"], &[">#"], &[">#/A", ""]);
    let table = |(mode, rows): (&str, Vec<&Row>)| {
        format!("\n{}{}", look.paragraph(mode), compare::table(heads, c.runs.len(), rows, cells, look))
    };
    let tables: String = modes(c).into_iter().map(table).collect();
    compare::text(c, format!("{tables}\n{}", look.paragraph(&meaning(c))), "", look)
}

fn modes(c: &Comparison<Row>) -> Vec<(&str, Vec<&Row>)> {
    let mut modes: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &c.rows {
        match modes.iter_mut().find(|(mode, _)| *mode == row.mode) {
            Some((_, rows)) => rows.push(row),
            None => modes.push((&row.mode, vec![row])),
        }
    }
    modes
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![short(&row.frame), row.what.clone()];
    for (i, value) in row.values.iter().enumerate() {
        cells.push(or_dash(value.map(|v| shown(v, row.unit))));
        if let Some(change) = i.checked_sub(1).and_then(|i| row.changes.get(i)) {
            cells.extend([or_dash(change.ratio.map(ratio)), judgement(change)]);
        }
    }
    cells
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

/// The change's judgement in a word, none where there is nothing to compare.
fn judgement(change: &Change) -> String {
    if change.judgement == Judgement::NotJudged && change.ratio.is_none() {
        return String::new();
    }
    change.judgement.word().to_owned()
}

/// Meaning of the table's words.
fn meaning(c: &Comparison<Row>) -> String {
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
