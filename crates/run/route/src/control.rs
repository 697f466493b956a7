//! The process that runs a router: what others may ask it, and its loop.

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
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

/// What is written before it is [`FastPath::FILE`].
const NEW: &str = "new";
/// The file that says what a starting router does; it is removed when the router answers.
const STARTS: &str = "starts";
/// What is gone after a restart of the machine.
const RUN: &str = "/run/evenkeel";
const HEAD: &str = "route@";
/// How long a question may wait, and the end.
const TURN: Duration = Duration::from_millis(50);
/// So often the folder of a router may go while the next one begins.
const TRIES: u32 = 16;
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths(PathBuf);

impl Paths {
    /// Of this network namespace, which has one router.
    pub fn here() -> Self {
        Self::of(host::namespace::own().unwrap_or(0))
    }

    /// Of the network namespace with that number.
    pub(crate) fn of(namespace: u64) -> Self {
        Self(Path::new(RUN).join(format!("{HEAD}{namespace}")))
    }

    /// Of all network namespaces in which a router runs, or was killed.
    pub(crate) fn all() -> Vec<Self> {
        let entries = fs::read_dir(RUN).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix(HEAD)?.parse().ok().map(Self::of)).collect()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// The lock, if one who was killed left it: its file is there, and nobody holds it.
    fn left(&self) -> Option<Lock> {
        trusted_folder(&self.0).ok().and_then(|()| serve::lock_left(&self.0.join("lock")))
    }

    /// Whether whoever ran a router there was killed.
    pub(crate) fn is_dead(&self) -> bool {
        self.left().is_some()
    }

    /// Removes what one who was killed left; whether there was anything.
    ///
    /// # Errors
    /// It stays.
    pub(crate) fn clear(&self) -> Result<bool, RouteError> {
        let Some(lock) = self.left() else { return Ok(false) };
        drop(Held { paths: self.clone(), _lock: lock });
        match self.0.join("lock").exists() && self.is_dead() {
            true => Err(RouteError::System {
                operation: "remove what a killed router left in /run/evenkeel",
                source: io::ErrorKind::ReadOnlyFilesystem.into(),
            }),
            false => Ok(true),
        }
    }

    /// The router that starts, as an error of whoever asks it something.
    fn starting(&self) -> Option<RouteError> {
        let does = fs::read_to_string(self.0.join(STARTS)).ok().filter(|_| !self.is_dead())?;
        let lock = self.0.join("lock");
        let since = fs::metadata(&lock).and_then(|lock| lock.modified()).ok()?.elapsed().unwrap_or_default();
        Some(RouteError::Starts { pid: fs::read_to_string(lock).ok()?, since, does })
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
        for again in (0..TRIES).rev() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(failed)?;
            trusted_folder(&self.0).map_err(failed)?;
            match serve::lock(&self.0.join("lock")) {
                Err(ServeError::Locked { pid, .. }) => return Err(RouteError::Runs { pid }),
                // One that ended just now took the folder away.
                Err(ServeError::File { source, .. }) if again > 0 && source.kind() == io::ErrorKind::NotFound => {}
                lock => return Ok(Held { paths: self.clone(), _lock: lock? }),
            }
        }
        Err(failed(io::ErrorKind::NotFound.into()))
    }
}

/// The lock of the one router of this network namespace.
#[derive(Debug)]
pub struct Held {
    paths: Paths,
    _lock: Lock,
}

impl Held {
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Says to whoever asks before the router can answer what it does, as `loads the programs`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn starts(&self, does: &str) -> Result<(), RouteError> {
        let failed = |source| RouteError::System { operation: "say in /run/evenkeel that a router starts", source };
        let new = self.paths.0.join(NEW);
        fs::write(&new, does).and_then(|()| fs::rename(&new, self.paths.0.join(STARTS))).map_err(failed)
    }

    /// The router answers from now on.
    pub fn started(&self) {
        // Who asks is answered first, be the file there or not.
        let _ = fs::remove_file(self.paths.0.join(STARTS));
    }

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
                let new = self.paths.0.join(NEW);
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
        for file in ["control", FastPath::FILE, NEW, STARTS, "lock"] {
            // What is not there any more need not go.
            let _ = fs::remove_file(folder.join(file));
        }
        let _ = fs::remove_dir(folder);
    }
}

/// Asks the router of this network namespace.
///
/// # Errors
/// [`RouteError::None`] if there is none, [`RouteError::Starts`] if it starts; it does not answer.
pub fn ask(command: &Command) -> Result<Answer, RouteError> {
    let paths = Paths::here();
    control::ask(&paths.socket(), command)?.ok_or_else(|| paths.starting().unwrap_or(RouteError::None))
}

