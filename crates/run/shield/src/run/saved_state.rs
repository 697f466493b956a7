//! State of a shield for a later process, beside its pins.

use std::fs;

use model::shield::Fail;
use rules::compile::Counters;
use serde::{Deserialize, Serialize};

use super::paths::Paths;
use crate::{error::ShieldError, state_file::write_whole};

/// Facts that a later process has to know, beside the pins.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SavedState {
    /// Slots of the counters by name.
    pub counters: Counters,
    /// Names of the rules that hold, in their order, with what `status` shows of them.
    pub rules: Vec<model::shield::RuleStatus>,
    /// The verdict on packets that no rule decides about.
    pub default: String,
    pub file: Option<String>,
    /// The time at which they came to hold, RFC 3339 in UTC.
    pub loaded: String,
    /// The way in which the shield fails.
    pub fail: Option<Fail>,
    /// Seconds of silence after which it fails.
    pub heartbeat_timeout_s: f64,
}

/// Reads what an earlier process has written down.
pub(super) fn read_state(paths: &Paths) -> Option<SavedState> {
    serde_json::from_slice(&fs::read(paths.memory()).ok()?).ok()
}

pub(super) fn write_state(paths: &Paths, memory: &SavedState) -> Result<(), ShieldError> {
    write_whole(&paths.memory(), &serde_json::to_vec(memory).unwrap_or_default())
}
