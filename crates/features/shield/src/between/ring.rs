//! Between two interfaces by AF_PACKET rings, for drivers without XDP: frames are read into this process, judged by the same tables, and
//! sent past the other interface's queues.
//!
//! What is protected is watched as by the kernel program, by each thread that reads, and what detection asks for holds as soon as its tables are made.
//!
//! There is no program in the kernel: what is not carried here does not cross, so that the way is closed when this process is gone. The
//! stack of this host is kept away from both interfaces ([`bpf::shield::StackHold`]). Frames wait up to a few milliseconds in a block of
//! the ring when they come alone.

pub mod asking;
mod buckets;
mod carrier;
mod checksum;
mod counts;
mod engine;
mod known;
mod making;
mod sending;

use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bpf::shield::StackHold;
use jiff::Timestamp;
use model::shield::{Fail, ShieldStatus, Totals};
use rules::{
    Rule,
    compile::{Cache, Counters, Now},
    file::RuleFile,
};

use self::{
    carrier::{Carrier, broke_off},
    counts::{Counts, Sums},
    engine::{Engine, Memory},
    making::Making,
};
use super::{Pair, Sides, Way, bring_up, check, is_free};
use crate::{
    error::ShieldError,
    run::{
        Answer, Asked, Command, Ended, Settings, Signals, Told,
        follow::still_by,
        keeper::{Request, tell_reload},
        lock::{Lock, lock},
        status,
        watch::{Counting, Plan, Watchman},
    },
};

/// How often signals, clocks and links are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A loss that goes on is told of this often.
const TELL: Duration = Duration::from_secs(10);

/// What was told of losses.
#[derive(Debug, Default)]
struct Losses {
    missed: u64,
    unanswered: u64,
    at: Option<Instant>,
}

impl Losses {
    /// What there is to tell, unless something was told a moment ago.
    fn news(&mut self, totals: &Totals) -> Vec<String> {
        let (missed, unanswered) = (totals.missed - self.missed, totals.unanswered - self.unanswered);
        if missed + unanswered == 0 || self.at.is_some_and(|at| at.elapsed() < TELL) {
            return Vec::new();
        }
        *self = Self { missed: totals.missed, unanswered: totals.unanswered, at: Some(Instant::now()) };
        let lost = format!("{missed} frames were lost: they came faster than they were carried; more --threads help");
        let waits = format!(
            "{unanswered} SYNs of unknown sources were not answered: more came than can be, so that those of clients are answered at their \
             second try; more --threads help, or --backend xdp, or a limit before the rule that challenges"
        );
        [(missed, lost), (unanswered, waits)].into_iter().filter(|(n, _)| *n > 0).map(|(_, said)| said).collect()
    }
}

/// An interface's index, by which it is known as long as it exists.
fn index(name: &str) -> Result<u32, ShieldError> {
    sys::packet::interface_index(name).ok_or_else(|| port::members::unknown_interface(name).into())
}

/// Its name, which may change; none: it is gone.
fn name(index: u32) -> Option<String> {
    nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
}

/// What is told of an interface that is gone.
fn gone(index: u32) -> ShieldError {
    ShieldError::Lacking(format!("the interface of index {index} was removed, and the shield with it"))
}

/// Frames cross while this lives.
#[derive(Debug)]
pub struct RingGateway {
    settings: Settings,
    pair: Pair,
    engine: Arc<RwLock<Arc<Engine>>>,
    memory: Arc<Memory>,
    file: RuleFile,
    /// Rules that detection adds.
    extra: Vec<Rule>,
    watchman: Option<Watchman>,
    cache: Cache,
    counters: Counters,
    /// One for each thread.
    counts: Arc<Vec<Counts>>,
    sides: Sides,
    loaded: Timestamp,
    read_at: Now,
    reloads: u64,
    refused: Option<String>,
    told: Losses,
    /// What there is to say.
    notes: Vec<String>,
    stop: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<Result<(), ShieldError>>>,
    /// Of the interfaces, whatever they are called now.
    indices: [u32; 2],
    _holds: [StackHold; 2],
    _lock: Option<Lock>,
}

