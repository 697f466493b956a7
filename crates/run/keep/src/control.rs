//! Commands to the process that keeps.

use serde::{Deserialize, Serialize};
use serve::{control, lost};

use crate::{KeepError, home, status::Status};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Status,
    /// The files are read again; the answer comes when they are carried out.
    Reload,
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer(pub Box<Status>);

/// Asks the process of this network namespace; none: nobody keeps.
///
/// # Errors
/// It does not answer, or only root may ask it.
pub fn ask(command: Command) -> Result<Option<Status>, KeepError> {
    let socket = home::here().socket();
    match control::ask(&socket, &command)? {
        Some(Answer(status)) => Ok(Some(*status)),
        None => lost(&socket).map_or(Ok(None), |lost| Err(lost.into())),
    }
}

/// Ends the process; returns once it has ended, whether there was one.
///
/// # Errors
/// As [`ask`]; it does not end.
pub fn stop() -> Result<bool, KeepError> {
    let home = home::here();
    let before = home.holder().map(|(pid, _)| pid);
    if ask(Command::Stop)?.is_none() {
        return Ok(false);
    }
    home.hold_after(before.as_deref())?;
    Ok(true)
}
