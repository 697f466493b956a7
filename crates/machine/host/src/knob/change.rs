//! A change of one knob, and a plan of many.

use serde::{Deserialize, Serialize};

use super::Knob;

/// A knob set to another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub knob: Knob,
    pub old: String,
    pub new: String,
    /// The reason, in a few words.
    pub reason: String,
}

impl Change {
    /// True if the change would leave the knob as it is.
    pub fn is_idle(&self) -> bool {
        self.knob.same(&self.old, &self.new)
    }

    /// The shell command that makes the change.
    pub fn shell(&self) -> String {
        self.knob.shell(&self.new)
    }

    /// The shell command that takes the change back.
    pub fn shell_back(&self) -> String {
        self.knob.shell(&self.old)
    }
}

/// An ordered list of changes with the reason for each, and what the user should know before making them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The changes, in the order in which they are made.
    pub changes: Vec<Change>,
    /// Notes for the user: one sentence or two each.
    pub warnings: Vec<String>,
}

impl Plan {
    /// The plan as a shell script: the value before and the reason as a comment behind each command.
    pub fn to_shell(&self) -> String {
        let mut out = String::new();
        for warning in &self.warnings {
            out.push_str(&format!("# warning: {}\n", one_line(warning)));
        }
        for change in &self.changes {
            // A mask does not read as the CPUs that it means.
            let cpus =
                change.knob.cpus(&change.new).map_or_else(String::new, |_| change.knob.phrase(&change.new) + ", ");
            let comment = format!("{cpus}was {}: {}", change.knob.phrase(&change.old), change.reason);
            out.push_str(&format!("{}  # {}\n", change.shell(), one_line(&comment)));
        }
        out
    }
}

/// The text without line breaks, which would end a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
