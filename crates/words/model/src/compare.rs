//! Runs side by side, whatever they measured.

use serde::{Deserialize, Serialize};

/// Runs beside the first of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison<Row> {
    /// Names of the runs, such as those of their files.
    pub runs: Vec<String>,
    pub timestamps: Vec<String>,
    pub rows: Vec<Row>,
    /// Other differences of the runs.
    pub notes: Vec<String>,
}

impl<Row> Comparison<Row> {
    pub(crate) fn new<R>(runs: &[(String, R)], at: impl Fn(&R) -> &str, rows: Vec<Row>, notes: Vec<String>) -> Self {
        let timestamps = runs.iter().map(|(_, run)| at(run).to_owned()).collect();
        Self { runs: runs.iter().map(|(name, _)| name.clone()).collect(), timestamps, rows, notes }
    }
}

/// The change of a value from the first run to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Higher, and more than chance or the search's width explains.
    Higher,
    Lower,
    /// Within what chance or the search's width explains.
    Same,
    /// A side was measured once, or not at all, or the tester was the limit.
    NotJudged,
}

impl Judgement {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Same => "same",
            Self::NotJudged => "not judged",
        }
    }

    /// The verdict on the interval of a value beside the first one's; a high end of none is open.
    pub(crate) fn of_intervals(first: (f64, Option<f64>), other: (f64, Option<f64>)) -> Self {
        let is_below = |high: Option<f64>, low: f64| high.is_some_and(|high| high < low);
        match (is_below(first.1, other.0), is_below(other.1, first.0)) {
            (true, _) => Self::Higher,
            (_, true) => Self::Lower,
            _ => Self::Same,
        }
    }
}

/// A condition of a run, in words.
pub(crate) type Fact<R> = (&'static str, fn(&R) -> String);

/// Conditions that differ between the runs, with their values.
pub(crate) fn differing<R>(runs: &[(String, R)], facts: &[Fact<R>]) -> Vec<(&'static str, Vec<String>)> {
    let values = facts.iter().map(|(what, fact)| (*what, runs.iter().map(|(_, run)| fact(run)).collect::<Vec<_>>()));
    values.filter(|(_, values)| values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}
