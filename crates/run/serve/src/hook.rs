//! The user's program that is run for each event.

use std::{
    io::Write,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, TrySendError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use sys::{
    privilege::set_no_new_privs,
    program::{refuse_foreign, trusted_command},
};

use crate::{background::Background, error::ServeError, event::Event};

/// Events that wait while the program runs. Those beyond are refused.
const PENDING_MAX: usize = 256;
/// No timeout is longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);
/// The end of the program is looked for this often.
const POLL_PERIOD: Duration = Duration::from_millis(10);
/// Limit on the time for which programs delay the end of their process.
const DROP_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Time that programs of hooks in [`ENDING`] have at the end of the process.
const GRACE: Duration = Duration::from_millis(500);
/// Time between SIGTERM and SIGKILL.
const TERM_TIMEOUT: Duration = Duration::from_millis(500);
/// The kernel takes so long at most to end a program that was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the hook on a thread of its own, one event after the other, so that nothing waits for it.
#[derive(Debug)]
pub struct Hook {
    events: Option<Background<Event>>,
    failures: Receiver<ServeError>,
    program: String,
    timeout: Duration,
    end: End,
}

/// Hooks that [end on their own threads](Hook::let_end).
static ENDING: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

/// The moment by which the thread is to have ended, once that is known.
#[derive(Debug, Clone, Default)]
struct End(Arc<Mutex<Option<Instant>>>);

impl End {
    /// Sets the end to `time` from now, unless it is earlier already.
    fn within(&self, time: Duration) {
        let (mut end, new) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now() + time);
        *end = Some(end.map_or(new, |end| end.min(new)));
    }

    fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|end| Instant::now() >= end)
    }
}

/// Ends the programs of hooks that [end on their own threads](Hook::let_end), which would otherwise outlive the process.
pub(crate) fn end_all() {
    let hooks = std::mem::take(&mut *ENDING.lock().unwrap_or_else(PoisonError::into_inner));
    hooks.iter().for_each(|hook| hook.end.within(GRACE));
    drop(hooks);
}

impl Hook {
    /// Starts the thread. `run`, a program and its arguments, is started with the first event, and ended when it runs longer than `timeout`.
    ///
    /// # Errors
    /// [`ServeError::Hook`] if the thread cannot be had, or others than root can change the program.
    pub fn start(run: &[String], timeout: Duration) -> Result<Self, ServeError> {
        let program = run.first().cloned().unwrap_or_default();
        let name = program.clone();
        let failed = move |event, reason| ServeError::Hook { program: name.clone(), event, reason };
        // Now, and again whenever it is started: root must not run what others can change.
        refuse_foreign(program.as_ref()).map_err(|distrust| {
            let way_out = "a hook runs as root: give it and its folders to root, writable by root alone";
            failed("start", format!("{distrust}; {way_out}"))
        })?;
        let (sender, failures) = channel();
        let (end, timeout) = (End::default(), timeout.min(TIMEOUT_MAX));
        let (run, known, failing) = (run.to_vec(), end.clone(), failed.clone());
        let job = move |event: Event| {
            if !known.is_over()
                && let Err(reason) = run_once(&run, timeout, &event, &known)
            {
                let _ = sender.send(failing(event.name, reason));
            }
        };
        let events = Background::start("ek-hook", PENDING_MAX, job).map_err(|e| failed("start", e.to_string()))?;
        Ok(Self { events: Some(events), failures, program, timeout, end })
    }

    /// Has the program run for `event` as soon as it has ended for those before.
    ///
    /// # Errors
    /// [`ServeError::Hook`] if too many events wait.
    pub fn emit(&self, event: &Event) -> Result<(), ServeError> {
        let Some(events) = &self.events else { return Ok(()) };
        events.put(event.clone()).map_err(|e| ServeError::Hook {
            program: self.program.clone(),
            event: event.name,
            reason: match e {
                TrySendError::Full(_) => format!("{PENDING_MAX} events wait for it already"),
                TrySendError::Disconnected(_) => "its thread has ended".into(),
            },
        })
    }

