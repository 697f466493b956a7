//! The readers of a stage: sources opened in the server's namespace, each counted by a thread on a core of its own.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bpf::XdpMode;
use model::{Classified, ErrorClass, Loss};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use port::{
    Group, PacketOptions, PacketSource, PlainReading, PortError, RingSource, Source, TapOptions, TapSource,
    WHOLE_FRAME, XdpOptions, XdpSource,
};
use sys::packet::{Fanout, FanoutAlgorithm, RingLayout};

use super::plan::{Backend, StagePlan};

/// How long a reader waits before it looks at its stop flag.
const TURN: Duration = Duration::from_millis(50);
/// The socket buffer of a plain socket: what a user gets who never heard of tuning (net.core.rmem_default).
const PLAIN_BUFFER_BYTES: u32 = 212_992;
/// The ring of each member.
const RING: RingLayout = RingLayout { block_bytes: 1 << 18, blocks: 128, retire_ms: 60, rx_hash: false, node: None };

/// The frames that one reader has counted, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// A reader that could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadersError {
    /// The port failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The thread could not be pinned.
    #[error("cannot pin a reader to CPU {cpu}: {source}; name other CPUs with --cpus")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The thread panicked.
    #[error("a reader panicked")]
    Panicked,
}

impl Classified for ReadersError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Port(e) => e.class(),
            Self::Pin { .. } => ErrorClass::Lacking,
            Self::Panicked => ErrorClass::Internal,
        }
    }
}

/// The running readers of a stage.
#[derive(Debug)]
pub(crate) struct Readers {
    stop: Arc<AtomicBool>,
    counts: Arc<Vec<Count>>,
    threads: Vec<JoinHandle<Result<u64, ReadersError>>>,
    mode: Option<String>,
    place: &'static str,
}

/// What the readers of a stage got.
#[derive(Debug)]
pub(crate) struct ReadersResult {
    /// Frames that reached a reader.
    pub delivered: u64,
    /// Frames that the capture point lost.
    pub losses: Vec<Loss>,
}

impl Readers {
    /// Opens the sources of `stage` on `interface` in the calling thread's namespace and starts a thread for each.
    pub(crate) fn start(stage: &StagePlan, interface: &str) -> Result<Self, PortError> {
        let readers = stage.reader_cpus.len();
        let group = Group {
            fanout: Fanout { algorithm: FanoutAlgorithm::Cpu, defrag: false, rollover: false, ignore_outgoing: true },
            members: readers,
            program: None,
        };
        let packet = PacketOptions {
            interface: interface.to_owned(),
            filter: Vec::new(),
            snaplen: WHOLE_FRAME,
            promiscuous: true,
            ignore_outgoing: true,
        };
        let plain = PlainReading { batch: 1, buffer_bytes: PLAIN_BUFFER_BYTES };
        Ok(match (stage.backend, readers) {
            (Backend::Packet, 1) => {
                Self::spawn(stage, vec![PacketSource::open(&packet, plain)?], None, "socket buffer full")
            }
            (Backend::Packet, _) => {
                Self::spawn(stage, PacketSource::open_group(&packet, plain, &group)?, None, "socket buffers full")
            }
            (Backend::Ring, 1) => Self::spawn(stage, vec![RingSource::open(&packet, RING)?], None, "ring full"),
            (Backend::Ring, _) => {
                Self::spawn(stage, RingSource::open_group(&packet, RING, &group)?, None, "rings full")
            }
            (Backend::Tap | Backend::TapConsume, _) => {
                let mut options = TapOptions::new(interface);
                options.promiscuous = true;
                options.consume = stage.backend == Backend::TapConsume;
                let sources = TapSource::open(&options, readers)?;
                let mode = sources.first().map(|s| format!("XDP {}", s.mode()));
                Self::spawn(stage, sources, mode, "shared memory full (the reader was too slow)")
            }
            (Backend::Xdp, _) => {
                let mut options = XdpOptions::new(interface);
                options.promiscuous = true;
                let sources = XdpSource::open(&options, readers)?;
                let copy = |s: &XdpSource| if s.is_zero_copy() { "zero-copy" } else { "copy" };
                let mode = sources.first().map(|s| match s.mode() {
                    XdpMode::Native => format!("XDP native, {}", copy(s)),
                    other => format!("XDP {other}, {}", copy(s)),
                });
                Self::spawn(stage, sources, mode, "AF_XDP queue full (the reader was too slow)")
            }
        })
    }

    fn spawn<S: Source + 'static>(
        stage: &StagePlan,
        sources: Vec<S>,
        mode: Option<String>,
        place: &'static str,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<Vec<Count>> = Arc::new(sources.iter().map(|_| Count::default()).collect());
        let threads = sources
            .into_iter()
            .enumerate()
            .map(|(i, source)| {
                let (stop, counts) = (Arc::clone(&stop), Arc::clone(&counts));
                let cpu = stage.reader_cpus[i % stage.reader_cpus.len()];
                thread::spawn(move || {
                    pin(cpu).map_err(|source| ReadersError::Pin { cpu, source })?;
                    Ok(read(source, &stop, &counts[i].0)?)
                })
            })
            .collect();
        Self { stop, counts, threads, mode, place }
    }

    /// How the XDP program was really attached; none for AF_PACKET.
    pub(crate) fn mode(&self) -> Option<String> {
        self.mode.clone()
    }

    /// The frames that all readers have counted so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.counts.iter().map(|c| c.0.load(Ordering::Relaxed)).sum()
    }

    /// Ends the readers once nothing more arrives, and adds up what they got.
    pub(crate) fn finish(self) -> Result<ReadersResult, ReadersError> {
        let mut seen = self.delivered();
        loop {
            thread::sleep(4 * TURN);
            let now = self.delivered();
            if now == seen {
                break;
            }
            seen = now;
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut dropped = 0;
        for thread in self.threads {
            dropped += thread.join().map_err(|_| ReadersError::Panicked)??;
        }
        let delivered = self.counts.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        Ok(ReadersResult { delivered, losses: vec![Loss { place: self.place.to_owned(), packets: dropped }] })
    }
}

/// Counts frames until told to stop; gives how many were lost for want of room.
fn read<S: Source>(mut source: S, stop: &AtomicBool, count: &AtomicU64) -> Result<u64, PortError> {
    let mut total = 0;
    while !stop.load(Ordering::Relaxed) {
        total += source.count(TURN)?.packets;
        count.store(total, Ordering::Relaxed);
    }
    Ok(source.stats()?.dropped)
}

/// Pins the calling thread to one CPU.
pub(crate) fn pin(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(Into::into)
}
