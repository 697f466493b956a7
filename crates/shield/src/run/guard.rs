//! The shield in front of an interface, tended by this process.

use std::{
    fs,
    io::{Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use bpf::{
    XdpMode,
    shield::{Cookies, Shield, ShieldAck, ShieldLink, ShieldShared},
};
use model::shield::Fail;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::{
    ahead::Ahead,
    answers::{accept, challenge, challenges, cookies, know_connections, leave_out},
    left::Left,
    machine,
    making::Making,
    places::{Places, write_whole},
    watch::{Plan, Watchman},
};
use crate::{
    between::{self, Pair, Sides, Way},
    compile::{Counters, Now},
    detect,
    error::ShieldError,
    rules::{
        Action, Rule,
        file::{self, RuleFile},
        flags,
        management::Session,
    },
};

/// The heart beats this often.
const BEAT: Duration = Duration::from_millis(100);

/// Held by the process that tends a shield.
pub(crate) type Lock = Flock<fs::File>;

/// Where rules come from; read again at each reload.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Source {
    /// The file.
    pub file: Option<PathBuf>,
    /// Rules of the command line, before those of the file.
    pub rules: Vec<Rule>,
    /// Sets of the command line, as `NAME=FILE`.
    pub sets: Vec<String>,
}

impl Source {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(&self) -> Result<RuleFile, ShieldError> {
        let mut read = match &self.file {
            Some(path) => file::read(path)?,
            None => file::parse_in("", "", std::path::Path::new(""))?,
        };
        for set in &self.sets {
            flags::set(&mut read, set)?;
        }
        flags::prepend(&mut read, &self.rules)?;
        Ok(read)
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The interface; the first of two.
    pub interface: String,
    /// What passes leaves by the other one of these two.
    pub between: Option<Pair>,
    /// How to attach.
    pub mode: XdpMode,
    /// The rules.
    pub source: Source,
    /// What becomes of packets when this process is gone.
    pub fail: Fail,
    /// After how long.
    pub patience: Duration,
    /// Where to keep what outlives this process.
    pub places: Places,
    /// Sessions that the management allow-list lets in; those of the start.
    pub sessions: Vec<Session>,
}

/// What a later process has to know, beside the pins.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Slots of the counters by name.
    pub counters: Counters,
    /// Names of the rules that hold, in their order, with what `status` shows of them.
    pub rules: Vec<model::shield::RuleStatus>,
    /// What becomes of the rest.
    pub default: String,
    /// The file of rules.
    pub file: Option<String>,
    /// When they came to hold.
    pub loaded: String,
    /// How the shield fails, and after how long.
    pub fail: Option<Fail>,
    /// See above, in seconds.
    pub patience_s: f64,
}

/// A shield, tended. When it is dropped it stays in front of the interface, without anybody who tends it; [`Guard::stop`] takes it away.
#[derive(Debug)]
pub struct Guard {
    pub(super) settings: Settings,
    shared: Arc<ShieldShared>,
    pub(super) link: ShieldLink,
    /// On the other one of two interfaces.
    pub(super) second: Option<ShieldLink>,
    sides: Option<Sides>,
    pub(super) cookies: Option<Cookies>,
    ack: Option<ShieldAck>,
    pub(super) file: RuleFile,
    memory: Memory,
    /// Rules that detection adds.
    extra: Vec<Rule>,
    ahead: Ahead,
    pub(super) watchman: Option<Watchman>,
    pub(super) read_at: Now,
    reloads: u64,
    refused: Option<String>,
    /// What there is to say.
    pub(super) notes: Vec<String>,
    heart: Heart,
    _lock: Flock<fs::File>,
}

/// A thread that beats.
#[derive(Debug)]
struct Heart {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    fn start(shared: Arc<ShieldShared>) -> Result<Self, ShieldError> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let beat = move || {
            while !told.load(Ordering::Relaxed) {
                shared.beat();
                std::thread::park_timeout(BEAT);
            }
        };
        let thread = std::thread::Builder::new().name("ek-heart".into()).spawn(beat);
        let thread = thread.map_err(|error| ShieldError::Lacking(format!("cannot start a thread: {error}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It only beats.
            let _ = thread.join();
        }
    }
}

impl Guard {
    /// Puts a shield in front of the interface, or takes over the one that a process left there: then its rules hold until the new
    /// ones are ready, and counters go on.
    ///
    /// # Errors
    /// Rules that are wrong, an interface that has a shield or another XDP program, what the kernel refuses.
    pub fn start(settings: Settings) -> Result<Self, ShieldError> {
        let file = settings.source.read()?;
        machine::same_clock()?;
        let notes = machine::bpf_file_system(settings.places.bpf_file_system())?.into_iter().collect();
        settings.places.make()?;
        let lock = lock(&settings)?;
        let left = Left::find(&settings)?;
        let fresh = left.is_none();
        if let Some(pair) = &settings.between {
            between::check(pair, way(settings.mode), !fresh)?;
        }
        let places = settings.places.clone();
        Self::begin(settings, file, left, lock, notes).inspect_err(|_| {
            if fresh {
                // The failure itself is what is told.
                let _ = places.remove();
            }
        })
    }

    fn begin(
        settings: Settings,
        mut file: RuleFile,
        left: Option<Left>,
        lock: Flock<fs::File>,
        mut notes: Vec<String>,
    ) -> Result<Self, ShieldError> {
        machine::sees_tags(&settings, &file)?;
        notes.extend(leave_out(&settings, &mut file));
        let (shared, links, memory) = match left {
            Some(Left { shared, link, second, memory }) => (shared, Some((link, second)), memory),
            None => {
                let mut shared = ShieldShared::create()?;
                shared.pin(&settings.places.pins)?;
                (Arc::new(shared), None, Memory::default())
            }
        };
        let heart = Heart::start(Arc::clone(&shared))?;
        let cookies = challenges(&file).then(|| cookies(&settings)).transpose()?;
        let plan = Plan::of(None, &settings.interface, &file, &settings.places, &mut notes)?;
        let mut ahead = Ahead::new(&file.rules.protected);
        let mut made = Making {
            ahead: &mut ahead,
            urgent: false,
            settings: &settings,
            shared: &shared,
            file: &file,
            extra: &[],
            memory,
            cookies: cookies.clone(),
            watch: plan.config(None),
        };
        let (shield, read_at, job) = made.shield()?;
        let memory = made.memory;
        write_memory(&settings.places, &memory)?;
        let sides = match &settings.between {
            Some(pair) => Some(Sides::start(pair, true, &settings.places.state)?),
            None => None,
        };
        let (link, second) = match links {
            Some((mut link, mut second)) => {
                replace(&mut link, second.as_mut(), &shield)?;
                (link, second)
            }
            None => attach(&shield, &settings)?,
        };
        let mut watchman = None;
        plan.carry_out(&mut watchman);
        let ack = accept(&settings, cookies.as_ref())?;
        if let Err(error) = know_connections(cookies.as_ref(), challenges(&file)) {
            notes.push(error.to_string());
        }
        ahead.begin(job)?;
        Ok(Self {
            settings,
            shared,
            link,
            second,
            sides,
            cookies,
            ack,
            file,
            memory,
            extra: Vec::new(),
            ahead,
            watchman,
            read_at,
            reloads: 0,
            refused: None,
            notes,
            heart,
            _lock: lock,
        })
    }

    /// Reads the rules again and puts them in the place of those that hold, all at once. After an error those that hold go on.
    ///
    /// # Errors
    /// What is wrong with the new ones; it is also kept for [`Guard::refused`].
    pub fn reload(&mut self) -> Result<(), ShieldError> {
        let done = self.settings.source.read().and_then(|mut file| {
            self.notes.extend(leave_out(&self.settings, &mut file));
            self.hold(file, false)
        });
        self.refused = done.as_ref().err().map(ToString::to_string);
        done?;
        self.reloads += 1;
        Ok(())
    }

    /// Looks for attacks, and makes hold what is to be done about them, behind the management allow-list. What happened has been told
    /// to the log and the hook.
    ///
    /// # Errors
    /// The rules against an attack cannot be had; those that hold go on.
    pub fn look(&mut self) -> Result<detect::Seen, ShieldError> {
        let Some(watchman) = &mut self.watchman else { return Ok(detect::Seen::default()) };
        let mut seen = watchman.sentry.look(&self.shared.counts(), &self.memory.counters);
        watchman.note(&seen);
        if let Err(error) = watchman.keep(&self.settings.places) {
            self.notes.push(format!("what was learned cannot be kept for a later process: {error}"));
        }
        if let Some(rules) = seen.rules.take() {
            // What is withdrawn has time.
            let urgent = rules.iter().any(|rule| !self.extra.contains(rule));
            let before = std::mem::replace(&mut self.extra, rules);
            if let Err(error) = self.hold(self.file.clone(), urgent) {
                self.extra = before;
                return Err(error);
            }
        } else if let Some(shield) = self.ahead.ready()? {
            self.replace(&shield)?;
        }
        Ok(seen)
    }

    /// How often [`Guard::look`] is to be called; none: nothing is watched.
    pub fn look_every(&self) -> Option<Duration> {
        self.watchman.as_ref().map(|watchman| Duration::from_millis(watchman.sentry.detector().config().every_ms))
    }

    pub(super) fn watchman(&self) -> Option<&Watchman> {
        self.watchman.as_ref()
    }

    /// Whether a program waits for the rules against an attack.
    pub fn is_prepared(&self) -> bool {
        self.ahead.waits()
    }

    /// Whether rules that hold ask for SYN cookies.
    pub(super) fn challenges(&self) -> bool {
        challenges(&self.file) || challenge(&self.extra)
    }

    fn replace(&mut self, shield: &Shield) -> Result<(), ShieldError> {
        replace(&mut self.link, self.second.as_mut(), shield)
    }

    pub(super) fn hold(&mut self, file: RuleFile, urgent: bool) -> Result<(), ShieldError> {
        machine::sees_tags(&self.settings, &file)?;
        let (interface, places) = (&self.settings.interface, &self.settings.places);
        let plan = Plan::of(self.watchman.as_ref(), interface, &file, places, &mut self.notes)?;
        let mut extra = plan.extra(self.watchman.as_ref()).unwrap_or_else(|| self.extra.clone());
        if self.cookies.is_none() && (challenges(&file) || challenge(&extra)) {
            let both = cookies(&self.settings).and_then(|c| Ok((accept(&self.settings, Some(&c))?, c)));
            match both {
                Ok((ack, cookies)) => (self.ack, self.cookies) = (ack, Some(cookies)),
                Err(error) if challenges(&file) => return Err(error),
                // What else is to be done against attacks must not wait for what cannot be.
                Err(error) => {
                    extra.retain(|rule| rule.action != Action::Challenge);
                    self.notes.push(format!("SYNs of the attack are not answered with cookies: {error}"));
                }
            }
        }
        let mut elsewhere = plan.is_elsewhere().then(|| Ahead::new(&file.rules.protected));
        let mut made = Making {
            ahead: elsewhere.as_mut().unwrap_or(&mut self.ahead),
            urgent,
            settings: &self.settings,
            shared: &self.shared,
            file: &file,
            extra: &extra,
            memory: self.memory.clone(),
            cookies: self.cookies.clone(),
            watch: plan.config(self.watchman.as_ref()),
        };
        let (shield, read_at, job) = made.shield()?;
        let memory = made.memory;
        write_memory(&self.settings.places, &memory)?;
        if let Err(error) = self.replace(&shield) {
            // That the old ones go on is the news.
            let _ = write_memory(&self.settings.places, &self.memory);
            return Err(error);
        }
        plan.carry_out(&mut self.watchman);
        let challenged = self.challenges();
        (self.memory, self.file, self.read_at, self.extra) = (memory, file, read_at, extra);
        // In between there were connections that the program has not seen.
        if self.challenges() != challenged
            && let Err(error) = know_connections(self.cookies.as_ref(), self.challenges())
        {
            self.notes.push(error.to_string());
        }
        if let Some(ahead) = elsewhere {
            self.ahead = ahead;
        }
        self.ahead.begin(job)
    }

    /// Carries the link state of one of two interfaces over to the other. What was done, in words.
    ///
    /// # Errors
    /// An interface cannot be taken down or up.
    pub fn carry(&mut self) -> Result<Option<String>, ShieldError> {
        self.sides.as_mut().map_or(Ok(None), Sides::carry)
    }

    /// Whether all interfaces still exist.
    pub fn is_alive(&self) -> bool {
        self.link.is_alive() && self.second.as_ref().is_none_or(ShieldLink::is_alive)
    }

    /// What there is to say that nobody has asked for: once.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Leaves the shield where it is, for a process that comes.
    pub fn leave(mut self) {
        if let Some(watchman) = &mut self.watchman {
            // It was kept some seconds ago.
            let _ = watchman.keep_now(&self.settings.places);
        }
    }

    /// Takes the shield away.
    ///
    /// # Errors
    /// Something of it stays.
    pub fn stop(self) -> Result<(), ShieldError> {
        let Self { settings, link, second, heart, ack, .. } = self;
        settings.places.remove()?;
        drop((link, second, ack, heart));
        Ok(())
    }

    /// The file that holds.
    pub fn file(&self) -> &RuleFile {
        &self.file
    }

    /// The maps that go on.
    pub fn shared(&self) -> &ShieldShared {
        &self.shared
    }

    /// The program on the interface.
    pub fn link(&self) -> &ShieldLink {
        &self.link
    }

    /// The program on the second of two interfaces.
    pub fn second(&self) -> Option<&ShieldLink> {
        self.second.as_ref()
    }

    /// What is kept for a later process.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The interface, or both as `A,B`.
    pub fn name(&self) -> String {
        self.settings.between.as_ref().map_or_else(|| self.settings.interface.clone(), Pair::to_string)
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How often rules were replaced, and why the last try was refused.
    pub fn reloads(&self) -> (u64, Option<&str>) {
        (self.reloads, self.refused.as_deref())
    }
}

/// Takes the lock; who holds it tends the shield.
pub(crate) fn lock(settings: &Settings) -> Result<Lock, ShieldError> {
    let path = settings.places.lock();
    let failed = |operation, source| ShieldError::Place { operation, path: path.clone(), source };
    let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = open.map_err(|source| failed("open", source))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            let write =
                lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
            write.map_err(|source| failed("write", source))?;
            Ok(lock)
        }
        Err((mut file, _)) => {
            let mut pid = String::new();
            // A pid that cannot be read is not worth more than its question mark.
            let _ = file.read_to_string(&mut pid);
            let pid = if pid.is_empty() { "?".into() } else { pid };
            Err(ShieldError::Tended { interface: settings.interface.clone(), pid })
        }
    }
}

/// Puts the program in front of the interface, or of both.
fn attach(shield: &Shield, settings: &Settings) -> Result<(ShieldLink, Option<ShieldLink>), ShieldError> {
    let link = shield.attach(&settings.interface, settings.mode)?;
    let Some(pair) = &settings.between else {
        link.pin(&settings.places.link())?;
        return Ok((link, None));
    };
    let second = shield.attach(&pair.second, settings.mode)?;
    // Some drivers take frames only once they run a program.
    if settings.mode == XdpMode::Native {
        between::takes_frames(pair)?;
    }
    // Where the first one is, the second one is too.
    second.pin(&settings.places.second_link())?;
    link.pin(&settings.places.link())?;
    Ok((link, Some(second)))
}

/// Puts the program in the place of the one in front of the interface, or of both or neither.
fn replace(link: &mut ShieldLink, second: Option<&mut ShieldLink>, shield: &Shield) -> Result<(), ShieldError> {
    match second {
        Some(second) => ShieldLink::replace_both(link, second, shield)?,
        None => link.replace(shield)?,
    }
    Ok(())
}

fn way(mode: XdpMode) -> Way {
    match mode {
        XdpMode::Generic => Way::Generic,
        XdpMode::Native | XdpMode::Offload => Way::Native,
    }
}

/// What an earlier process has written down.
pub(super) fn read_memory(places: &Places) -> Option<Memory> {
    serde_json::from_slice(&fs::read(places.memory()).ok()?).ok()
}

fn write_memory(places: &Places, memory: &Memory) -> Result<(), ShieldError> {
    write_whole(&places.memory(), &serde_json::to_vec(memory).unwrap_or_default())
}
