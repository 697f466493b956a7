//! The state of what is kept, as it is shown and asked for by the socket.

use serde::{Deserialize, Serialize};

/// All files, and what happened lately.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The process that keeps; none: nobody does, and what is said is true at this moment.
    pub pid: Option<u32>,
    /// The folder of the files.
    pub folder: String,
    pub files: Vec<FileStatus>,
    /// Settings that another owner writes.
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
    /// Each intent in a few words.
    pub intents: Vec<String>,
    /// `restore` or `leave`; empty for a file that is refused.
    pub drift: String,
    pub state: FileState,
    /// Number of settings that have the value that is kept.
    pub settings: usize,
    /// Settings that have another one, in words.
    pub differing: Vec<String>,
    /// What is not there.
    pub pending: Vec<String>,
    pub warnings: Vec<String>,
    /// The reason why nothing of it, or not all, is done.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// All is as it is to be.
    #[default]
    Kept,
    /// Something is not as it is to be.
    Differs,
    /// Something that it names is not there; what is there is kept.
    Pending,
    /// The machine or a driver refuses it.
    Failed,
    /// The file is wrong, or contradicts another: nothing of it is done.
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

    /// True if somebody has to do something.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Differs | Self::Failed | Self::Refused)
    }
}

/// A setting that is left alone for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    pub setting: String,
    /// Time until it is tried again.
    pub rest_s: u64,
    /// Who likely writes it.
    pub likely: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Settings were made.
    Set,
    /// The machine has fewer of what is kept, such as queues.
    Fewer,
    /// Somebody else had written a setting, and it was set back.
    Restored,
    /// Somebody else has written a setting, which is left so.
    Left,
    /// Another owner writes a setting again and again: it is left alone for a while.
    Contested,
    Failed,
    /// A file is refused.
    Refused,
    /// Something that a file names is not there.
    Pending,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub event: EventKind,
    /// The file that it is about.
    pub file: String,
    pub message: String,
    /// Time since then, when it is asked for.
    pub age_s: f64,
    /// Time from the sight of the change to the last setting that was read back.
    pub took_ms: Option<f64>,
}

impl Status {
    /// True if somebody has to do something.
    pub fn is_bad(&self) -> bool {
        self.files.iter().any(|file| file.state.is_bad())
    }
}