impl RingGateway {
    /// Has `threads` threads carry frames in each direction, by the rules of `file`: what `settings.source` said when it was read and
    /// judged. It is not read again until a reload.
    ///
    /// # Errors
    /// Rules that are wrong or need the kernel's program, interfaces that will not do, what the kernel refuses.
    pub fn start(settings: Settings, file: RuleFile, threads: usize) -> Result<Self, ShieldError> {
        let Some(pair) = settings.between.clone() else {
            return Err(ShieldError::Usage(
                "packet rings carry frames between two interfaces: name them by --between A,B".into(),
            ));
        };
        if settings.fail == Fail::Open {
            return Err(ShieldError::Usage(
                "--backend ring fails closed: its frames cross in this process, and nothing crosses when that is gone; leave --fail open \
                 away, or use --backend xdp"
                    .into(),
            ));
        }
        let fresh = !settings.places.state.exists();
        is_free(&pair, &settings.places)?;
        settings.places.make()?;
        let mut lock = Some(lock(&settings)?);
        if settings.places.link().exists() {
            return Err(ShieldError::Usage(format!(
                "an XDP shield was left in front of {0}: end it by `evenkeel shield stop {0}`",
                settings.interface
            )));
        }
        let places = settings.places.clone();
        Self::begin(settings, &pair, file, &mut lock, threads.max(1)).inspect_err(|_| {
            // Whoever has the lock may remove what is there; what a process before has learned stays for the next one.
            if fresh && lock.is_some() {
                // The failure itself is what is told.
                let _ = places.remove();
            }
        })
    }

    fn begin(
        settings: Settings,
        pair: &Pair,
        file: RuleFile,
        lock: &mut Option<Lock>,
        threads: usize,
    ) -> Result<Self, ShieldError> {
        let (mut counters, mut cache, mut notes) =
            (Counters::new(), Cache::expecting(&file.rules.protected), Vec::new());
        let read_at = Now::read();
        let memory = Arc::new(Memory::new()?);
        let counting = Counting::Threads(2 * threads);
        let plan = Plan::of(None, &settings.interface, &file, &settings.places, counting, &mut notes)?;
        let made = Making { file: &file, extra: &[], watch: plan.config(None), threads: 2 * threads, holding: None };
        let engine = made.engine(&mut counters, &mut cache, read_at, Arc::clone(&memory))?;
        bring_up(pair, &settings.places.state)?;
        notes.extend(check(pair, Way::Ring, false)?);
        let [first, second] = pair.names().map(index);
        let indices = [first?, second?];
        let sides = Sides::start(pair, false, &settings.places.state)?;
        let holds = [StackHold::attach(&pair.first)?, StackHold::attach(&pair.second)?];
        let engine = Arc::new(RwLock::new(Arc::new(engine)));
        let counts = Arc::new((0..2 * threads).map(|_| Counts::default()).collect::<Vec<_>>());
        let stop = Arc::new(AtomicBool::new(false));
        let mut gateway = Self {
            pair: pair.clone(),
            engine: Arc::clone(&engine),
            memory,
            file,
            extra: Vec::new(),
            watchman: None,
            cache,
            counters,
            counts: Arc::clone(&counts),
            sides,
            loaded: Timestamp::now(),
            read_at,
            reloads: 0,
            refused: None,
            told: Losses::default(),
            notes,
            stop: Arc::clone(&stop),
            carriers: Vec::new(),
            indices,
            _holds: holds,
            _lock: lock.take(),
            settings,
        };
        for (number, from) in indices.into_iter().enumerate() {
            let mine = number * threads..(number + 1) * threads;
            let to = indices[1 - number];
            let carrier = Carrier::open(from, to, mine, Arc::clone(&engine), Arc::clone(&counts), Arc::clone(&stop))?;
            let started = thread::Builder::new().name(format!("ek-from-{number}")).spawn(move || carrier.run());
            let started = started.map_err(|e| ShieldError::Lacking(format!("cannot start a thread: {e}")))?;
            gateway.carriers.push(started);
        }
        // It is the first.
        let _ = plan.carry_out(&mut gateway.watchman);
        Ok(gateway)
    }

    /// How many rules hold.
    pub fn rules(&self) -> status::Holding {
        self.engine().holding()
    }

    fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Tends it until it is told to end.
    ///
    /// # Errors
    /// An interface goes away, or a ring fails.
    pub fn keep(
        mut self,
        requests: &Receiver<Request>,
        signals: &Signals,
        mut tell: impl FnMut(Told),
    ) -> Result<Ended, ShieldError> {
        let mut looked = Instant::now();
        loop {
            if signals.stop.load(Ordering::Relaxed) {
                return self.end().map(|()| Ended::Stopped);
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                tell_reload(self.reload(&Asked::default()), &mut tell);
            }
            match self.sides.carry() {
                Ok(None) => {}
                Ok(Some(said)) => tell(Told::Said(said)),
                Err(error) => tell(Told::Said(error.to_string())),
            }
            if self.carriers.iter().any(JoinHandle::is_finished) {
                self.end()?;
                return Err(ShieldError::Lacking("a direction ended although nobody told it to".to_owned()));
            }
            let every = self.look_every();
            if every.is_some_and(|every| looked.elapsed() >= every) {
                looked = Instant::now();
                match self.look() {
                    Ok(seen) => {
                        seen.events.into_iter().for_each(|event| tell(Told::Event(event)));
                        seen.troubles.iter().for_each(|trouble| tell(Told::Said(trouble.to_string())));
                    }
                    Err(error) => tell(Told::Said(format!("the rules against an attack cannot be had: {error}"))),
                }
            }
            self.told.news(&Sums::new(&self.counts).totals()).into_iter().for_each(|said| tell(Told::Said(said)));
            self.follow_clock();
            self.notes.drain(..).for_each(|said| tell(Told::Said(said)));
            let wait = every.map_or(TICK, |every| every.saturating_sub(looked.elapsed()).min(TICK));
            let (command, to) = match requests.recv_timeout(wait) {
                Ok(request) => request,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(TICK);
                    continue;
                }
            };
            let answer = match command {
                Command::Status => Answer::status(self.status()),
                // Sessions with this machine do not go through a gateway.
                Command::Reload(asked) => tell_reload(self.reload(&Asked { sessions: Vec::new(), ..asked }), &mut tell),
                Command::Leave => Answer::new(false, "packet rings end with their process: nothing can be left"),
                Command::Stop => {
                    let ended = self.end();
                    let said = ended.as_ref().map_or_else(ToString::to_string, |()| "ended".to_owned());
                    // Who asked may have gone.
                    let _ = to.send(Answer::new(ended.is_ok(), said));
                    return ended.map(|()| Ended::Stopped);
                }
            };
            // Who asked may have gone.
            let _ = to.send(answer);
        }
    }

    /// How things are.
    pub fn status(&self) -> ShieldStatus {
        let engine = self.engine();
        let sums = Sums::new(&self.counts);
        ShieldStatus {
            when: Timestamp::now().to_string(),
            interface: self.pair.to_string(),
            mode: "packet rings".to_owned(),
            program_id: 0,
            pid: Some(std::process::id()),
            silent_s: 0.0,
            patience_s: self.settings.patience.as_secs_f64(),
            fail: Some(Fail::Closed),
            file: self.settings.source.file.as_ref().map(|path| path.display().to_string()),
            loaded: self.loaded.to_string(),
            reloads: self.reloads,
            refused: self.refused.clone(),
            rules: engine.statuses(&self.counters, &sums.rules(self.counters.end())),
            default: engine.default_word().to_owned(),
            totals: sums.totals(),
            rates: None,
            sources: self.watchman.as_ref().map_or_else(Vec::new, Watchman::sources),
            attacks: self.watchman.as_ref().map_or_else(Vec::new, |watchman| watchman.attacks.clone()),
            challenge: None,
            warnings: self.warnings(),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let names = self.pair.names().into_iter().zip(self.indices);
        names.filter_map(|(was, index)| name(index).filter(|now| now != was).map(|now| still_by(was, &now))).collect()
    }

    /// Ends the threads and puts back what was set.
    fn end(&mut self) -> Result<(), ShieldError> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(watchman) = &mut self.watchman {
            // Whoever is not told now asks nobody any more.
            let _ = watchman.sentry.end_attacks(&[]);
        }
        let mut result = Ok(());
        for carrier in self.carriers.drain(..) {
            result = result.and(carrier.join().unwrap_or_else(|_| Err(broke_off())));
        }
        self.watchman.iter_mut().for_each(|watchman| watchman.sentry.end_metrics());
        result.and(self.settings.places.remove())
    }
}

impl Drop for RingGateway {
    fn drop(&mut self) {
        if !self.stop.load(Ordering::Relaxed) {
            // Told by whoever starts it.
            let _ = self.end();
        }
    }
}
