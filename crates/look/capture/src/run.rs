//! The readers at work: one thread per source, from the first packet to the last.

mod links;
mod report;

use std::{
    fmt,
    io::{self, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};
use port::{Frame, PortError, Source};

use crate::{
    open::AnySource,
    output::{Chunk, Output, OutputError},
    pcapng,
    text::{Shown, Writer},
};

use links::Links;
pub use links::Notice;
use report::Slot;
pub use report::{ReaderStats, Report};

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// Encoded bytes that a reader gathers before it writes.
const CHUNK_BYTES: usize = 256 << 10;
/// Time for which encoded packets may wait in a reader for more of them.
const FLUSH_PERIOD: Duration = Duration::from_millis(200);
/// Time for which a reader waits for packets before it looks at the stop flag.
const SIGNAL_PERIOD: Duration = Duration::from_millis(50);

/// A capture that ended by a failure.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(
        "cannot run a reader on CPU {cpu}: {source}: it is offline, or a cpuset keeps this process from it; choose others with --cpus \
         (`taskset -p $$` shows those of your shell)"
    )]
    Pin { cpu: u32, source: nix::Error },
    #[error("cannot start a reader: {0}")]
    Spawn(#[source] io::Error),
    #[error("a reader of the capture panicked: this is a fault of evenkeel")]
    Panicked,
}

model::classified!(RunError: Lacking, Internal: Panicked; within: Port Output);

/// Destination of the packets.
#[derive(Debug)]
pub enum Sink {
    /// Nothing but a count.
    Count,
    Pcapng {
        output: Box<Output>,
        /// The number in the file of each reader's interface; empty: 0.
        interfaces: Vec<u32>,
    },
    /// pcapng that is encoded and dropped, for trials.
    Nowhere,
    /// A line of text for each, on standard output.
    Text {
        shown: Shown,
        /// The link type (LINKTYPE_…) of each reader's interface, and its name where lines are to tell it; of one for all.
        interfaces: Vec<(u16, Option<String>)>,
    },
}

/// Limits of a capture, and the bytes that are kept of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// After so many packets.
    pub packets: Option<u64>,
    pub duration: Option<Duration>,
    /// Bytes kept of each packet.
    pub snaplen: u32,
    /// Time for which a backend may hold packets back: the retire time-out of a ring.
    pub held_back: Duration,
}

/// State of a capture under way, for whoever watches it.
pub enum Seen<'a> {
    /// Counts of each reader at this time since the start, once a second.
    Second(Duration, &'a [ReaderStats]),
    /// A change of an interface.
    Notice(Notice),
    /// About a hundred times a second: the counts of each reader can be had.
    Moment(&'a dyn Fn() -> Vec<ReaderStats>),
}

impl fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Second(elapsed, readers) => f.debug_tuple("Second").field(elapsed).field(readers).finish(),
            Self::Notice(notice) => f.debug_tuple("Notice").field(notice).finish(),
            Self::Moment(_) => f.write_str("Moment"),
        }
    }
}

enum OpenSink {
    Count,
    Pcapng { output: Mutex<Box<Output>>, interfaces: Vec<u32> },
    Nowhere,
    Text { shown: Shown, interfaces: Vec<(u16, Option<String>)> },
}

/// State that the readers share. Nothing of it is written per packet, except `left` where a number of packets was asked for.
struct Shared<'a> {
    start: Instant,
    sink: OpenSink,
    limits: Limits,
    stop: &'a AtomicBool,
    ended: AtomicBool,
    closed: AtomicBool,
    left: AtomicU64,
    slots: Vec<Slot>,
    links: Mutex<Links>,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// Takes up to `n` of the packets that are still wanted.
    fn claim(&self, n: u64) -> u64 {
        if self.limits.packets.is_none() {
            return n;
        }
        let mut left = self.left.load(Ordering::Relaxed);
        let took = loop {
            let took = left.min(n);
            match self.left.compare_exchange_weak(left, left - took, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break took,
                Err(is) => left = is,
            }
        };
        if took < n || self.left.load(Ordering::Relaxed) == 0 {
            self.ended.store(true, Ordering::Relaxed);
        }
        took
    }

    fn dropped(&self) -> u64 {
        self.slots.iter().map(|s| s.dropped.load(Ordering::Relaxed)).sum()
    }

    fn write(&self, chunk: &mut Chunk) -> Result<(), RunError> {
        if chunk.bytes.is_empty() {
            return Ok(());
        }
        let result = match &self.sink {
            OpenSink::Count | OpenSink::Nowhere => Ok(()),
            OpenSink::Pcapng { output, .. } => lock(output).write(chunk, self.dropped()),
            OpenSink::Text { .. } => text(&chunk.bytes),
        };
        chunk.clear();
        match result {
            Err(OutputError::Closed(_) | OutputError::Enough) => {
                self.closed.store(true, Ordering::Relaxed);
                self.ended.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

fn lock(output: &Mutex<Box<Output>>) -> MutexGuard<'_, Box<Output>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(lines: &[u8]) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines).and_then(|()| stdout.flush()).map_err(|source| match source.kind() {
        io::ErrorKind::BrokenPipe => OutputError::Closed(source),
        _ => OutputError::Write { path: "standard output".into(), kept: 0, source },
    })
}

