//! The lines of a session file.

use serde::{Deserialize, Serialize};

use crate::knob::Change;

/// The first line: who changes the machine, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The name of the session, which is also the name of its file.
    pub session: String,
    /// Beginning of the session, in nanoseconds since the epoch.
    pub started_unix_ns: u64,
    /// The boot it happened in (/proc/sys/kernel/random/boot_id): a reboot forgets every knob.
    pub boot_id: String,
    /// The process that made it.
    pub pid: u32,
    /// The command as it was typed.
    pub command: String,
    /// The network namespace it changed (the inode of /proc/self/ns/net); none in journals of earlier versions.
    pub netns: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Written; this value was read back.
    Done {
        read_back: String,
    },
    Failed {
        error: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    Begin(Header),
    /// A change that is about to be made.
    Pending {
        /// Number of the change in the session, from 0.
        step: u32,
        /// The change; `old` is the value read just before.
        change: Change,
    },
    /// The change was made, or failed.
    Ended {
        step: u32,
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// The change needs no more undoing.
    Undone {
        step: u32,
        /// The findings and actions of undo.
        note: String,
        /// Time in nanoseconds since the epoch; none in journals of earlier versions.
        #[serde(default)]
        at_unix_ns: Option<u64>,
    },
    /// A guardian watches: it reverts unless a confirmation comes.
    Guarded {
        pid: u32,
        /// The boot-time clock's reading at which it reverts, in milliseconds (CLOCK_BOOTTIME).
        deadline_boottime_ms: u64,
    },
    /// The user confirmed: the changes stay.
    Confirmed,
    /// The session was reverted by its guardian.
    Reverted {
        reason: String,
        #[serde(default = "yes")]
        complete: bool,
    },
}

fn yes() -> bool {
    true
}
