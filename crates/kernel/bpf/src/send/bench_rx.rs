//! The bench's receiver on a port: counts units, tells duplicates, reordering and loss apart, and measures delays.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sys::map_mmap::SharedMemory;
use wire::Mac;

use crate::{
    bytes::word64,
    chain::AtEnd,
    link::{XdpError, XdpMode},
    program::{Program, to_io},
    skel::bench_rx::{
        BenchRxSkelBuilder,
        types::{bench_count, bench_histogram, bench_shared},
    },
};

pub use crate::send::bench_clock::{ClockCost, clock};

const PROGRAM: Program = Program("ek_bench_rx");
/// No tag has more than 16 bits.
const NO_TAG: u32 = 1 << 16;
/// BENCH_SUB_BITS of src/send/bench_rx.bpf.c; the test of the histogram holds the two together.
const SUB_BITS: u32 = 6;
/// BENCH_SLOTS there.
const SLOTS: u32 = 4;
/// The most fragments of a unit.
pub const FRAGMENTS_MAX: u32 = 64;
/// The most flows of a direction; with fragments a quarter of it.
pub const FLOWS_MAX: u32 = 1 << 24;

const BUCKETS: usize = (size_of::<bench_histogram>() - offset_of!(bench_histogram, buckets)) / 8;
const ROUND_TRIPS: usize = (size_of::<bench_shared>() - offset_of!(bench_shared, round_trips)) / 8;

const _: () = assert!(BUCKETS == 29 << SUB_BITS && ROUND_TRIPS == 1024 && size_of::<bench_count>() == 112);

/// The way back of probes that arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The source address of the frame that goes back: the port's own.
    pub source: Mac,
    /// The destination address of the frame that goes back: the box's.
    pub destination: Mac,
}

/// The frames that a receiver expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchRxConfig {
    /// The tag of the direction that ends here; the same with the lowest bit changed is the other one's.
    pub tag: u16,
    /// The tag of the trial before, if there was one: its frames are told from strays.
    pub before: Option<u16>,
    /// Flows of that direction, 1 to [`FLOWS_MAX`].
    pub flows: u32,
    /// Fragments of each unit, 1 to [`FRAGMENTS_MAX`]. All but the last are of one length. A datagram that comes whole counts, too; where 1
    /// is expected, a fragment is a stray.
    pub fragments: u32,
    /// Send probes back; none ends them here.
    pub echo: Option<Echo>,
    /// Every unit is stamped: keep the longest time between two arrivals.
    pub silence: bool,
    /// Keep when a gap in a flow's sequence was found last: a reading of the clock for each gap.
    pub gap_times: bool,
}

impl Default for BenchRxConfig {
    /// A single flow of whole units with the tag 0.
    fn default() -> Self {
        Self { tag: 0, before: None, flows: 1, fragments: 1, echo: None, silence: false, gap_times: false }
    }
}

/// The arrivals since the trial began, over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BenchRxCounts {
    /// Frames of this direction's units, probes not among them.
    pub frames: u64,
    /// Different units; of datagrams those that came whole.
    pub units: u64,
    /// Units that came once more; of datagrams by their first fragment.
    pub duplicated: u64,
    /// Units that came after a later one of their flow, once each (RFC 4737, type-P-reordered). They are among `units`.
    pub reordered: u64,
    /// Units so late (64 units of their flow or more; of datagrams 4) that it cannot be told whether they are duplicates.
    pub stale: u64,
    /// Datagrams of which some fragments came, but not all so far.
    pub incomplete: u64,
    /// Units of the other direction, in frames: the box sent them back to where they came from.
    pub looped: u64,
    /// Frames that are not of this trial; they passed to the stack.
    pub stray: u64,
    /// Frames of the trial before, of either direction; they end here.
    pub leftover: u64,
    /// Different probes of the other direction that came back.
    pub probes_returned: u64,
    /// Probes of this direction that were sent back.
    pub probes_echoed: u64,
    /// CLOCK_MONOTONIC when a gap in a flow's sequence was found last, in nanoseconds: at the first later unit of that flow. None without
    /// one, or without `gap_times`.
    pub last_gap_ns: Option<u64>,
    /// The longest time between two arrivals, in nanoseconds; none before two, or without `silence`.
    pub longest_silence_ns: Option<u64>,
}

/// Delays as the program counted them: 64 buckets for each power of two of nanoseconds, so that a bucket is at most 1.6 % wide; all beyond 17 s
/// are in the last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BenchDelays {
    pub samples: u64,
    /// Sum of the delays, in nanoseconds.
    pub sum_ns: u64,
    /// The least; 0 without samples.
    pub min_ns: u64,
    pub max_ns: u64,
    /// Samples of each bucket.
    pub buckets: Vec<u64>,
}

