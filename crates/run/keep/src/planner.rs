//! The interface to the verbs that plan, `spread` and `doctor`, which this crate does not depend on.

use host::knob::Change;

use crate::folder::IntentFile;

/// Plans files of intents.
pub trait Planner {
    /// # Errors
    /// `doctor` has no check of that name; the text names those it has.
    fn check(&self, name: &str) -> Result<(), String>;

    /// Returns a plan per file for the machine in its present state.
    ///
    /// # Errors
    /// The machine cannot be read.
    fn plan(&mut self, files: &[IntentFile]) -> Result<Vec<Planned>, String>;
}

/// The plan for a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// Each setting with its planned value, also those that have it already.
    pub targets: Vec<Change>,
    pub warnings: Vec<String>,
    /// Messages about objects that the file names and the machine lacks.
    pub pending: Vec<String>,
    /// The reason for which this machine cannot carry out the file.
    pub problem: Option<String>,
}
