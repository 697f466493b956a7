//! The tap: a program that copies frames into rings which user space has mapped, one ring per CPU.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
};

use libbpf_rs::{
    Link,
    libbpf_sys::{XDP_DROP, XDP_PASS},
};
use sys::map_mmap::SharedMemory;

use crate::{
    capture::filter::{Filter, LoadedFilter},
    link::{XdpError, XdpLink, XdpMode},
    program::Program,
    skel::tap::{
        TapSkelBuilder,
        types::{tap_control, tap_record, tap_segment},
    },
};

const PROGRAM: Program = Program("tap");
const MAPPING: &str = "map the rings";
/// Bytes of records in a segment, by the size of its slack (src/capture/tap.h).
const SEGMENT: u64 = (size_of::<tap_segment>() - size_of::<tap_record>() - SNAPLEN_MAX as usize) as u64;
const HEADER: usize = size_of::<tap_record>();
/// The longest part of a frame that can be kept, in bytes.
pub const SNAPLEN_MAX: u32 = 65536;

const _: () = assert!(SEGMENT.is_power_of_two() && HEADER == 24 && size_of::<tap_control>() == 256);
const _: () = assert!(offset_of!(tap_control, tail) == 128);

/// How many rings a tap makes: one for each CPU up to the highest that is online. A machine may be able to have many more.
pub fn ring_cpus() -> Result<usize, XdpError> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let online = online.and_then(|text| model::CpuSet::parse_list(text.trim()).ok());
    match online.and_then(|set| set.iter().next_back()) {
        Some(highest) => Ok(highest as usize + 1),
        None => libbpf_rs::num_possible_cpus().map_err(|source| PROGRAM.refused(source).into()),
    }
}

/// When a frame gets its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TapStamp {
    /// The frames of one NAPI poll (64 at the most) share the time at which the tap saw the first of them. Reading the clock for each costs more
    /// than all the rest of the work on a small frame. On a driver that does not poll (tun) a time may be a tick (1 to 10 ms) old at first.
    #[default]
    PerPoll,
    /// Each frame has its own.
    PerFrame,
}

/// How the tap is to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapSettings {
    /// Bytes of each frame that are kept, 1 to [`SNAPLEN_MAX`].
    pub snaplen: u32,
    /// Bytes of each CPU's ring, rounded up to a power of two MiB, at least 2 MiB.
    pub ring_bytes: usize,
    /// End captured frames here instead of letting them pass to the stack.
    pub consume: bool,
    /// When a frame gets its time.
    pub stamp: TapStamp,
    /// The NUMA node whose memory the rings take; none: that of the caller.
    pub numa_node: Option<u32>,
}

/// The loaded program, on an interface once [`Tap::attach`] was called; off again when dropped.
#[derive(Debug)]
pub struct Tap {
    link: Option<XdpLink>,
    /// Keeps the program that sees the end of NAPI polls.
    _poll_end: Option<Link>,
    filter: Option<LoadedFilter>,
    program: OwnedFd,
    shared: Arc<Shared>,
    cpus: u32,
}

#[derive(Debug)]
struct Shared {
    control: SharedMemory,
    rings: SharedMemory,
    segments: u64,
    /// Where the control block of the CPUs without a ring is.
    ringless: usize,
}