/// Reads from `sources`, each on its CPU, until `stop`, a limit, or a failure. An interface that goes down is waited for; one that is removed ends
/// its own readers, and is the failure of the capture only if it was the last.
pub fn run(
    sources: Vec<(AnySource, Option<u32>)>,
    sink: Sink,
    limits: Limits,
    stop: &AtomicBool,
    mut watch: impl FnMut(Seen<'_>),
) -> Report {
    let cpus: Vec<Option<u32>> = sources.iter().map(|(_, cpu)| *cpu).collect();
    let start = Instant::now();
    let shared = Shared {
        start,
        sink: match sink {
            Sink::Count => OpenSink::Count,
            Sink::Pcapng { output, interfaces } => OpenSink::Pcapng { output: Mutex::new(output), interfaces },
            Sink::Nowhere => OpenSink::Nowhere,
            Sink::Text { shown, interfaces } => OpenSink::Text { shown, interfaces },
        },
        limits,
        stop,
        ended: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        left: AtomicU64::new(limits.packets.unwrap_or(u64::MAX)),
        slots: sources.iter().map(|_| Slot::default()).collect(),
        links: Mutex::default(),
    };
    let notices = |watch: &mut dyn FnMut(Seen<'_>)| {
        let new = std::mem::take(&mut shared.links().notices);
        new.into_iter().for_each(|notice| watch(Seen::Notice(notice)));
    };
    let snapshot = || -> Vec<ReaderStats> { shared.slots.iter().zip(&cpus).map(|(s, cpu)| s.read(*cpu)).collect() };
    let (failure, elapsed) = thread::scope(|scope| {
        let mut failure = None;
        let mut end = None;
        let mut readers = Vec::with_capacity(sources.len());
        for (index, (source, cpu)) in sources.into_iter().enumerate() {
            let shared = &shared;
            let work = move || {
                let result = dispatch(source, cpu, shared, index);
                match &result {
                    Err(RunError::Port(error @ (PortError::Vanished { .. } | PortError::TakenOff { .. }))) => {
                        shared.ended(error);
                    }
                    Err(_) => shared.ended.store(true, Ordering::Relaxed),
                    Ok(()) => {}
                }
                result
            };
            match thread::Builder::new().name(format!("ek-read-{index}")).spawn_scoped(scope, work) {
                Ok(reader) => readers.push(reader),
                Err(e) => {
                    shared.ended.store(true, Ordering::Relaxed);
                    failure = Some(RunError::Spawn(e));
                    break;
                }
            }
        }
        let mut next = Duration::from_secs(1);
        while readers.iter().any(|r| !r.is_finished()) {
            let elapsed = start.elapsed();
            if limits.duration.is_some_and(|d| elapsed >= d) {
                shared.ended.store(true, Ordering::Relaxed);
            }
            if shared.is_over() {
                end = end.or(Some(elapsed));
            } else if elapsed >= next {
                next += Duration::from_secs(1);
                watch(Seen::Second(elapsed, &snapshot()));
            }
            watch(Seen::Moment(&snapshot));
            if readers.iter().any(|r| !r.is_finished()) {
                notices(&mut watch);
            }
            thread::sleep(Duration::from_millis(10));
        }
        let (mut removed, mut rest) = (None, 0);
        for reader in readers {
            match reader.join().unwrap_or(Err(RunError::Panicked)) {
                Err(RunError::Port(error @ (PortError::Vanished { .. } | PortError::TakenOff { .. }))) => {
                    removed = removed.or(Some(error.into()));
                }
                Err(other) => failure = failure.or(Some(other)),
                Ok(()) => rest += 1,
            }
        }
        // With interfaces left the removal was a notice.
        if rest == 0 {
            failure = failure.or(removed);
        } else {
            notices(&mut watch);
        }
        (failure, end.unwrap_or_else(|| start.elapsed()))
    });
    let readers = snapshot();
    let dropped = shared.dropped();
    let mut report = Report { readers, elapsed, files: 0, closed: shared.closed.load(Ordering::Relaxed), failure };
    if let OpenSink::Pcapng { output, .. } = shared.sink {
        let mut output = output.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.files = output.files();
        match output.finish(dropped) {
            Err(OutputError::Closed(_)) => report.closed = true,
            Err(e) => report.failure = report.failure.or(Some(e.into())),
            Ok(()) => {}
        }
    }
    report
}

fn dispatch(source: AnySource, cpu: Option<u32>, shared: &Shared<'_>, reader: usize) -> Result<(), RunError> {
    let slot = &shared.slots[reader];
    if let Some(cpu) = cpu {
        pin(cpu).map_err(|source| RunError::Pin { cpu, source })?;
    }
    let result = match source {
        AnySource::Packet(source) => work(source, shared, reader),
        AnySource::Ring(source) => work(source, shared, reader),
        AnySource::Xdp(source) => work(source, shared, reader),
        AnySource::Tap(source) => work(source, shared, reader),
        AnySource::FilteredPacket(source) => work(source, shared, reader),
        AnySource::FilteredRing(source) => work(source, shared, reader),
    };
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) {
        let ns = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1000;
        slot.cpu_ns.store(ns(usage.user_time()) + ns(usage.system_time()), Ordering::Relaxed);
    }
    result
}

