//! The state of all files, as the socket and `keep status` give it.

use serde::{Deserialize, Serialize};

/// All files and the last events.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The process that keeps; none: no process does, and the state was read for this status.
    pub pid: Option<u32>,
    /// The folder of the files.
    pub folder: String,
    pub files: Vec<FileStatus>,
    /// Settings with another owner.
    pub contested: Vec<Contested>,
    /// The last events, oldest first.
    pub events: Vec<Event>,
    /// Time of the last reading of the machine in seconds.
    pub reading_s: Option<f64>,
}

/// A file of intents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileStatus {
    pub name: String,
    /// A phrase per intent.
    pub intents: Vec<String>,
    /// `restore` or `leave`; empty for a file that is refused.
    pub drift: String,
    pub state: FileState,
    /// Number of settings with their kept values.
    pub settings: usize,
    /// Settings with other values, in words.
    pub differing: Vec<String>,
    /// Messages about objects that the file names and the machine lacks.
    pub pending: Vec<String>,
    pub warnings: Vec<String>,
    /// The reason for which the file is refused or has failed.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// Every setting has its kept value.
    #[default]
    Kept,
    /// A setting has another value.
    Differs,
    /// The machine lacks an object that the file names; the others are kept.
    Pending,
    /// The kernel or a driver refused a change.
    Failed,
    /// The file has an error or contradicts another; nothing of it is applied.
    Refused,
}

impl FileState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Differs => "differs",
            Self::Pending => "pending",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }

    /// True if the administrator has to act.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Differs | Self::Failed | Self::Refused)
    }
}

/// A setting with another owner, which is left alone for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    pub setting: String,
    /// Time until the setting is restored again.
    pub rest_s: u64,
    /// The likely writer.
    pub likely: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Settings were written.
    Set,
    /// A file keeps fewer settings than before, such as after the loss of queues.
    Fewer,
    /// A foreign write was undone.
    Restored,
    /// A foreign write was left.
    Left,
    /// A setting has another owner and is left alone for a time.
    Contested,
    Failed,
    /// A file is refused.
    Refused,
    /// The machine lacks an object that a file names.
    Pending,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub event: EventKind,
    /// The file's name; empty for an event of the folder or the machine.
    pub file: String,
    pub message: String,
    /// Age of the event at the time of the status.
    pub age_s: f64,
    /// Time from the reading that showed the change to the last setting read back.
    pub took_ms: Option<f64>,
}

impl Status {
    /// True if the administrator has to act.
    pub fn is_bad(&self) -> bool {
        self.files.iter().any(|file| file.state.is_bad())
    }
}
