//! Runs of `bench flood` side by side (`evenkeel.bench.flood.compare/1`).
//!
//! A share of clients is judged by its interval: two of them differ when the intervals lie apart. Times to connect were measured once, as one
//! distribution; no difference of theirs is called one.

use serde::{Deserialize, Serialize};

use super::{FloodPoint, FloodRun};
use crate::compare::{Comparison, Fact, Judgement, differing};

/// The version of the schema `evenkeel.bench.flood.compare/<version>`.
pub const SCHEMA: u32 = 1;

/// A point of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Frames per second that were offered.
    pub offered_pps: f64,
    /// The share of clients with an answer in time, 0 to 1.
    pub success: f64,
    /// The least and the greatest share that chance leaves possible (95 %).
    pub success_interval: (f64, f64),
    /// 99 of 100 connects took at most this long, in nanoseconds; none connected: none.
    pub p99_ns: Option<u64>,
}

impl Cell {
    fn of(point: &FloodPoint) -> Self {
        Self {
            offered_pps: point.offered_pps(),
            success: point.clients.success_ratio(),
            success_interval: point.clients.success_interval(),
            p99_ns: point.clients.connect.as_ref().map(|c| c.p99_ns),
        }
    }

    fn judge(&self, first: &Self) -> Judgement {
        let interval = |cell: &Self| (cell.success_interval.0, Some(cell.success_interval.1));
        Judgement::of_intervals(interval(first), interval(self))
    }
}

/// A protection under one rate, in all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub mode: String,
    /// Frames per second that were asked for; none: as many as the generator can.
    pub intended_pps: Option<f64>,
    pub cells: Vec<Option<Cell>>,
    /// The change of the success from the first run to each other one.
    pub changes: Vec<Judgement>,
}

/// Lays runs side by side; the first is what the others are compared with.
pub fn compare(runs: &[(String, FloodRun)]) -> Comparison<Row> {
    // Protections and rates in the order in which they first come up; rates rise, as in a run.
    let mut keys: Vec<(&str, &str, Vec<Option<f64>>)> = Vec::new();
    for mode in runs.iter().flat_map(|(_, run)| &run.modes) {
        let at = keys.iter().position(|(key, ..)| *key == mode.key).unwrap_or_else(|| {
            keys.push((&mode.key, &mode.name, Vec::new()));
            keys.len() - 1
        });
        for point in &mode.points {
            if !keys[at].2.contains(&point.intended_pps) {
                keys[at].2.push(point.intended_pps);
            }
        }
    }
    let mut rows = Vec::new();
    for (key, name, mut rates) in keys {
        let of = |rate: &Option<f64>| rate.unwrap_or(f64::INFINITY);
        rates.sort_by(|a, b| of(a).total_cmp(&of(b)));
        for intended_pps in rates {
            let cells: Vec<Option<Cell>> = runs.iter().map(|(_, run)| cell(run, key, intended_pps)).collect();
            let judge = |cell: &Option<Cell>| match (cell, cells.first()) {
                (Some(cell), Some(Some(first))) => cell.judge(first),
                _ => Judgement::NotJudged,
            };
            let changes = cells.iter().skip(1).map(judge).collect();
            rows.push(Row { mode: name.to_owned(), intended_pps, cells, changes });
        }
    }
    Comparison::new(runs, |run| &run.timestamp, rows, notes(runs))
}

fn cell(run: &FloodRun, key: &str, intended_pps: Option<f64>) -> Option<Cell> {
    let mode = run.modes.iter().find(|mode| mode.key == key)?;
    mode.points.iter().find(|point| point.intended_pps == intended_pps).map(Cell::of)
}

/// Conditions that differ between the runs.
fn notes(runs: &[(String, FloodRun)]) -> Vec<String> {
    let conditions: [Fact<FloodRun>; 8] = [
        ("the machine", |r| format!("{}, {} CPUs, {}", r.machine.hostname, r.machine.cpus, r.machine.cpu_model)),
        ("the kernel", |r| r.machine.kernel.clone()),
        ("connections at each rate", |r| r.setup.connects.to_string()),
        ("connections begun each second", |r| format!("{:.0}", r.setup.connects_per_s)),
        ("the clients' patience", |r| format!("{} ms", r.setup.timeout_ms)),
        ("sources of the flood", |r| r.setup.flood_sources.clone()),
        ("cores", |r| r.setup.arrangement.words()),
        ("whole or broken off", |r| if r.partial { "broken off" } else { "whole" }.to_owned()),
    ];
    let note = |(what, values): (&str, Vec<String>)| {
        let each = values.iter().zip('A'..).map(|(value, letter)| format!("{letter} {value}"));
        format!("{what} differ: {}", each.collect::<Vec<_>>().join(" | "))
    };
    differing(runs, &conditions).into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flood::tests::run;

    #[test]
    fn shares_differ_when_their_intervals_lie_apart() {
        let first = run(&[("plain", &[(Some(0.0), 1000), (None, 500)])]);
        let mut second = run(&[("plain", &[(None, 560), (Some(0.0), 998)]), ("shield", &[(None, 1000)])]);
        let compared = compare(&[("a".into(), first.clone()), ("b".into(), second.clone())]);
        let rows: Vec<_> = compared.rows.iter().map(|r| (r.mode.as_str(), r.intended_pps, r.changes[0])).collect();
        let expected = [
            ("plain", Some(0.0), Judgement::Same),
            ("plain", None, Judgement::Same),
            ("shield", None, Judgement::NotJudged),
        ];
        assert_eq!(rows, expected);
        assert!(compared.notes.is_empty(), "{:?}", compared.notes);
        second.modes[0].points[0].clients.completed = 580;
        second.setup.connects_per_s = 100.0;
        let compared = compare(&[("a".into(), first), ("b".into(), second)]);
        assert_eq!(compared.rows[1].changes, [Judgement::Higher]);
        assert!(compared.notes[0].starts_with("connections begun each second differ: A 500"), "{:?}", compared.notes);
    }
}
