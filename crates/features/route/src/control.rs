//! The process that runs a router: what others may ask it, and its loop.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{atomic::Ordering, mpsc::Receiver},
    thread,
    time::{Duration, Instant},
};

use host::picture::FastPath;
use model::{
    CpuSet,
    route::{RouteEvent, RouteMode, RouteStatus},
};
use rules::{requester::Requester, status};
use serde::{Deserialize, Serialize};
use serve::{
    Lock, ServeError, Signals,
    control::{self, Request},
};
use sys::owner::trusted_folder;

use crate::{
    RouteError, Router,
    rules::Reloaded,
    seen::{Message, Seen},
    stay,
};

/// What is gone after a restart of the machine.
const RUN: &str = "/run/evenkeel";
/// How long a question may wait, and the end.
const TURN: Duration = Duration::from_millis(50);
/// A router that was asked to end may take so long to.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What the process is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// How it is.
    Status,
    /// Another mode.
    Mode(RouteMode),
    /// Other CPUs that forward; none: the cores that receive.
    Cpus(CpuSet),
    /// To read its rules again.
    Reload(Requester),
    /// To end.
    Stop,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// How it is.
    Status(Box<RouteStatus>),
    /// Done.
    Done,
    /// The rules of the file hold.
    Reloaded(Reloaded),
    /// Not done, and why.
    Refused(String),
}

/// Lock and socket of the router of this network namespace.
#[derive(Debug, Clone)]
pub struct Paths(PathBuf);

impl Paths {
    /// Of this network namespace, which has one router.
    pub fn here() -> Self {
        Self(Path::new(RUN).join(format!("route@{}", host::namespace::own().unwrap_or(0))))
    }

