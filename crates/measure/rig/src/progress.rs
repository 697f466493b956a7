//! Progress of a long run, for those who watch it.

/// A step of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The name.
    pub name: String,
    /// The number, from 1.
    pub number: usize,
    /// The number of steps in the run.
    pub of: usize,
    /// Estimated seconds until the run ends.
    pub left_s: Option<f64>,
}

/// Shows how far a run is.
pub trait Progress {
    /// A step begins.
    fn begin(&mut self, step: &Step);

    /// Shows a result of the running step until the next one comes.
    fn update(&mut self, text: &str);

    /// Adds a line that stays.
    fn line(&mut self, text: &str);
}

/// A duration in words: `42 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration_words(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, 0, _) => format!("{h} h"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let words = [0.4, 42.2, 120.0, 200.0, 7500.0, 7200.0].map(duration_words);
        assert_eq!(words, ["0 s", "42 s", "2 min", "3 min 20 s", "2 h 5 min", "2 h"]);
    }
}
