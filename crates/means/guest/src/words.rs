//! The orders that a guest obeys, and its answers: a line of JSON each.

use serde::{Deserialize, Serialize};

/// Requests to the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    Start {
        words: Vec<String>,
    },
    /// Say what it has said so far, on both outputs.
    Output,
    /// Interrupt it (SIGINT).
    Interrupt,
    /// Wait for the end of the program that was started last.
    Wait,
    Read {
        path: String,
    },
    Write {
        path: String,
        value: String,
    },
}

/// Replies of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// First: it is up, with the release of its kernel as `uname -r` says.
    Up(String),
    Ran(Ran),
    /// Output of a program so far, and whether it has ended.
    Output(String, bool),
    Text(String),
    Done,
    /// Not done, and why.
    Failed(String),
}

/// A program that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Exit code of the program; -1: a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}
