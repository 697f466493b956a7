//! The user's program that is run for each event.

use std::{
    io::Write,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Stdio},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use model::shield_event::ShieldEvent;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use rules::detect::HookConfig;
use sys::program::{command, refuse_foreign};

use super::{EventError, line};

/// Events that wait while the program runs; what comes beyond is not told to it, and that is said.
const WAITING_MAX: usize = 256;
/// No timeout is longer.
const DAY: Duration = Duration::from_secs(86_400);
/// How often its end is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the hook on a thread of its own, one event after the other, so that nothing waits for it.
#[derive(Debug)]
pub struct Hook {
    events: Option<SyncSender<ShieldEvent>>,
    failures: Receiver<EventError>,
    thread: Option<JoinHandle<()>>,
    program: String,
    timeout: Duration,
    end: End,
}

/// When the thread is to have ended, once that is known.
type End = Arc<OnceLock<Instant>>;

impl Hook {
    /// Starts the thread; the program itself is started with the first event.
    ///
    /// # Errors
    /// [`EventError::Hook`] if the thread cannot be had.
    pub fn start(config: &HookConfig) -> Result<Self, EventError> {
        let program = config.run.first().cloned().unwrap_or_default();
        // Now, and again whenever it is started: root must not run what others can change.
        refuse_foreign(program.as_ref()).map_err(|distrust| EventError::Hook {
            program: program.clone(),
            event: "start",
            reason: format!("{distrust}; a hook runs as root: give it and its folders to root, writable by root alone"),
        })?;
        let (events, waiting) = sync_channel(WAITING_MAX);
        let (failed, failures) = channel();
        let (end, timeout) = (End::default(), timeout(config));
        let (config, known) = (config.clone(), Arc::clone(&end));
        let serve = move || serve(&config, &waiting, &failed, &known);
        let thread = thread::Builder::new().name("shield-hook".into()).spawn(serve);
        let thread =
            thread.map_err(|e| EventError::Hook { program: program.clone(), event: "start", reason: e.to_string() })?;
        Ok(Self { events: Some(events), failures, thread: Some(thread), program, timeout, end })
    }

    /// Has the program run for `event` as soon as it has ended for those before.
    ///
    /// # Errors
    /// [`EventError::Hook`] if too many events wait.
    pub fn tell(&self, event: &ShieldEvent) -> Result<(), EventError> {
        let Some(events) = &self.events else { return Ok(()) };
        events.try_send(event.clone()).map_err(|e| EventError::Hook {
            program: self.program.clone(),
            event: event.what.word(),
            reason: match e {
                TrySendError::Full(_) => format!("{WAITING_MAX} events wait for it already"),
                TrySendError::Disconnected(_) => "its thread has ended".into(),
            },
        })
    }

    /// What went wrong since this was last asked.
    pub fn failures(&self) -> impl Iterator<Item = EventError> + '_ {
        self.failures.try_iter()
    }
}

impl Drop for Hook {
    /// Waits until the program has run for all events, all of them within one timeout: a program that hangs each time would otherwise hold
    /// up the end of the shield for as many timeouts as events wait.
    fn drop(&mut self) {
        let _ = self.end.set(Instant::now() + self.timeout);
        self.events = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(config: &HookConfig, events: &Receiver<ShieldEvent>, failed: &Sender<EventError>, end: &End) {
    for event in events {
        if end.get().is_some_and(|end| Instant::now() >= *end) {
            return;
        }
        if let Err(reason) = run(config, &event, end) {
            let program = config.run.first().cloned().unwrap_or_default();
            let _ = failed.send(EventError::Hook { program, event: event.what.word(), reason });
        }
    }
}

fn timeout(config: &HookConfig) -> Duration {
    Duration::try_from_secs_f64(config.timeout_s).unwrap_or(DAY).min(DAY)
}

/// Runs it once: no shell, a group of its own, the event on its standard input.
fn run(config: &HookConfig, event: &ShieldEvent, end: &End) -> Result<(), String> {
    let (program, arguments) = config.run.split_first().ok_or("no program is named")?;
    refuse_foreign(program.as_ref()).map_err(|distrust| distrust.to_string())?;
    let mut child = command(program)
        .args(arguments)
        .env("EVENKEEL_EVENT", event.what.word())
        .env("EVENKEEL_ATTACK", event.attack.to_string())
        .env("EVENKEEL_PREFIX", &event.prefix)
        .env("EVENKEEL_CLASS", event.class.word())
        .env("EVENKEEL_AT", &event.at)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|e| e.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // A line is far shorter than a pipe is large; a program that does not read it does not want it.
        let _ = input.write_all(line(event).as_bytes());
    }
    wait(&mut child, timeout(config), end)
}

fn wait(child: &mut Child, timeout: Duration, end: &End) -> Result<(), String> {
    let start = Instant::now();
    let in_time = || start.elapsed() < timeout && end.get().is_none_or(|end| Instant::now() < *end);
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                return Err(match (status.code(), status.signal()) {
                    (Some(code), _) => format!("it ended with exit code {code}"),
                    (None, signal) => format!("it was ended by signal {}", signal.unwrap_or(0)),
                });
            }
            Ok(None) if in_time() => thread::sleep(LOOK),
            Ok(None) => {
                // Its group, which it leads: what it started goes with it.
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                let _ = child.wait();
                let ran = start.elapsed().min(timeout).as_secs_f64();
                return Err(format!("it was ended after {ran:.1} s, its timeout or the end of the shield"));
            }
            Err(e) => return Err(format!("its end cannot be waited for: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_program_that_others_can_write_is_not_run_as_root() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: for root only");
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let run = vec![program.to_str().unwrap().to_owned()];
        let config = HookConfig { run, timeout_s: 1.0 };
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Hook::start(&config).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Hook::start(&config), Err(EventError::Hook { event: "start", .. })));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Hook::start(&config), Err(EventError::Hook { event: "start", .. })));
    }
}