fn pin(cpu: u32) -> nix::Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu as usize)?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
}

fn work<S: Source>(source: S, shared: &Shared<'_>, reader: usize) -> Result<(), RunError> {
    let (snaplen, slot) = (shared.limits.snaplen, &shared.slots[reader]);
    match &shared.sink {
        OpenSink::Count => count(source, shared, slot),
        OpenSink::Nowhere => encode(source, shared, slot, |chunk, frame| pcapng::packet(chunk, frame, 0, snaplen)),
        OpenSink::Pcapng { interfaces, .. } => {
            let interface = interfaces.get(reader).copied().unwrap_or(0);
            encode(source, shared, slot, |chunk, frame| pcapng::packet(chunk, frame, interface, snaplen))
        }
        OpenSink::Text { shown, interfaces } => {
            let of = interfaces.get(reader).or(interfaces.first()).cloned();
            let (link_type, name) = of.unwrap_or((ETHERNET, None));
            let mut writer = Writer::new(*shown, link_type, name);
            encode(source, shared, slot, |chunk, frame| writer.packet(chunk, frame))
        }
    }
}

/// Publishes the counters of a source.
fn publish<S: Source>(source: &mut S, slot: &Slot) -> Result<(), RunError> {
    let stats = source.stats()?;
    slot.dropped.store(stats.dropped, Ordering::Relaxed);
    slot.filtered_out.store(stats.filtered_out, Ordering::Relaxed);
    slot.missed.store(stats.missed, Ordering::Relaxed);
    slot.reattached.store(stats.reattached, Ordering::Relaxed);
    slot.freezes.store(stats.freezes, Ordering::Relaxed);
    Ok(())
}

/// The end of a reader's life: first nothing new is let in, then what was received is read, all of it: a buffer has an end.
#[derive(Default)]
struct Closing {
    shut: bool,
    noted: bool,
    /// The time of the last packet.
    taken: Duration,
}

impl Closing {
    /// The time to wait for packets; none at the end of the capture.
    fn timeout<S: Source>(
        &mut self,
        source: &mut S,
        shared: &Shared<'_>,
        slot: &Slot,
    ) -> Result<Option<Duration>, RunError> {
        if !shared.is_over() {
            return Ok(Some(SIGNAL_PERIOD));
        }
        self.note(source, shared, slot);
        if shared.closed.load(Ordering::Relaxed) || shared.left.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        if !self.shut {
            source.close_intake()?;
            self.shut = true;
        }
        Ok(Some(shared.limits.held_back))
    }

    fn took(&mut self, packets: u64, shared: &Shared<'_>) {
        if packets > 0 {
            self.taken = shared.start.elapsed();
        }
    }

