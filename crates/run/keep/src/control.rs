//! Commands to `keep run`.

use serde::{Deserialize, Serialize};
use serve::{control, lost};

use crate::{KeepError, home, status::Status};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Status,
    /// Read the files again; the answer is sent after they are applied.
    Reload,
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer(pub Box<Status>);

/// Asks the process of this network namespace; none: no process keeps.
///
/// # Errors
/// The process does not answer, or answers only root.
pub fn ask(command: Command) -> Result<Option<Status>, KeepError> {
    let socket = home::here().socket();
    match control::ask(&socket, &command)? {
        Some(Answer(status)) => Ok(Some(*status)),
        None => lost(&socket).map_or(Ok(None), |lost| Err(lost.into())),
    }
}

/// Ends the process and waits for its end. Returns false if there was none.
///
/// # Errors
/// As [`ask`]; the process does not end in time.
pub fn stop() -> Result<bool, KeepError> {
    let home = home::here();
    let before = home.holder().map(|(pid, _)| pid);
    if ask(Command::Stop)?.is_none() {
        return Ok(false);
    }
    home.hold_after(before.as_deref())?;
    Ok(true)
}
