//! The command that ends a shield, whether a process runs it or not.

use std::{
    thread,
    time::{Duration, Instant},
};

use serve::{ServeError, control};

use super::{
    command::{Answer, Command},
    owner::{owner, unreachable},
    paths::Paths,
    status,
};
use crate::error::ShieldError;

/// Limit on the time for which a process that starts or ends, and so holds the lock without a socket, is asked again.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_PERIOD: Duration = Duration::from_millis(50);

/// The result of [`stop`].
#[derive(Debug)]
pub struct Stopped {
    pub answer: Answer,
    /// The process that did not answer and was killed.
    pub killed: Option<u32>,
    /// True if there was no shield, only files of a start that failed.
    pub only_files: bool,
}

/// Ends the shield of an interface; with `leave`, ends its process only.
///
/// # Errors
/// There is no shield, or this user may not end it; [`ShieldError::Starting`] if a process starts it and does not answer within 20 s.
pub fn stop(interface: &str, paths: &Paths, leave: bool) -> Result<Stopped, ShieldError> {
    let command = if leave { Command::Leave } else { Command::Stop };
    let begun = Instant::now();
    let mut killed = None;
    loop {
        match command.ask(paths) {
            Ok(Some(answer)) => return Ok(Stopped { answer, killed, only_files: false }),
            Ok(None) => {}
            Err(ShieldError::Serve(silent @ ServeError::Silent { .. })) => killed = Some(control::end_silent(silent)?),
            Err(error) => return Err(error),
        }
        match remove(interface, paths, leave) {
            Err(ShieldError::AlreadyRunning { .. }) if begun.elapsed() < START_TIMEOUT => thread::sleep(RETRY_PERIOD),
            Err(ShieldError::AlreadyRunning { interface, pid }) => {
                return Err(ShieldError::Starting { interface, pid });
            }
            result => return result.map(|only_files| Stopped { answer: Answer::done(), killed, only_files }),
        }
    }
}

/// Removes a shield that no process runs; with `leave`, removes nothing. Returns true if there were only files of a failed start.
///
/// # Errors
/// There is no shield; [`ShieldError::AlreadyRunning`] if a process holds its lock.
fn remove(interface: &str, paths: &Paths, leave: bool) -> Result<bool, ShieldError> {
    // Under the lock no process starts or ends a shield. Its files are judged afterwards, since a start makes them one by one.
    let lock = paths.lock().exists().then(|| paths.take(interface)).transpose()?;
    // Nothing is removed if the pins are not visible here or a process runs that cannot be asked.
    if let Some(error) = owner(interface, paths).or_else(|| unreachable(interface, paths)) {
        return Err(error);
    }
    if !paths.state.exists() && !matches!(paths.pins.try_exists(), Ok(true)) {
        // The error tells whether there is no shield or its pins are not readable.
        status::of_pins(interface, paths)?;
    }
    let _lock = lock.map_or_else(|| paths.take(interface), Ok)?;
    // A shield by packet rings between two interfaces has no pins, only its list of rules.
    let only_files = !paths.pins.exists() && !paths.memory().exists();
    match leave {
        true if only_files => Err(ShieldError::NoShield { interface: interface.to_owned() }),
        true => Ok(only_files),
        false => paths.remove().map(|()| only_files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shield_that_starts_is_not_removed_before_its_process_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under("lo", &root.path().join("bpf"), &root.path().join("run"));
        let starting = paths.take("lo").unwrap();
        let memory = paths.memory();
        std::fs::write(&memory, "").unwrap();
        thread::scope(|scope| {
            let stopped = scope.spawn(|| stop("lo", &paths, false));
            thread::sleep(4 * RETRY_PERIOD);
            assert!(memory.exists() && !stopped.is_finished(), "it starts");
            drop(starting);
            let Stopped { answer, killed, only_files } = stopped.join().unwrap().unwrap();
            assert!(answer.done && killed.is_none() && !only_files && !paths.state.exists());
        });
    }

    #[test]
    fn files_of_a_start_that_failed_are_no_shield() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under("lo", &root.path().join("bpf"), &root.path().join("run"));
        drop(paths.take("lo").unwrap());
        assert!(paths.state.exists());
        let stopped = stop("lo", &paths, false).unwrap();
        assert!(stopped.only_files && stopped.killed.is_none() && !paths.state.exists());
    }
}