impl Tap {
    /// Loads the program with a ring for each CPU up to the highest that is online; with a filter, only the frames that it takes are captured, and the others
    /// pass to the stack.
    pub fn load(settings: TapSettings, filter: Option<&Filter>) -> Result<Self, XdpError> {
        if !(1..=SNAPLEN_MAX).contains(&settings.snaplen) {
            let text = format!("the tap keeps 1 to {SNAPLEN_MAX} bytes of a frame, not {}", settings.snaplen);
            return Err(XdpError::setting(text));
        }
        let failed = |source| PROGRAM.refused(source);
        let cpus = ring_cpus()? as u32;
        let segments = (settings.ring_bytes as u64).div_ceil(SEGMENT).next_power_of_two().max(2);
        let elements = u32::try_from(segments)
            .ok()
            .and_then(|s| s.checked_mul(cpus))
            .ok_or_else(|| XdpError::setting(format!("{segments} MiB for each of {cpus} CPUs are too much")))?;

        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<TapSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.snaplen = settings.snaplen;
            knobs.rings = cpus;
            knobs.segment_mask = segments as u32 - 1;
            knobs.stamp_per_poll = u32::from(settings.stamp == TapStamp::PerPoll);
            knobs.verdict = if settings.consume { XDP_DROP } else { XDP_PASS };
        }
        open.maps.tap_ring.set_max_entries(elements).map_err(failed)?;
        // The last is for the losses of CPUs without a ring.
        open.maps.tap_control.set_max_entries(cpus + 1).map_err(failed)?;
        if let Some(node) = settings.numa_node {
            for map in [&mut open.maps.tap_ring, &mut open.maps.tap_control] {
                map.set_numa_node(node).map_err(failed)?;
                map.set_map_flags(libbpf_rs::libbpf_sys::BPF_F_MMAPABLE | libbpf_rs::libbpf_sys::BPF_F_NUMA_NODE)
                    .map_err(failed)?;
            }
        }
        open.progs.tap_poll_end.set_autoload(settings.stamp == TapStamp::PerPoll);
        let skel = PROGRAM.load(open)?;
        let program = PROGRAM.descriptor(skel.progs.tap.as_fd())?;
        let poll_end = match settings.stamp {
            TapStamp::PerPoll => Some(skel.progs.tap_poll_end.attach_raw_tracepoint("napi_poll").map_err(failed)?),
            TapStamp::PerFrame => None,
        };
        let filter = filter.map(|f| f.load(program.as_fd(), true)).transpose()?;
        let shared = Shared {
            control: PROGRAM.memory(&skel.maps.tap_control, (cpus as usize + 1) * size_of::<tap_control>(), MAPPING)?,
            rings: PROGRAM.memory(&skel.maps.tap_ring, elements as usize * size_of::<tap_segment>(), MAPPING)?,
            segments,
            ringless: cpus as usize * size_of::<tap_control>(),
        };
        Ok(Self { link: None, _poll_end: poll_end, filter, program, shared: Arc::new(shared), cpus })
    }

    /// Attaches the program. See [`XdpLink::attach`] for what is refused.
    pub fn attach(&mut self, interface: &str, mode: XdpMode) -> Result<(), XdpError> {
        let entry = self.filter.as_ref().map_or(self.program.as_fd(), LoadedFilter::entry);
        self.link = Some(XdpLink::attach(entry, PROGRAM, interface, mode)?);
        Ok(())
    }

    /// Takes the program off; what it wrote stays readable.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// The attached program; nothing before [`Tap::attach`].
    pub fn link(&self) -> Option<&XdpLink> {
        self.link.as_ref()
    }

    /// The readers of the rings, one per ring, in the order of the CPUs. Nothing but the first call gets any, so that a
    /// ring has one reader.
    pub fn take_readers(&mut self) -> Vec<TapReader> {
        (0..std::mem::take(&mut self.cpus)).map(|cpu| TapReader::new(Arc::clone(&self.shared), cpu)).collect()
    }
}

/// A captured frame, borrowed from its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapFrame<'a> {
    /// CLOCK_TAI at which the program saw it, in nanoseconds.
    pub tai_ns: u64,
    /// Its length in bytes without FCS.
    pub wire_len: u32,
    /// Frames that this CPU lost between the one before and this one.
    pub lost_before: u64,
    /// The bytes that were kept.
    pub data: &'a [u8],
}

/// What the program did on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TapCounts {
    /// Frames written to the ring.
    pub kept: u64,
    /// Frames for which the ring had no room.
    pub lost: u64,
}

/// The one reader of one CPU's ring.
#[derive(Debug)]
pub struct TapReader {
    shared: Arc<Shared>,
    cpu: u32,
    /// Where the program's control block is in the mapping.
    control: usize,
    tail: u64,
    lost: u64,
    unmarked: u64,
    kept: u64,
}

