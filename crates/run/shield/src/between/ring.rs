//! Between two interfaces by AF_PACKET rings, for drivers without XDP: frames are read into this process, judged by the same tables, and
//! sent past the other interface's queues.
//!
//! Each reading thread counts for protected prefixes as the kernel program does, and rules of detection are active once their tables are made.
//!
//! There is no program in the kernel: what is not carried here does not cross, so that the way is closed when this process is gone. The
//! stack of this host is kept away from both interfaces ([`bpf::filter::StackHold`]). Frames wait up to a few milliseconds in a block of
//! the ring when they come alone.

mod buckets;
mod carrier;
mod checksum;
mod counts;
mod engine;
mod known;
pub mod proof;
mod sending;

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bpf::filter::{ShieldCounts, StackHold, WatchConfig};
use host::interface::{index, name_of};
use model::{
    shield::{Fail, Totals},
    units::counted,
};
use rules::{
    compile::{self, Cache, Counters},
    file::RuleFile,
};
use serve::Lock;

use self::{
    carrier::{Carrier, broke_off},
    counts::{Counts, Sums},
    engine::{Engine, State},
    proof::SynProof,
};
use super::Datapath;
use crate::{
    error::ShieldError,
    run::{
        Control, DataPlane, Paths, Settings,
        control::{Upkeep, join},
        owner,
        plane::{NextRules, PlaneStatus},
        saved_state::SavedState,
        transition::Counting,
        warnings::still_by,
    },
    state_file::write_whole,
};

/// A loss that goes on is reported this often.
const LOSSES_PERIOD: Duration = Duration::from_secs(10);

/// Losses that were reported.
#[derive(Debug, Default)]
struct Losses {
    missed: u64,
    unanswered: u64,
    at: Option<Instant>,
}

impl Losses {
    /// Returns a report, unless there was one a moment ago.
    fn news(&mut self, totals: &Totals) -> Vec<String> {
        let (missed, unanswered) = (totals.missed - self.missed, totals.unanswered - self.unanswered);
        if missed + unanswered == 0 || self.at.is_some_and(|at| at.elapsed() < LOSSES_PERIOD) {
            return Vec::new();
        }
        *self = Self { missed: totals.missed, unanswered: totals.unanswered, at: Some(Instant::now()) };
        let lost = format!(
            "{} lost: more arrived than the threads can carry; raise --threads",
            counted(missed, "frame", "frames")
        );
        let waits = format!(
            "{} of unknown sources got no answer: more arrived than can be answered, and clients get one at their second SYN; raise \
             --threads, use --backend xdp, or put a limit before the rule that challenges",
            counted(unanswered, "SYN", "SYNs")
        );
        [(missed, lost), (unanswered, waits)].into_iter().filter(|(n, _)| *n > 0).map(|(_, message)| message).collect()
    }
}

/// Threads that carry frames both ways. Nothing crosses when it is gone.
#[derive(Debug)]
pub struct Ring {
    /// The rules that hold, as each thread asks them; none: no thread has begun.
    engine: Option<Arc<RwLock<Arc<Engine>>>>,
    state: Arc<State>,
    cache: Cache,
    /// Counters of each thread.
    counts: Arc<Vec<Counts>>,
    stop: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<Result<(), ShieldError>>>,
    /// Indices of the interfaces, whatever they are called now.
    indices: [u32; 2],
    holds: Vec<StackHold>,
    losses: Losses,
    /// The sources could not be written down the last time.
    unkept: bool,
    paths: Paths,
}

/// An engine, and the tables that it is made of if nothing of those before could be used.
pub struct Ready(Engine, Option<Cache>);

/// Has `threads` threads carry frames in each direction, by the rules of `file`: what `settings.source` said when it was read and judged.
///
/// # Errors
/// Rules that are wrong or need the kernel's program, interfaces that will not do, what the kernel refuses.
pub fn start(settings: Settings, file: RuleFile, threads: usize) -> Result<Control<Ring>, ShieldError> {
    if settings.between.is_none() {
        return Err(ShieldError::RingsNeedTwo);
    }
    if settings.fail == Fail::Open {
        return Err(ShieldError::RingsFailClosed);
    }
    let fresh = !settings.paths.state.exists();
    let mut lock = Some(owner::take(&settings)?);
    if settings.paths.link().exists() {
        return Err(ShieldError::LeftoverXdp { interface: settings.interface.clone() });
    }
    let paths = settings.paths.clone();
    begin(settings, file, &mut lock, threads.max(1)).inspect_err(|_| {
        // Whoever has the lock may remove what is there; what a process before has learned stays for the next one.
        if fresh && lock.is_some() {
            // The failure itself is what is told.
            let _ = paths.remove();
        }
    })
}

fn begin(
    settings: Settings,
    file: RuleFile,
    lock: &mut Option<Lock>,
    threads: usize,
) -> Result<Control<Ring>, ShieldError> {
    let mut notes = join(&settings, Datapath::Ring, false)?;
    let path = settings.paths.sources();
    let proof = kept_sources(&path).unwrap_or_else(|why| {
        notes.push(format!("all sources are challenged again: {} cannot be used: {why}", path.display()));
        None
    });
    let plane = Ring {
        engine: None,
        state: Arc::new(State::new(proof)?),
        cache: Cache::expecting(&file.rules.protected),
        counts: Arc::new((0..2 * threads).map(|_| Counts::default()).collect()),
        stop: Arc::default(),
        carriers: Vec::new(),
        indices: [0; 2],
        holds: Vec::new(),
        losses: Losses::default(),
        unkept: false,
        paths: settings.paths.clone(),
    };
    Control::begin(settings, file, plane, None, notes, lock)
}