impl BenchDelays {
    /// The least delay of bucket `i`, in nanoseconds.
    pub fn bucket_ns(i: usize) -> u64 {
        let (halvings, left) = (i >> SUB_BITS, i & ((1 << SUB_BITS) - 1));
        match halvings.checked_sub(1) {
            None => left as u64,
            Some(shift) => ((left | 1 << SUB_BITS) as u64) << shift,
        }
    }

    fn add(&mut self, raw: &[u8]) {
        let word = |offset| word64(raw, offset);
        let samples = word(offset_of!(bench_histogram, samples));
        self.buckets.resize(BUCKETS, 0);
        if samples == 0 {
            return;
        }
        let min_ns = word(offset_of!(bench_histogram, min_ns));
        self.min_ns = if self.samples == 0 { min_ns } else { self.min_ns.min(min_ns) };
        self.max_ns = self.max_ns.max(word(offset_of!(bench_histogram, max_ns)));
        self.samples += samples;
        self.sum_ns += word(offset_of!(bench_histogram, sum_ns));
        for (i, bucket) in self.buckets.iter_mut().enumerate() {
            *bucket += word(offset_of!(bench_histogram, buckets) + 8 * i);
        }
    }
}

/// The loaded receiver, on an interface once attached; off again when dropped.
#[derive(Debug)]
pub struct BenchReceiver {
    link: Option<AtEnd>,
    /// Units may have several frames.
    fragments: bool,
    program: OwnedFd,
    shared: SharedMemory,
    counts: MapHandle,
    delays: MapHandle,
    ipdv: MapHandle,
}

impl BenchReceiver {
    /// Loads a receiver and puts it on `interface` of this thread's namespace.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for counts out of bounds; what [`AtEnd::attach`] refuses.
    pub fn attach(interface: &str, mode: XdpMode, config: &BenchRxConfig) -> Result<Self, XdpError> {
        let mut receiver = Self::load(config)?;
        receiver.link = Some(AtEnd::attach(receiver.program.as_fd(), PROGRAM, interface, mode)?);
        Ok(receiver)
    }

