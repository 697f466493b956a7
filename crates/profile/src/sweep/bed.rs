//! A configuration built: the box, its settings, its reader.

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
use port::{PacketOptions, PacketSource, PlainReading, PortError, Source, TapOptions, TapSource, WHOLE_FRAME};

use super::{
    SweepError,
    plan::{Configuration, Cores, Reading, Side, Tweak},
};

/// How long a reader waits before it looks at its stop flag.
const TURN: Duration = Duration::from_millis(50);
/// The socket buffer of a plain socket: what a user gets who never heard of tuning (net.core.rmem_default).
const PLAIN_BUFFER_BYTES: u32 = 212_992;

/// A box ready for load.
pub(super) struct Bed {
    reader: Option<Reader>,
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
        let reader = match configuration.reading {
            Reading::Forwarded => None,
            Reading::Packet => {
                let options = PacketOptions {
                    interface: entry.name.clone(),
                    filter: Vec::new(),
                    snaplen: WHOLE_FRAME,
                    promiscuous: true,
                    ignore_outgoing: true,
                };
                let plain = PlainReading { batch: 1, buffer_bytes: PLAIN_BUFFER_BYTES };
                Some(Reader::start(namespace.run(|| PacketSource::open(&options, plain))??, cpu))
            }
            Reading::Tap => {
                let mut options = TapOptions::new(&entry.name);
                options.promiscuous = true;
                let source = namespace.run(|| TapSource::open(&options, 1))??.into_iter().next();
                source.map(|s| Reader::start(s, cpu))
            }
        };
        if let (Napi::Threads(cpus), Some(_)) = (&napi, &reader) {
            // An XDP program that comes may have made new threads.
            namespace.thread_napi(&entry.name, cpus)?;
        }
        Ok(Self { reader, made })
    }

    /// Whether frames end behind the box.
    pub(super) fn has_receiver(&self) -> bool {
        self.made.receiver().is_some()
    }

    pub(super) fn counts(&self) -> Result<Counts, SweepError> {
        let counters = self.made.counters()?;
        let offered = (counters.sender.at, counters.offered());
        let forwarded = match &self.reader {
            Some(reader) => (Instant::now(), reader.count.load(Ordering::Relaxed)),
            None => (counters.receiver.map_or(counters.entry.at, |r| r.at), counters.forwarded()),
        };
        Ok(Counts { offered, forwarded })
    }

    /// Ends the reader, and says whether it failed on the way.
    pub(super) fn finish(mut self) -> Result<(), SweepError> {
        self.reader.take().map_or(Ok(()), Reader::finish)
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