impl TapReader {
    fn new(shared: Arc<Shared>, cpu: u32) -> Self {
        Self { shared, cpu, control: cpu as usize * size_of::<tap_control>(), tail: 0, lost: 0, unmarked: 0, kept: 0 }
    }

    /// The CPU whose frames these are.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Hands the frames that are there, `most` at the most, to `each`, frees their room at the end, and returns how many there were.
    ///
    /// It looks once at the line that the program writes for every frame. Call it at intervals (100 us, say) rather than in a
    /// tight loop: each look takes that line away from the program for a moment.
    pub fn read<F: FnMut(TapFrame<'_>)>(&mut self, most: usize, mut each: F) -> usize {
        // Losses first: with a ring that is empty after that, every later record was written after them.
        let lost_so_far =
            self.shared.control.word(self.control + offset_of!(tap_control, lost)).load(Ordering::Acquire);
        let head = self.shared.control.word(self.control + offset_of!(tap_control, head)).load(Ordering::Acquire);
        let mut tail = self.tail;
        if head == tail {
            self.unmarked += lost_so_far - self.lost;
            self.lost = lost_so_far;
        }
        let mut frames = 0;
        while tail != head && frames < most {
            let segment = u64::from(self.cpu) * self.shared.segments + (tail / SEGMENT) % self.shared.segments;
            let at = segment as usize * size_of::<tap_segment>() + (tail % SEGMENT) as usize;
            // SAFETY: the program has published everything before `head`, and leaves it alone until our tail has passed it.
            let header = unsafe { self.shared.rings.slice(at, HEADER) };
            let kept = half(header, offset_of!(tap_record, kept)) as usize;
            let lost = word(header, offset_of!(tap_record, lost));
            each(TapFrame {
                tai_ns: word(header, offset_of!(tap_record, tai_ns)),
                wire_len: half(header, offset_of!(tap_record, wire_len)),
                lost_before: lost.wrapping_sub(self.lost),
                // SAFETY: as above.
                data: unsafe { self.shared.rings.slice(at + HEADER, kept) },
            });
            self.lost = lost;
            self.kept += 1;
            let segment_end = (tail | (SEGMENT - 1)) + 1;
            tail = (tail + (HEADER + kept).next_multiple_of(8) as u64).min(segment_end);
            frames += 1;
            // Room is given back in steps, so that a slow `each` does not hold the whole ring.
            if frames % 4096 == 0 {
                self.release(tail);
            }
        }
        if tail != self.tail {
            self.release(tail);
        }
        frames
    }

    /// Frames lost at the end of what was read so far, which no frame has carried yet; each is told once.
    pub fn take_unmarked(&mut self) -> u64 {
        std::mem::take(&mut self.unmarked)
    }

    /// Passes over all that is there without looking at it, and returns how many frames that were. A reader that has skipped does not
    /// read again: the count would be off by those that were just being written.
    pub fn skip(&mut self) -> u64 {
        let head = self.shared.control.word(self.control + offset_of!(tap_control, head)).load(Ordering::Acquire);
        let new = self.counts().kept - self.kept;
        self.kept += new;
        if head != self.tail {
            self.release(head);
        }
        new
    }

    fn release(&mut self, tail: u64) {
        self.tail = tail;
        self.shared.control.word(self.control + offset_of!(tap_control, tail)).store(tail, Ordering::Release);
    }

    /// What the program has counted on this CPU. The first reader also tells of CPUs that came online later and have no ring.
    pub fn counts(&self) -> TapCounts {
        let at = |offset| self.shared.control.word(self.control + offset).load(Ordering::Relaxed);
        let elsewhere = match self.cpu {
            0 => self.shared.control.word(self.shared.ringless + offset_of!(tap_control, lost)).load(Ordering::Relaxed),
            _ => 0,
        };
        TapCounts { kept: at(offset_of!(tap_control, records)), lost: at(offset_of!(tap_control, lost)) + elsewhere }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |&b| u64::from_ne_bytes(b))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |&b| u32::from_ne_bytes(b))
}
