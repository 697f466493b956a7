//! The judgement that keeping takes from the verbs that plan: this crate knows neither `spread` nor `doctor`.

use host::knob::Change;

use crate::folder::IntentFile;

/// Plans what files of intents ask for.
pub trait Planner {
    /// # Errors
    /// There is no check of the doctor of that name: what to write.
    fn check(&self, name: &str) -> Result<(), String>;

    /// A plan for each file, on the machine that is there now.
    ///
    /// # Errors
    /// The machine cannot be read.
    fn plan(&mut self, files: &[IntentFile]) -> Result<Vec<Planned>, String>;
}

/// The plan for a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// Each setting with the value that it is to have, those included that have it.
    pub targets: Vec<Change>,
    pub warnings: Vec<String>,
    /// What is asked for and is not there, in words.
    pub pending: Vec<String>,
    /// The reason why nothing of it can be done here.
    pub problem: Option<String>,
}
