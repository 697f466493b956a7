//! Commands to the process that runs a router.

use model::{
    CpuSet,
    route::{RouteMode, RouteStatus},
};
use rules::{requester::Requester, status};
use serde::{Deserialize, Serialize};
use serve::{ServeError, control, lost};

use crate::{RouteError, home, pinned, rules::Reloaded};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Status,
    Mode(RouteMode),
    /// Other CPUs that forward; none: the cores that receive.
    Cpus(CpuSet),
    /// The rules are read again.
    Reload(Requester),
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    Status(Box<RouteStatus>),
    Done,
    /// The rules of the file hold.
    Reloaded(Reloaded),
    /// Not done, and why.
    Refused(String),
}

/// Asks the router of this network namespace.
///
/// # Errors
/// [`RouteError::NotRunning`] if there is none, [`RouteError::Starting`] while it starts; the router does not answer, or its folder was removed.
pub fn ask(command: &Command) -> Result<Answer, RouteError> {
    let home = home::here();
    let none = || {
        let starting = home::starting(&home);
        starting.or_else(|| lost(&home.socket()).map(RouteError::from)).unwrap_or(RouteError::NotRunning)
    };
    control::ask(&home.socket(), command)?.ok_or_else(none)
}

/// Ends the router of this network namespace, waits for its end, and unpins its rules. A router that does not answer is killed, and its process
/// number returned. Files of a killed router are removed.
///
/// # Errors
/// As [`ask`], unless there are pinned rules or files of a killed router; the router cannot be ended; its rules cannot be unpinned.
pub fn stop() -> Result<(Answer, Option<u32>), RouteError> {
    let mut killed = None;
    let before = home::here().holder().map(|(pid, _)| pid);
    let answer = match ask(&Command::Stop) {
        // No process runs, but pinned rules do, or there are files of a killed router.
        Err(RouteError::NotRunning) if !pinned::interfaces().is_empty() || home::here().is_left() => Answer::Done,
        Err(RouteError::Serve(silent @ ServeError::Silent { .. })) => {
            killed = Some(control::end_silent(silent)?);
            Answer::Done
        }
        answer => answer?,
    };
    // A router that starts meanwhile takes over the pinned rules. A router that was asked to end holds its lock until its end.
    if let Some(_held) = home::here().hold_after(before.as_deref()).map_err(home::refused)? {
        pinned::unpin()?;
    }
    Ok((answer, killed))
}

/// Result of a reload, in words.
pub fn reload_message(answer: &Answer) -> String {
    match answer {
        Answer::Reloaded(Reloaded { rules, built_in, expired, seconds, warnings: _ }) => {
            let holding = status::Holding { rules: *rules, built_in: *built_in, expired: *expired, attack: 0 };
            format!("Reloaded: {holding} active ({:.0} ms).", seconds * 1e3)
        }
        Answer::Refused(why) => why.clone(),
        Answer::Done | Answer::Status(_) => String::new(),
    }
}