    /// Loads a receiver without an interface, for [`BenchReceiver::try_frame`].
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for counts out of bounds.
    pub fn load(config: &BenchRxConfig) -> Result<Self, XdpError> {
        let BenchRxConfig { tag, before, flows, fragments, echo, silence, gap_times } = *config;
        let flows_max = if fragments > 1 { FLOWS_MAX / SLOTS } else { FLOWS_MAX };
        if !(1..=flows_max).contains(&flows) || !(1..=FRAGMENTS_MAX).contains(&fragments) {
            return Err(XdpError::setting(format!(
                "a receiver tells 1 to {flows_max} flows and 1 to {FRAGMENTS_MAX} fragments of a datagram apart, not {flows} flows of \
                 {fragments} fragments"
            )));
        }
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<BenchRxSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.bench_flow_count = flows;
            knobs.bench_fragment_count = fragments;
            knobs.bench_all_fragments = u64::MAX >> (64 - fragments);
            knobs.bench_silence = silence;
            knobs.bench_gap_times = gap_times;
            if let Some(echo) = echo {
                knobs.bench_echo = true;
                knobs.bench_echo_to = echo.destination.0;
                knobs.bench_echo_from = echo.source.0;
            }
        }
        open.maps.bench_flows.set_max_entries(flows + 1).map_err(failed)?;
        if fragments > 1 {
            open.maps.bench_parts.set_max_entries(flows * SLOTS).map_err(failed)?;
        }
        let skel = PROGRAM.load(open)?;
        let shared = PROGRAM.memory(&skel.maps.bss, size_of::<bench_shared>(), "map the shared state")?;
        shared.half_word(offset_of!(bench_shared, tag)).store(tag.into(), Ordering::Relaxed);
        let before = before.map_or(NO_TAG, u32::from);
        shared.half_word(offset_of!(bench_shared, before)).store(before, Ordering::Relaxed);
        shared.half_word(offset_of!(bench_shared, epoch)).store(1, Ordering::Relaxed);
        Ok(Self {
            link: None,
            fragments: fragments > 1,
            program: PROGRAM.descriptor(skel.progs.ek_bench_rx.as_fd())?,
            shared,
            counts: PROGRAM.map(&skel.maps.bench_counts)?,
            delays: PROGRAM.map(&skel.maps.bench_delays)?,
            ipdv: PROGRAM.map(&skel.maps.bench_ipdv)?,
        })
    }

    /// Begins another trial with the same settings and another tag: all counts are zero again. Frames of the trial before, should any
    /// still come, are counted apart.
    pub fn rearm(&self, tag: u16) -> Result<(), XdpError> {
        let before = self.shared.half_word(offset_of!(bench_shared, tag)).swap(tag.into(), Ordering::Relaxed);
        self.shared.half_word(offset_of!(bench_shared, before)).store(before, Ordering::Relaxed);
        self.shared.half_word(offset_of!(bench_shared, epoch)).fetch_add(1, Ordering::Relaxed);
        self.shared.word(offset_of!(bench_shared, last_ns)).store(0, Ordering::Relaxed);
        self.shared.word(offset_of!(bench_shared, longest_silence_ns)).store(0, Ordering::Relaxed);
        for i in 0..ROUND_TRIPS {
            self.round_trip(i).store(0, Ordering::Relaxed);
        }
        for map in [&self.counts, &self.delays, &self.ipdv] {
            let zeros: Vec<Vec<u8>> =
                PROGRAM.per_cpu(map, "read the counts")?.iter().map(|value| vec![0; value.len()]).collect();
            map.update_percpu(&0u32.to_ne_bytes(), &zeros, MapFlags::ANY)
                .map_err(|e| PROGRAM.failed("clear the counts", to_io(&e)))?;
        }
        Ok(())
    }

    /// The attached program; none after [`BenchReceiver::load`].
    pub fn link(&self) -> Option<&AtEnd> {
        self.link.as_ref()
    }

    /// The arrivals so far.
    pub fn counts(&self) -> Result<BenchRxCounts, XdpError> {
        let mut sum = BenchRxCounts::default();
        let mut begun = 0;
        for raw in PROGRAM.per_cpu(&self.counts, "read the counts")? {
            let word = |offset| word64(&raw, offset);
            sum.frames += word(offset_of!(bench_count, frames));
            sum.units += word(offset_of!(bench_count, units));
            sum.duplicated += word(offset_of!(bench_count, duplicated));
            sum.reordered += word(offset_of!(bench_count, reordered));
            sum.stale += word(offset_of!(bench_count, stale));
            begun += word(offset_of!(bench_count, begun));
            sum.looped += word(offset_of!(bench_count, looped));
            sum.stray += word(offset_of!(bench_count, stray));
            sum.leftover += word(offset_of!(bench_count, leftover));
            sum.probes_returned += word(offset_of!(bench_count, probes_returned));
            sum.probes_echoed += word(offset_of!(bench_count, probes_echoed));
            sum.last_gap_ns = sum.last_gap_ns.max(Some(word(offset_of!(bench_count, gap_ns))).filter(|&ns| ns != 0));
        }
        if !self.fragments {
            sum.frames = sum.units + sum.duplicated + sum.stale;
        }
        sum.incomplete = begun.saturating_sub(sum.units);
        let silence = self.shared.word(offset_of!(bench_shared, longest_silence_ns)).load(Ordering::Relaxed);
        sum.longest_silence_ns = Some(silence).filter(|&ns| ns != 0);
        Ok(sum)
    }

    /// Delays of the stamped units that arrived for the first time; of datagrams, until the last fragment.
    pub fn delays(&self) -> Result<BenchDelays, XdpError> {
        histogram(&self.delays)
    }

    /// Differences of the one-way delays of stamped units that came to one CPU one after the other, as absolute values (RFC 5481, IPDV).
    pub fn ipdv(&self) -> Result<BenchDelays, XdpError> {
        histogram(&self.ipdv)
    }

    /// Interarrival jitter at the end, in nanoseconds (RFC 3550, A.8), over the stamped units in the order of their arrival; of several
    /// CPUs the mean, weighted by their differences. None with less than two units.
    pub fn jitter_ns(&self) -> Result<Option<f64>, XdpError> {
        let counts = PROGRAM.per_cpu(&self.counts, "read the counts")?;
        let ipdv = PROGRAM.per_cpu(&self.ipdv, "read the delays")?;
        let (mut sum, mut weights) = (0.0, 0.0);
        for (count, ipdv) in counts.iter().zip(&ipdv) {
            let weight = word64(ipdv, offset_of!(bench_histogram, samples)) as f64;
            sum += word64(count, offset_of!(bench_count, jitter)) as f64 / 16.0 * weight;
            weights += weight;
        }
        Ok((weights > 0.0).then(|| sum / weights))
    }

    /// The round trips of the first thousand probes that came back, in nanoseconds, in the order in which they were sent.
    pub fn round_trips(&self) -> Vec<u64> {
        (0..ROUND_TRIPS.min(1000)).map(|i| self.round_trip(i).load(Ordering::Relaxed)).filter(|&ns| ns != 0).collect()
    }

    fn round_trip(&self, i: usize) -> &std::sync::atomic::AtomicU64 {
        self.shared.word(offset_of!(bench_shared, round_trips) + 8 * i)
    }

    /// Runs the program once on `frame`, as if it had just arrived; gives its verdict and what it made of the frame.
    pub fn try_frame(&self, frame: &[u8]) -> Result<(u32, Vec<u8>), XdpError> {
        Ok(PROGRAM.test(&self.program, frame)?)
    }
}

fn histogram(map: &MapHandle) -> Result<BenchDelays, XdpError> {
    let mut sum = BenchDelays::default();
    for raw in PROGRAM.per_cpu(map, "read the delays")? {
        sum.add(&raw);
    }
    Ok(sum)
}
