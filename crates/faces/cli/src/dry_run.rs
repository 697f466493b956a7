//! The plan of a measurement, in place of the measurement.

use model::units::duration_words;
use serde::Serialize;

use crate::failure::{Failure, Outcome, print, print_json};

/// Plan of a measurement, with its duration.
#[derive(Debug, Serialize)]
pub(crate) struct DryRun {
    /// Steps, one line each.
    pub(crate) steps: Vec<String>,
    /// Seconds that all of it takes, about.
    pub(crate) seconds: f64,
}

impl DryRun {
    /// Prints the plan: as JSON of the schema `evenkeel.<schema>/1`, or as text.
    pub(crate) fn print(&self, schema: &str, as_json: bool) -> Result<Outcome, Failure> {
        if as_json {
            return print_json(schema, self).map(|()| Outcome::Fine);
        }
        let steps: String = self.steps.iter().map(|step| format!("  {step}\n")).collect();
        print(&format!("{steps}About {}. Nothing was made.\n", duration_words(self.seconds))).map(|()| Outcome::Fine)
    }
}

/// `once`, or `3 times`.
pub(crate) fn times(n: u32) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}