/// Ends the router of this network namespace; it is gone when this comes back, with its rules, those also that were left. One that does not
/// answer is killed: its id.
///
/// # Errors
/// As [`ask`], unless rules were left; it cannot be ended; its rules cannot be taken off.
pub fn stop() -> Result<(Answer, Option<u32>), RouteError> {
    let mut killed = None;
    let asked = Instant::now();
    let mut waits = END_TIMEOUT;
    let answer = match ask(&Command::Stop) {
        Err(RouteError::None) if !stay::left().is_empty() => {
            // Nobody is there who ends; its socket may be.
            waits = Duration::ZERO;
            Answer::Done
        }
        Err(RouteError::Serve(silent @ ServeError::Silent { .. })) => {
            killed = Some(control::end_silent(silent)?);
            // It is gone when its lock is free; its files go with that.
            drop(Paths::here().lock()?);
            Answer::Done
        }
        answer => answer?,
    };
    while Paths::here().socket().exists() && asked.elapsed() < waits {
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
    let mut reloads = Reloads::default();
    while !stop.load(Ordering::Relaxed) {
        if told != *router.cpus() {
            held.tell(router)?;
            told = router.cpus().clone();
        }
        if signals.reload.swap(false, Ordering::Relaxed) {
            // A signal comes from no session.
            reloads.waiting.push_back((Requester::default(), None));
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
                    reloads.waiting.push_back((asked, Some(to)));
                    continue;
                }
                Command::Stop => {
                    stop.store(true, Ordering::Relaxed);
                    Answer::Done
                }
            };
            // Whoever asked may have gone.
            let _ = to.send(answer);
        }
        for answer in reloads.turn(router) {
            seen.note(RouteEvent::Rules { what: said(&answer) }).into_iter().for_each(&mut emit);
        }
        seen.publish(router)?.into_iter().for_each(&mut emit);
    }
    Ok(())
}

/// Reloads, one after the other, while the loop goes on.
#[derive(Default)]
struct Reloads {
    /// Who asked, and where the answer goes; none: a signal.
    waiting: VecDeque<(Requester, Option<Sender<Answer>>)>,
    /// Of the one that has begun.
    begun: Option<Option<Sender<Answer>>>,
}

impl Reloads {
    /// Begins the next one if it can; the answers to those that ended.
    fn turn(&mut self, router: &mut Router) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut end = |to: Option<Sender<Answer>>, result| {
            let answer = answer(result);
            // Whoever asked may have gone.
            let _ = to.map(|to| to.send(answer.clone()));
            answers.push(answer);
        };
        if let Some(result) = router.take_reloaded() {
            end(self.begun.take().flatten(), result);
        }
        if self.begun.is_none()
            && !router.makes_rules()
            && let Some((asked, to)) = self.waiting.pop_front()
        {
            match router.begin_reload(&asked) {
                Ok(()) => self.begun = Some(to),
                Err(error) => end(to, Err(error)),
            }
        }
        answers
    }
}

impl Drop for Reloads {
    fn drop(&mut self) {
        let waiting = self.waiting.drain(..).map(|(_, to)| to);
        for to in waiting.chain(self.begun.take()).flatten() {
            let _ = to.send(Answer::Refused("Reload refused: the router ends".to_owned()));
        }
    }
}

fn answer(result: Result<Reloaded, RouteError>) -> Answer {
    match result {
        Ok(reloaded) => Answer::Reloaded(reloaded),
        Err(error @ RouteError::NoRules) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Refused(format!("Reload refused; the old rules stay active: {error}")),
    }
}

/// What came of a reload, in words.
pub fn said(answer: &Answer) -> String {
    match answer {
        Answer::Reloaded(Reloaded { rules, built_in, expired, seconds, warnings: _ }) => {
            let holding = status::Holding { rules: *rules, built_in: *built_in, expired: *expired, attack: 0 };
            format!("Reloaded: {holding} active ({:.0} ms).", seconds * 1e3)
        }
        Answer::Refused(why) => why.clone(),
        Answer::Done | Answer::Status(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_that_starts_is_told_of_by_what_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths(folder.path().join("route@1"));
        assert!(paths.starting().is_none(), "nobody is there");
        let held = paths.lock().unwrap();
        assert!(paths.starting().is_none(), "one that says nothing yet");
        held.starts("loads the programs").unwrap();
        let said = paths.starting().unwrap().to_string();
        let pid = std::process::id();
        assert!(said.contains(&format!("process {pid} loads the programs; `kill {pid}` ends it")), "{said}");
        held.started();
        assert!(paths.starting().is_none(), "it answers");
        // One that was killed starts no more.
        held.starts("loads the programs").unwrap();
        let lock = fs::read_to_string(paths.0.join("lock")).unwrap();
        drop(held);
        fs::create_dir(&paths.0).unwrap();
        fs::write(paths.0.join("lock"), lock).unwrap();
        fs::write(paths.0.join(STARTS), "loads the programs").unwrap();
        assert!(paths.starting().is_none());
    }
}
