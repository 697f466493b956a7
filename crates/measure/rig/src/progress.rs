//! Progress of a long run, for those who watch it.

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
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
    fn begin(&mut self, step: &Step);

    /// Shows a result of the running step until the next one comes.
    fn update(&mut self, text: &str);

    /// Adds a line that stays.
    fn line(&mut self, text: &str);
}