    /// Notes once, at the end, what this reader took and in which time.
    fn note<S: Source>(&mut self, source: &S, shared: &Shared<'_>, slot: &Slot) {
        if !std::mem::replace(&mut self.noted, true) {
            let span = span(self.taken, shared.start.elapsed(), source.holds_back());
            slot.span_ns.store(span.as_nanos() as u64, Ordering::Relaxed);
            slot.in_time.store(slot.packets.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// The time whose packets a reader has seen at `end`: up to when it took some last, since a block that is not full yet keeps later ones back; but
/// with none for as long as they can be kept back, there were none.
fn span(taken: Duration, end: Duration, holds_back: Duration) -> Duration {
    taken.max(end.saturating_sub(holds_back))
}

fn count<S: Source>(mut source: S, shared: &Shared<'_>, slot: &Slot) -> Result<(), RunError> {
    let mut closing = Closing::default();
    let mut next = Instant::now() + FLUSH_PERIOD;
    let (mut packets, mut received, mut bytes) = (0, 0, 0);
    let mut work = || loop {
        let Some(timeout) = closing.timeout(&mut source, shared, slot)? else { return Ok(()) };
        let was_down = source.is_down();
        let counted = shared.unless_down(source.count(timeout))?;
        if was_down && !source.is_down() {
            shared.up(source.interface());
        }
        if counted.packets == 0 && closing.shut {
            return Ok(());
        }
        received += counted.packets;
        packets += shared.claim(counted.packets);
        closing.took(counted.packets, shared);
        slot.received.store(received, Ordering::Relaxed);
        slot.packets.store(packets, Ordering::Relaxed);
        match counted.bytes {
            Some(n) => bytes += n,
            None => slot.bytes_unknown.store(true, Ordering::Relaxed),
        }
        slot.bytes.store(bytes, Ordering::Relaxed);
        let now = Instant::now();
        if now >= next {
            next = now + FLUSH_PERIOD;
            publish(&mut source, slot)?;
        }
    };
    let result = work();
    closing.note(&source, shared, slot);
    publish(&mut source, slot).and(result)
}

fn encode<S: Source>(
    mut source: S,
    shared: &Shared<'_>,
    slot: &Slot,
    mut encode: impl FnMut(&mut Vec<u8>, &Frame<'_>),
) -> Result<(), RunError> {
    let mut closing = Closing::default();
    let mut next = Instant::now() + FLUSH_PERIOD;
    // A packet more than a chunk.
    let mut chunk = Chunk::with_capacity(2 * CHUNK_BYTES);
    let limited = shared.limits.packets.is_some();
    let (mut packets, mut reached, mut bytes) = (0u64, 0u64, 0u64);
    let mut work = || loop {
        let Some(timeout) = closing.timeout(&mut source, shared, slot)? else { return Ok(()) };
        let mut written = Ok(());
        let was_down = source.is_down();
        let received = source.receive(timeout, |frame| {
            if limited && shared.claim(1) == 0 {
                return;
            }
            packets += 1;
            bytes += u64::from(frame.wire_len);
            encode(&mut chunk.bytes, &frame);
            chunk.note(frame.timestamp_ns);
            // A ring may hand over many MB at once: they go out while they are in the cache.
            if chunk.bytes.len() >= CHUNK_BYTES && written.is_ok() {
                written = shared.write(&mut chunk);
            }
        });
        let n = written.and(shared.unless_down(received).map_err(RunError::from))?;
        if was_down && !source.is_down() {
            shared.up(source.interface());
        }
        if n == 0 && closing.shut {
            return Ok(());
        }
        reached += n as u64;
        closing.took(n as u64, shared);
        slot.received.store(reached, Ordering::Relaxed);
        slot.packets.store(packets, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let due = now >= next;
        if due {
            next = now + FLUSH_PERIOD;
            publish(&mut source, slot)?;
        }
        if due || n == 0 {
            shared.write(&mut chunk)?;
        }
    };
    let result = work();
    slot.packets.store(packets, Ordering::Relaxed);
    slot.bytes.store(bytes, Ordering::Relaxed);
    closing.note(&source, shared, slot);
    let published = publish(&mut source, slot);
    let written = shared.write(&mut chunk);
    result.and(written).and(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_still_fills_is_no_time_without_packets() {
        let ms = Duration::from_millis;
        assert_eq!(span(ms(499), ms(500), ms(0)), ms(500));
        assert_eq!(span(ms(440), ms(500), ms(120)), ms(440));
        assert_eq!(span(ms(100), ms(500), ms(120)), ms(380), "then there were none");
        assert_eq!(span(ms(0), ms(100), ms(120)), ms(0));
    }
}