    /// Where the process listens.
    pub fn socket(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Takes the lock; it is given back, and the files are gone, when it is dropped.
    ///
    /// # Errors
    /// Another process has it; the folder cannot be made or is somebody else's.
    pub fn lock(&self) -> Result<Held, RouteError> {
        let failed = |source| RouteError::System { operation: "make /run/evenkeel", source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(failed)?;
        trusted_folder(&self.0).map_err(failed)?;
        match serve::lock(&self.0.join("lock")) {
            Err(ServeError::Locked { pid, .. }) => Err(RouteError::Runs { pid }),
            lock => Ok(Held { paths: self.clone(), _lock: lock? }),
        }
    }
}

/// The lock of the one router of this network namespace.
#[derive(Debug)]
pub struct Held {
    paths: Paths,
    _lock: Lock,
}

impl Held {
    /// Tells others of this machine which CPUs forward (`evenkeel spread`, `evenkeel doctor`).
    ///
    /// # Errors
    /// The file cannot be written.
    fn tell(&self, router: &Router) -> Result<(), RouteError> {
        let file = self.paths.0.join(FastPath::FILE);
        let told = match router.cpus().is_empty() {
            true => fs::remove_file(&file),
            false => {
                let path = FastPath {
                    pid: std::process::id(),
                    interfaces: router.ports().to_vec(),
                    cpus: router.cpus().clone(),
                };
                // In one step: who reads meanwhile finds the one or the other.
                let new = self.paths.0.join("new");
                fs::write(&new, path.text()).and_then(|()| fs::rename(&new, &file))
            }
        };
        match told {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(RouteError::System { operation: "say which CPUs forward in /run/evenkeel", source: e })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let folder = &self.paths.0;
        for file in ["control", FastPath::FILE, "lock"] {
            // What is not there any more need not go.
            let _ = fs::remove_file(folder.join(file));
        }
        let _ = fs::remove_dir(folder);
    }
}

/// Asks the router of this network namespace.
///
/// # Errors
/// [`RouteError::None`] if there is none; it does not answer.
pub fn ask(command: &Command) -> Result<Answer, RouteError> {
    control::ask(&Paths::here().socket(), command)?.ok_or(RouteError::None)
}

/// Ends the router of this network namespace; it is gone when this comes back, with its rules, those also that were left. One that does not
/// answer is killed: its id.
///
/// # Errors
/// As [`ask`], unless rules were left; it cannot be ended; its rules cannot be taken off.
pub fn stop() -> Result<(Answer, Option<u32>), RouteError> {
    let mut killed = None;
    let answer = match ask(&Command::Stop) {
        Err(RouteError::None) if !stay::left().is_empty() => Answer::Done,
        Err(RouteError::Serve(silent @ ServeError::Silent { .. })) => {
            killed = Some(control::end_silent(silent)?);
            // It is gone when its lock is free; its files go with that.
            drop(Paths::here().lock()?);
            Answer::Done
        }
        answer => answer?,
    };
    let asked = Instant::now();
    while Paths::here().socket().exists() && asked.elapsed() < END_TIMEOUT {
        thread::sleep(TURN);
    }
    stay::take_off()?;
    Ok((answer, killed))
}

/// Runs the router until a signal or somebody asks it to end; tells of what happens.
///
/// # Errors
/// What the kernel refuses. The kernel forwards then.
pub fn run(
    router: &mut Router,
    held: &Held,
    requests: &Receiver<Request<Command, Answer>>,
    signals: &Signals,
    seen: &mut Seen,
    mut emit: impl FnMut(Message),
) -> Result<(), RouteError> {
    let stop = &signals.stop;
    let start = RouteEvent::Mode { mode: router.mode(), why: "the start".to_owned() };
    seen.note(start).into_iter().for_each(&mut emit);
    let mut told = CpuSet::new();
    while !stop.load(Ordering::Relaxed) {
        if told != *router.cpus() {
            held.tell(router)?;
            told = router.cpus().clone();
        }
        if signals.reload.swap(false, Ordering::Relaxed) {
            // A signal comes from no session.
            let answer = reload(router, &Requester::default());
            seen.note(RouteEvent::Rules { what: said(&answer) }).into_iter().for_each(&mut emit);
        }
        for event in router.turn(TURN)? {
            seen.note(event).into_iter().for_each(&mut emit);
        }
        for (command, to) in requests.try_iter() {
            let answer = match command {
                Command::Status => Answer::Status(Box::new(seen.status(router)?)),
                Command::Mode(mode) => match router.set_mode(mode) {
                    Ok(()) => {
                        let asked = RouteEvent::Mode { mode: router.mode(), why: "asked for".to_owned() };
                        seen.note(asked).into_iter().for_each(&mut emit);
                        Answer::Done
                    }
                    Err(error) => Answer::Refused(error.to_string()),
                },
                Command::Cpus(cpus) => match router.set_cpus(&cpus).and_then(|()| held.tell(router)) {
                    Ok(()) => Answer::Done,
                    Err(error) => Answer::Refused(error.to_string()),
                },
                Command::Reload(asked) => {
                    let answer = reload(router, &asked);
                    seen.note(RouteEvent::Rules { what: said(&answer) }).into_iter().for_each(&mut emit);
                    answer
                }
                Command::Stop => {
                    stop.store(true, Ordering::Relaxed);
                    Answer::Done
                }
            };
            // Whoever asked may have gone.
            let _ = to.send(answer);
        }
        seen.publish(router)?.into_iter().for_each(&mut emit);
    }
    Ok(())
}

fn reload(router: &mut Router, asked: &Requester) -> Answer {
    match router.reload(asked) {
        Ok(reloaded) => Answer::Reloaded(reloaded),
        Err(error @ RouteError::NoRules) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Refused(format!("Reload refused; the old rules stay active: {error}")),
    }
}

/// What came of a reload, in words.
pub fn said(answer: &Answer) -> String {
    match answer {
        Answer::Reloaded(Reloaded { rules, built_in, expired, seconds, warnings: _ }) => {
            let holding = status::Holding { rules: *rules, built_in: *built_in, expired: *expired };
            format!("Reloaded: {holding} active ({:.0} ms).", seconds * 1e3)
        }
        Answer::Refused(why) => why.clone(),
        Answer::Done | Answer::Status(_) => String::new(),
    }
}
