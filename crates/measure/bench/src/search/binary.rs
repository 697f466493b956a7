//! Plain binary search, as RFC 2544 testers do it: what [`Search`](super::Search) is held against.

use std::time::Duration;

use model::bench::Goal;

use super::{
    Limits,
    classify::{Bound, Counted, Evidence, TrialResult},
};

/// Halves the span between nothing and the highest load, and believes each load before it goes on.
#[derive(Debug, Clone)]
pub struct BinarySearch {
    goal: Goal,
    lower: f64,
    upper: f64,
    load: Vec<TrialResult>,
}

impl BinarySearch {
    /// A search for `goal`. Each load gets full-length trials until the goal's own rule has decided; a goal whose duration sum is one trial
    /// makes it believe each single trial.
    pub fn new(goal: Goal, limits: Limits) -> Self {
        Self { goal, lower: limits.min_pps, upper: limits.max_pps, load: Vec::new() }
    }

    /// Units per second and length of the next trial; none when the bounds are close enough.
    pub fn next(&self) -> Option<(f64, Duration)> {
        let wide = self.upper - self.lower > self.goal.width * self.upper;
        wide.then(|| (f64::midpoint(self.lower, self.upper), Duration::from_secs_f64(self.goal.trial_s)))
    }

    pub fn record(&mut self, pps: f64, duration: Duration, counted: Counted) {
        self.load.push(TrialResult { pps, seconds: duration.as_secs_f64(), counted });
        match Evidence::of(&self.load, &self.goal).bound(&self.goal) {
            Bound::Undecided => return,
            Bound::Lower => self.lower = pps,
            Bound::Upper => self.upper = pps,
        }
        self.load.clear();
    }

    /// The bounds: the lower one is the result.
    pub fn bounds(&self) -> (f64, f64) {
        (self.lower, self.upper)
    }
}