/// Sources that an earlier process has saved; none: this is the first one.
fn kept_sources(path: &Path) -> Result<Option<SynProof>, String> {
    match fs::read(path) {
        Ok(bytes) => SynProof::read(&bytes).map(Some).ok_or_else(|| "it is damaged".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

impl Ring {
    /// Writes down the sources that have shown that they exist, if there is something new: at once, as the process may be killed. Returns why
    /// it cannot, the first time.
    fn keep_sources(&mut self) -> Option<String> {
        let bytes = self.state.proof().written()?;
        let why = write_whole(&self.paths.sources(), &bytes).err();
        let before = std::mem::replace(&mut self.unkept, why.is_some());
        why.filter(|_| !before).map(|why| format!("authenticated sources cannot be saved for the next process: {why}"))
    }

    fn carry(&mut self, engine: &Arc<RwLock<Arc<Engine>>>, settings: &Settings) -> Result<(), ShieldError> {
        let Some(pair) = &settings.between else { return Ok(()) };
        let [first, second] = pair.names().map(index);
        self.indices = [first?, second?];
        self.holds = pair.names().into_iter().map(StackHold::attach).collect::<Result<_, _>>()?;
        let threads = self.counts.len() / 2;
        for (number, from) in self.indices.into_iter().enumerate() {
            let mine = number * threads..(number + 1) * threads;
            let (engine, counts, stop) = (Arc::clone(engine), Arc::clone(&self.counts), Arc::clone(&self.stop));
            let carrier = Carrier::open(from, self.indices[1 - number], mine, engine, counts, stop)?;
            let started = thread::Builder::new().name(format!("ek-from-{number}")).spawn(move || carrier.run());
            self.carriers.push(started.map_err(ShieldError::Thread)?);
        }
        Ok(())
    }
}

impl DataPlane for Ring {
    type Ready = Ready;
    const OUTLIVES_PROCESS: bool = false;
    const SETS_PROMISCUOUS: bool = false;

    fn counting(&self) -> Counting {
        Counting::Threads(self.counts.len())
    }

    fn counts(&self, slots: usize) -> ShieldCounts {
        Sums::new(&self.counts).shield_counts(slots)
    }

    fn prepare(&mut self, next: &NextRules<'_>, counters: &mut Counters) -> Result<Ready, ShieldError> {
        let mut elsewhere = next.elsewhere.then(|| Cache::expecting(&next.file.rules.protected));
        let cache = elsewhere.as_mut().unwrap_or(&mut self.cache);
        let tables = compile::tables_after(next.rules, counters, next.now, cache)?;
        let writers = |watch: &WatchConfig| (0..self.counts.len()).map(|n| watch.writer(n)).collect();
        let watch = next.watch.as_ref().map(writers).transpose()?;
        Ok(Ready(Engine::new(tables, watch.unwrap_or_default(), Arc::clone(&self.state)), elsewhere))
    }

    fn put(
        &mut self,
        Ready(engine, cache): Ready,
        settings: &Settings,
        _memory: &SavedState,
        _before: &SavedState,
    ) -> Result<Option<String>, ShieldError> {
        let engine = Arc::new(engine);
        match &self.engine {
            Some(holding) => *holding.write().unwrap_or_else(PoisonError::into_inner) = engine,
            None => {
                let first = Arc::new(RwLock::new(engine));
                self.carry(&first, settings)?;
                self.engine = Some(first);
            }
        }
        if let Some(cache) = cache {
            self.cache = cache;
        }
        Ok(None)
    }

    fn check(&mut self, _: &str) -> Result<Vec<String>, ShieldError> {
        if !self.carriers.iter().any(JoinHandle::is_finished) {
            return Ok(Vec::new());
        }
        self.end()?;
        Err(ShieldError::Lacking("a thread that carries frames ended unexpectedly".to_owned()))
    }

    fn end(&mut self) -> Result<(), ShieldError> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = |carrier: JoinHandle<_>| carrier.join().unwrap_or_else(|_| Err(broke_off()));
        // Each is waited for, whatever became of the other.
        self.carriers.drain(..).map(ended).fold(Ok(()), Result::and)
    }

    fn status(&self, _: &Settings) -> PlaneStatus {
        PlaneStatus { mode: "packet rings".to_owned(), ..PlaneStatus::default() }
    }

    fn description(&self, _: &Settings) -> String {
        let threads = self.counts.len() / 2;
        format!("packet rings, threads in each direction: {threads}; if this process dies, nothing crosses")
    }
}

impl Upkeep for Ring {
    fn follow(control: &mut Control<Self>) -> Vec<String> {
        let totals = Sums::new(&control.plane.counts).totals();
        let mut news = control.plane.losses.news(&totals);
        news.extend(control.plane.keep_sources());
        news
    }

    fn warnings(control: &Control<Self>) -> Vec<String> {
        let Some(pair) = control.pair() else { return Vec::new() };
        let names = pair.names().into_iter().zip(control.plane.indices);
        names
            .filter_map(|(was, index)| name_of(index).filter(|now| now != was).map(|now| still_by(was, &now)))
            .collect()
    }
}

impl Drop for Ring {
    /// Without [`Control::stop`], what was set is put back here.
    fn drop(&mut self) {
        if !self.carriers.is_empty() {
            // Told by whoever starts it.
            let _ = self.end().and(self.paths.remove());
        }
    }
}