    /// Failures since this was last asked.
    pub fn failures(&self) -> impl Iterator<Item = ServeError> + '_ {
        self.failures.try_iter()
    }

    /// Ends the hook on its own thread. Only the end of the process waits for a program that hangs.
    pub fn let_end(mut self) {
        self.end.within(self.timeout);
        let mut ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
        ending.retain_mut(|hook| !hook.has_ended_within(Duration::ZERO));
        if !self.has_ended_within(Duration::ZERO) {
            ending.push(self);
        }
    }

    /// Takes no more events. Returns true if the thread has ended within `time`.
    fn has_ended_within(&mut self, time: Duration) -> bool {
        self.events.as_mut().is_none_or(|events| events.end(time))
    }
}

impl Drop for Hook {
    /// Waits until the program has run for all events, which together have one timeout, at most [`DROP_TIMEOUT_MAX`]. With a timeout for each a
    /// program that hangs would delay the end of the process for too long.
    fn drop(&mut self) {
        let time = self.timeout.min(DROP_TIMEOUT_MAX);
        self.end.within(time);
        self.has_ended_within(time + TERM_TIMEOUT + KILL_TIMEOUT);
    }
}

/// Runs it once: no shell, a group of its own, no rights beyond this thread's, the event on its standard input.
fn run_once(run: &[String], timeout: Duration, event: &Event, end: &End) -> Result<(), String> {
    let (program, arguments) = run.split_first().ok_or("no program is named")?;
    // The thread is the hook's own, and only runs it.
    set_no_new_privs().map_err(|error| error.to_string())?;
    let mut child = trusted_command(program.as_ref())
        .map_err(|error| error.to_string())?
        .args(arguments)
        .env("EVENKEEL_EVENT", event.name)
        .envs(event.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|e| e.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // A line is far shorter than a pipe is large; a program that does not read it does not want it.
        let _ = input.write_all(event.line.as_bytes());
    }
    wait(&mut child, timeout, end)
}

fn wait(child: &mut Child, timeout: Duration, end: &End) -> Result<(), String> {
    let start = Instant::now();
    let in_time = || start.elapsed() < timeout && !end.is_over();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                return Err(match (status.code(), status.signal()) {
                    (Some(code), _) => format!("it ended with exit code {code}"),
                    (None, signal) => format!("it was ended by signal {}", signal.unwrap_or(0)),
                });
            }
            Ok(None) if in_time() => thread::sleep(POLL_PERIOD),
            Ok(None) => {
                let ran = start.elapsed().min(timeout).as_secs_f64();
                end_group(child);
                return Err(format!("it was ended after {ran:.1} s, its timeout or the end of this process"));
            }
            Err(e) => return Err(format!("its end cannot be waited for: {e}")),
        }
    }
}

/// Ends the process group of `child`, with all programs that it started.
fn end_group(child: &mut Child) {
    let group = Pid::from_raw(child.id().cast_signed());
    let _ = killpg(group, Signal::SIGTERM);
    let asked = Instant::now();
    // No wait removes the child before the last signal, so that no other group can have its number.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while asked.elapsed() < TERM_TIMEOUT && waitid(Id::Pid(group), look) == Ok(WaitStatus::StillAlive) {
        thread::sleep(POLL_PERIOD);
    }
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_hook_gets_no_new_privileges() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let run = ["sh", "-c", &format!("grep NoNewPrivs /proc/self/status > {}", seen.display())].map(str::to_owned);
        let hook = Hook::start(&run, Duration::from_secs(10)).unwrap();
        let event = Event { name: "test", line: String::new(), environment: Vec::new() };
        hook.emit(&event).unwrap();
        drop(hook);
        assert_eq!(fs::read_to_string(&seen).unwrap(), "NoNewPrivs:\t1\n");
    }

    #[test]
    fn a_program_that_others_can_write_is_not_run_as_root() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: for root only");
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let start = || Hook::start(&[program.to_str().unwrap().to_owned()], Duration::from_secs(1));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        start().unwrap();
        // What leads to a program of root's, but others can have lead elsewhere.
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&program, open.join("hook")).unwrap();
        let hook = open.join("hook").to_str().unwrap().to_owned();
        assert!(matches!(Hook::start(&[hook], Duration::from_secs(1)), Err(ServeError::Hook { event: "start", .. })));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(start(), Err(ServeError::Hook { event: "start", .. })));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(start(), Err(ServeError::Hook { event: "start", .. })));
    }
}
