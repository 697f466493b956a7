//! Runs with neighbours, each beside the first (`evenkeel.bench.neighbour.compare/1`).
//!
//! Rounds of different runs are no pairs: means are compared by Welch's t, and Holm's correction is over the measures of a row.

use serde::{Deserialize, Serialize};

use super::{Boxed, Condition, Cost, Measure, NeighbourRun, Reading, judged};
use crate::{compare::Comparison, paired::Paired};

/// The version of the schema `evenkeel.bench.neighbour.compare/<version>`.
pub const SCHEMA: u32 = 1;

/// A condition of a box in one of the later runs, beside the same one in the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    /// The condition; none: quiet.
    pub condition: Option<Condition>,
    /// The run, by its place: 1 is the second file.
    pub run: usize,
    /// The fixed rates of the first run and of this one, in frames per second.
    pub rates_pps: [f64; 2],
    /// Differences. `before` is the first run's mean, `after` this one's.
    pub costs: Vec<Cost>,
}

/// Compares runs, each with its name, with the first.
pub fn compare(runs: &[(String, NeighbourRun)]) -> Comparison<Row> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for (at, (name, other)) in runs.iter().enumerate().skip(1) {
        let (first_name, first) = &runs[0];
        notes.extend(unlike(first, other).map(|what| format!("{first_name} and {name} have another {what}")));
        for before in &first.boxes {
            let Some(after) = other.boxes.iter().find(|boxed| boxed.key == before.key) else { continue };
            rows.extend(conditions(before, after, at));
        }
    }
    Comparison::new(runs, |run| &run.timestamp, rows, notes)
}

/// Differences of two runs besides the figures.
fn unlike<'a>(first: &'a NeighbourRun, other: &'a NeighbourRun) -> impl Iterator<Item = &'static str> + 'a {
    let differs = [
        (first.machine.hostname != other.machine.hostname, "machine"),
        (first.machine.kernel != other.machine.kernel, "kernel"),
        (first.frame != other.frame, "frame"),
        (first.trial_s.to_bits() != other.trial_s.to_bits(), "length of the trials"),
    ];
    differs.into_iter().filter_map(|(differs, what)| differs.then_some(what))
}

fn conditions(before: &Boxed, after: &Boxed, run: usize) -> Vec<Row> {
    let rates_pps = [before.rate_pps, after.rate_pps];
    let row = |condition: Option<&Condition>, costs| Row {
        name: before.name.clone(),
        condition: condition.cloned(),
        run,
        rates_pps,
        costs,
    };
    let mut rows = vec![row(None, apart(&before.quiet, &after.quiet))];
    for disturbed in before.rows.iter().filter(|disturbed| disturbed.condition.neighbour.is_some()) {
        if let Some(same) = after.rows.iter().find(|row| row.condition.is_same(&disturbed.condition)) {
            rows.push(row(Some(&disturbed.condition), apart(&disturbed.readings, &same.readings)));
        }
    }
    rows
}

fn apart(before: &[Reading], after: &[Reading]) -> Vec<Cost> {
    let of = |measure: Measure| {
        let values = |all: &[Reading]| all.iter().filter_map(|r| r.values.get(&measure).copied()).collect::<Vec<f64>>();
        let (before, after) = (values(before), values(after));
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let difference = Paired::apart(&before, &after)?;
        Some(Cost { measure, before: mean(&before), after: mean(&after), difference, beyond_chance: false })
    };
    judged(Measure::ALL.into_iter().filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(values: [f64; 4]) -> Vec<Reading> {
        let one = |value: f64| Reading { values: [(Measure::P99, value)].into(), ..Reading::default() };
        values.into_iter().map(one).collect()
    }

    #[test]
    fn only_what_is_beyond_chance_is_marked() {
        let quiet = readings([100.0, 110.0, 105.0, 95.0]);
        assert!(apart(&quiet, &readings([200.0, 210.0, 190.0, 205.0]))[0].beyond_chance);
        let same = apart(&quiet, &readings([101.0, 112.0, 95.0, 106.0]));
        assert!(!same[0].beyond_chance && (same[0].difference.mean - 1.0).abs() < 1e-9, "{same:?}");
        assert_eq!(apart(&quiet, &[]), []);
    }
}
