//! A configuration built: the box, its settings, its readers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::{BoxSpec, Lab, TestBox, boxes::Napi};
use model::run::Sharing;
use port::{
    Group, PacketOptions, PacketSource, PlainReading, PortError, RingSource, Source, TapOptions, TapSource, WHOLE_FRAME,
};
use sys::packet::{Fanout, FanoutAlgorithm, RingLayout};

use super::{
    SweepError,
    plan::{Configuration, Cores, Reading, Side, Tweak},
};

/// How long a reader waits before it looks at its stop flag.
const TURN: Duration = Duration::from_millis(50);
/// The socket buffer of a plain socket: what a user gets who never heard of tuning (net.core.rmem_default).
const PLAIN_BUFFER_BYTES: u32 = 212_992;
/// The members of a fanout group, and the ring of each.
const RINGS: usize = 2;
const RING: RingLayout = RingLayout { block_bytes: 1 << 18, blocks: 64, retire_ms: 60, rx_hash: false, node: None };

/// A box ready for load.
pub(super) struct Bed {
    readers: Vec<Reader>,
    pub(super) made: TestBox,
}

/// Counts at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    offered: (Instant, u64),
    forwarded: (Instant, u64),
}

impl Counts {
    /// Offered and forwarded packets per second since `earlier`.
    pub(super) fn rates(&self, earlier: &Self) -> (f64, f64) {
        let rate = |now: (Instant, u64), then: (Instant, u64)| {
            now.1.saturating_sub(then.1) as f64 / now.0.duration_since(then.0).as_secs_f64().max(1e-9)
        };
        (rate(self.offered, earlier.offered), rate(self.forwarded, earlier.forwarded))
    }
}

impl Bed {
    pub(super) fn build(lab: &Lab, configuration: &Configuration, cores: &Cores) -> Result<Self, SweepError> {
        let napi = match cores.sharing() {
            Sharing::Apart => Napi::Threads(vec![cores.of_box]),
            Sharing::Inline => Napi::Inline,
        };
        let made = TestBox::build(lab, &BoxSpec { napi: napi.clone(), ..BoxSpec::new(configuration.kind.clone()) })?;
        let (namespace, entry) = made.entry();
        for tweak in &configuration.tweaks {
            match tweak {
                Tweak::Sysctl(name, value) => namespace.set_sysctl(name, value)?,
                Tweak::Feature { side, name, on } => {
                    let exit = made.inside().and_then(|i| i.exit.as_ref()).unwrap_or(entry);
                    let interface = if *side == Side::Entry { entry } else { exit };
                    namespace.set_feature(&interface.name, name, *on)?;
                }
                Tweak::Rules(rules) => made.load_rules(rules)?,
            }
        }
        let cpu = cores.of_box;
        let options = PacketOptions {
            interface: entry.name.clone(),
            filter: Vec::new(),
            snaplen: WHOLE_FRAME,
            promiscuous: true,
            ignore_outgoing: true,
        };
        let readers = match configuration.reading {
            Reading::Forwarded => Vec::new(),
            Reading::Packet => {
                let plain = PlainReading { batch: 1, buffer_bytes: PLAIN_BUFFER_BYTES };
                vec![Reader::start(namespace.run(|| PacketSource::open(&options, plain))??, cpu)]
            }
            Reading::RingFanout => {
                let fanout =
                    Fanout { algorithm: FanoutAlgorithm::Hash, defrag: false, rollover: false, ignore_outgoing: true };
                let group = Group { fanout, members: RINGS, program: None };
                let sources = namespace.run(|| RingSource::open_group(&options, RING, &group))??;
                sources.into_iter().map(|s| Reader::start(s, cpu)).collect()
            }
            Reading::Tap => {
                let mut options = TapOptions::new(&entry.name);
                options.promiscuous = true;
                let sources = namespace.run(|| TapSource::open(&options, 1))??;
                sources.into_iter().map(|s| Reader::start(s, cpu)).collect()
            }
        };
        if let (Napi::Threads(cpus), false) = (&napi, readers.is_empty()) {
            // An XDP program that comes may have made new threads.
            namespace.thread_napi(&entry.name, cpus)?;
        }
        Ok(Self { readers, made })
    }

    /// Whether frames end behind the box.
    pub(super) fn has_receiver(&self) -> bool {
        self.made.receiver().is_some()
    }

    pub(super) fn counts(&self) -> Result<Counts, SweepError> {
        let counters = self.made.counters()?;
        let offered = (counters.sender.at, counters.offered());
        let forwarded = match &self.readers[..] {
            readers @ [_, ..] => (Instant::now(), readers.iter().map(|r| r.count.load(Ordering::Relaxed)).sum()),
            [] => (counters.receiver.map_or(counters.entry.at, |r| r.at), counters.forwarded()),
        };
        Ok(Counts { offered, forwarded })
    }

    /// Ends the readers, and says whether one failed on the way.
    pub(super) fn finish(self) -> Result<(), SweepError> {
        self.readers.into_iter().try_for_each(Reader::finish)
    }
}

/// A thread that counts the frames of a source.
struct Reader {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), SweepError>>>,
}

impl Reader {
    fn start<S: Source + 'static>(source: S, cpu: u32) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = thread::spawn(move || {
            sys::affinity::pin_current_thread(cpu).map_err(|source| SweepError::Pin { what: "reader", cpu, source })?;
            Ok(read(source, &stopped, &counted)?)
        });
        Self { stop, count, thread: Some(thread) }
    }

    fn finish(mut self) -> Result<(), SweepError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(ended) => ended.map_err(|_| SweepError::Panicked("reader"))?,
            None => Ok(()),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read<S: Source>(mut source: S, stop: &AtomicBool, count: &AtomicU64) -> Result<(), PortError> {
    let mut total = 0;
    while !stop.load(Ordering::Relaxed) {
        total += source.count(TURN)?.packets;
        count.store(total, Ordering::Relaxed);
    }
    Ok(())
}
