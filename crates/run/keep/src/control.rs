//! Commands to the process that keeps.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serve::{control, lost};

use crate::{KeepError, home, status::Status};

/// The end of the process is looked for this often.
const END_PERIOD: Duration = Duration::from_millis(20);
/// A process that was told to end may take so long to.
const END_TIMEOUT: Duration = Duration::from_secs(5);

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
/// As [`ask`].
pub fn stop() -> Result<bool, KeepError> {
    if ask(Command::Stop)?.is_none() {
        return Ok(false);
    }
    let begun = Instant::now();
    while home::here().socket().exists() && begun.elapsed() < END_TIMEOUT {
        thread::sleep(END_PERIOD);
    }
    Ok(true)
}
