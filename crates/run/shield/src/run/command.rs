//! Commands to the process that controls a shield, and its answers.

use model::shield::ShieldStatus;
use rules::requester::Requester;
use serde::{Deserialize, Serialize};
use serve::control;

use super::paths::Paths;
use crate::error::ShieldError;

/// A command to the process that controls a shield.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Tell how things are.
    Status,
    /// Read the rules again.
    Reload(Requester),
    /// Take the shield away and end.
    Stop,
    /// End, and leave the shield for a process that comes.
    Leave,
}

impl Command {
    /// Asks the process that controls the shield; none: there is none.
    ///
    /// # Errors
    /// The process does not answer ([`ServeError::Silent`]), or refuses this user.
    pub fn ask(&self, paths: &Paths) -> Result<Option<Answer>, ShieldError> {
        Ok(control::ask(&paths.socket(), self)?)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The command was carried out.
    pub done: bool,
    /// The result in words.
    pub message: String,
    /// Warnings about rules that hold all the same.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The state, where that was asked for.
    pub status: Option<ShieldStatus>,
    pub reloaded: Option<Reloaded>,
}

/// The rules that hold after a reload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Rules of the file and the command line that hold.
    pub rules: usize,
    /// Rules of the management allow-list.
    #[serde(default)]
    pub built_in: usize,
    pub expired: usize,
    pub prefixes: usize,
    /// From the request to the first packet that the new rules judge, in seconds.
    pub seconds: f64,
}

impl Answer {
    pub(crate) fn new(done: bool, message: impl Into<String>) -> Self {
        Self { done, message: message.into(), warnings: Vec::new(), status: None, reloaded: None }
    }

    /// Success without further data.
    pub fn done() -> Self {
        Self::new(true, "")
    }

    pub(crate) fn status(status: ShieldStatus) -> Self {
        Self { status: Some(status), ..Self::new(true, "") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::management::Session;

    #[test]
    fn a_command_is_a_line() {
        let [peer, local] = ["192.0.2.9", "203.0.113.1"].map(|text| text.parse().unwrap());
        let session = Session { peer, peer_port: 1, local, local_port: 22 };
        let requester = Requester { sessions: vec![session], force: false };
        let line = serde_json::to_string(&Command::Reload(requester.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Command>(&line).unwrap(), Command::Reload(requester));
        assert_eq!(serde_json::from_str::<Command>("\"status\"").unwrap(), Command::Status);
    }
}
