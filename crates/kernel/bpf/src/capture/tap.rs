//! The tap: a program that copies frames into rings which user space has mapped, one ring per CPU.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use libbpf_rs::{Link, skel::OpenSkel};
use model::verdict::Verdict;
use sys::map_mmap::SharedMemory;

use crate::{
    capture::filter::{Filter, LoadedFilter},
    chain::{self, ChainState, Place, Slot, SlotMaps},
    link::{XdpError, XdpMode},
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

/// The number of rings that a tap makes: one for each CPU up to the highest that is online. A machine may be able to have many more.
pub fn ring_cpus() -> Result<usize, XdpError> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let online = online.and_then(|text| model::CpuSet::parse_list(text.trim()).ok());
    match online.and_then(|set| set.iter().next_back()) {
        Some(highest) => Ok(highest as usize + 1),
        None => libbpf_rs::num_possible_cpus().map_err(|source| PROGRAM.refused(source).into()),
    }
}

/// The moment at which a frame gets its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TapStamp {
    /// The frames of one NAPI poll (64 at the most) share the time at which the tap saw the first of them. Reading the clock for each costs more
    /// than all the rest of the work on a small frame. On a driver that does not poll (tun) a time may be a tick (1 to 10 ms) old at first.
    #[default]
    PerPoll,
    PerFrame,
}

/// The frames that a tap sees on an interface that has a shield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TapPlace {
    #[default]
    Before,
    /// Frames that the shield lets through.
    Behind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapSettings {
    /// The frames that it sees.
    pub place: TapPlace,
    /// Bytes of each frame that are kept, 1 to [`SNAPLEN_MAX`].
    pub snaplen: u32,
    /// Bytes of each CPU's ring, rounded up to a power of two MiB, at least 2 MiB.
    pub ring_bytes: usize,
    /// End captured frames here instead of letting them go on.
    pub consume: bool,
    /// The moment at which a frame gets its time.
    pub stamp: TapStamp,
    /// The NUMA node whose memory the rings take; none: that of the caller.
    pub numa_node: Option<u32>,
}

/// The loaded program, on an interface once [`Tap::attach`] was called; off again when dropped.
#[derive(Debug)]
pub struct Tap {
    /// None: it was detached.
    slot: Option<Slot>,
    /// A program for each of its places.
    programs: Vec<OwnedFd>,
    /// Keeps the program that sees the end of NAPI polls.
    _poll_end: Option<Link>,
    /// Keeps what filters go on to.
    _filters: Vec<LoadedFilter>,
    shared: Arc<Shared>,
    cpus: u32,
}

#[derive(Debug)]
struct Shared {
    control: SharedMemory,
    rings: SharedMemory,
    segments: u64,
    /// The offset of the control block of the CPUs without a ring.
    ringless: usize,
    chain: ChainState,
    place: TapPlace,
    /// Captured frames go on, and may have a verdict.
    judged: bool,
    detached: AtomicBool,
}

impl Tap {
    /// Takes its place in the chain of `interface`, and loads the program with a ring for each CPU up to the highest that is online; with a
    /// filter, only the frames that it takes are captured, and the others go on.
    ///
    /// # Errors
    /// See [`Slot::take`]; what the kernel refuses.
    pub fn load(
        interface: &str,
        mode: XdpMode,
        settings: TapSettings,
        filter: Option<&Filter>,
    ) -> Result<Self, XdpError> {
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

        let places = match settings.place {
            TapPlace::Before => &[Place::Before][..],
            // Where two interfaces are shielded, what passes at this one leaves by the other.
            TapPlace::Behind => &[Place::Behind, Place::Crossing],
        };
        let place = places[0];
        let slot = Slot::take(interface, mode, places)?;
        let maps = slot.maps();
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<TapSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.snaplen = settings.snaplen;
            knobs.rings = cpus;
            knobs.segment_mask = segments as u32 - 1;
            knobs.stamp_per_poll = u32::from(settings.stamp == TapStamp::PerPoll);
            knobs.consume = settings.consume;
            knobs.tap_place = place as u32;
            (knobs.chain_on, knobs.chain_cpus_mask) = (true, SlotMaps::cpus_mask()?);
        }
        maps.lend(open.open_object_mut(), "ek_rests", chain::STATE).map_err(failed)?;
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
        let poll_end = match settings.stamp {
            TapStamp::PerPoll => Some(skel.progs.tap_poll_end.attach_raw_tracepoint("napi_poll").map_err(failed)?),
            TapStamp::PerFrame => None,
        };
        let mut filters = Vec::new();
        // The filter, if there is one, runs in the place, and the tap's program behind it.
        let mut entry = |place, tap: BorrowedFd<'_>, skipped| {
            let Some(filter) = filter else { return Ok(PROGRAM.descriptor(tap)?) };
            let loaded = filter.load_with(tap, skipped, true, Some((place, &maps)))?;
            let program = PROGRAM.descriptor(loaded.entry())?;
            filters.push(loaded);
            Ok::<_, XdpError>(program)
        };
        let skipped = (place == Place::Before && !settings.consume).then(|| skel.progs.tap_skip.as_fd());
        let mut programs = vec![entry(place, skel.progs.tap.as_fd(), skipped)?];
        if settings.place == TapPlace::Behind {
            programs.push(entry(Place::Crossing, skel.progs.tap_cross.as_fd(), None)?);
        }
        let shared = Shared {
            chain: maps.state()?,
            place: settings.place,
            judged: !settings.consume,
            detached: AtomicBool::new(false),
            control: PROGRAM.memory(&skel.maps.tap_control, (cpus as usize + 1) * size_of::<tap_control>(), MAPPING)?,
            rings: PROGRAM.memory(&skel.maps.tap_ring, elements as usize * size_of::<tap_segment>(), MAPPING)?,
            segments,
            ringless: cpus as usize * size_of::<tap_control>(),
        };
        Ok(Self { slot: Some(slot), programs, _poll_end: poll_end, _filters: filters, shared: Arc::new(shared), cpus })
    }

    /// Puts the program in its place. See [`Slot::put`] for what is refused.
    pub fn attach(&mut self) -> Result<(), XdpError> {
        if self.shared.judged {
            self.shared.chain.want(self.shared.place == TapPlace::Behind, true);
        }
        let programs: Vec<_> = self.programs.iter().map(AsFd::as_fd).collect();
        let put = self.slot.iter_mut().try_for_each(|slot| slot.put(&programs));
        if put.is_err() {
            self.shared.chain.want(self.shared.place == TapPlace::Behind, false);
        }
        put
    }

    /// Takes the program off; what it wrote stays readable.
    pub fn detach(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        if self.shared.judged {
            self.shared.chain.want(self.shared.place == TapPlace::Behind, false);
        }
        drop(slot);
        self.shared.detached.store(true, Ordering::Release);
    }

    /// The tap's place in the interface's chain; none: it was detached.
    pub fn slot(&self) -> Option<&Slot> {
        self.slot.as_ref()
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
    /// Length of the frame in bytes without FCS.
    pub wire_len: u32,
    /// Frames that this CPU lost between the one before and this one.
    pub lost_before: u64,
    /// The verdict of the interface's shield, or the reason why it let it pass; none: nobody judged it.
    pub verdict: Option<Verdict>,
    pub data: &'a [u8],
}

/// The program's counts on one CPU.
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
    /// The offset of the program's control block in the mapping.
    control: usize,
    tail: u64,
    lost: u64,
    unmarked: u64,
    kept: u64,
    /// The position behind a frame that has waited for its verdict since the look before.
    waited: Option<u64>,
}

impl TapReader {
    fn new(shared: Arc<Shared>, cpu: u32) -> Self {
        Self {
            shared,
            cpu,
            control: cpu as usize * size_of::<tap_control>(),
            tail: 0,
            lost: 0,
            unmarked: 0,
            kept: 0,
            waited: None,
        }
    }

    /// The CPU whose frames these are.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Hands the frames that are there, `most` at the most, to `each`, frees their room at the end, and returns how many there were.
    ///
    /// Reads once the cache line that the program writes for every frame. Call it at intervals (100 us, say) rather than in a
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
            let at = self.at(tail);
            // SAFETY: the program has published everything before `head`, and leaves it alone until our tail has passed it.
            let header = unsafe { self.shared.rings.slice(at, HEADER) };
            let kept = half(header, offset_of!(tap_record, kept)) as usize;
            let segment_end = (tail | (SEGMENT - 1)) + 1;
            let next = (tail + (HEADER + kept).next_multiple_of(8) as u64).min(segment_end);
            let (tai_ns, wire_len) =
                (word(header, offset_of!(tap_record, tai_ns)), half(header, offset_of!(tap_record, wire_len)));
            // The program writes the lower half.
            let lost = half(header, offset_of!(tap_record, lost)).wrapping_sub(self.lost as u32);
            let own = half(header, offset_of!(tap_record, verdict));
            let Some(verdict) = self.verdict(own, next, head) else { break };
            each(TapFrame {
                tai_ns,
                wire_len,
                lost_before: lost.into(),
                verdict: Verdict::of(verdict),
                // SAFETY: as above.
                data: unsafe { self.shared.rings.slice(at + HEADER, kept) },
            });
            self.lost += u64::from(lost);
            self.kept += 1;
            tail = next;
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

    /// The verdict on the frame whose record ends at `next` and holds `own`; none: it may be known at the next look.
    fn verdict(&mut self, own: u32, next: u64, head: u64) -> Option<u32> {
        if self.shared.place == TapPlace::Behind || !self.shared.judged {
            return Some(own);
        }
        if next != head {
            // The next record has brought it.
            // SAFETY: the program has published everything before `head`, and leaves it alone until our tail has passed it.
            let following = unsafe { self.shared.rings.slice(self.at(next), HEADER) };
            return Some(half(following, offset_of!(tap_record, verdict)));
        }
        // It is still in the state of the CPU, unless another frame has come meanwhile.
        let verdict = self.shared.chain.verdict(self.cpu);
        let now = self.shared.control.word(self.control + offset_of!(tap_control, head)).load(Ordering::Acquire);
        let last_look = self.waited == Some(next) || self.shared.detached.load(Ordering::Acquire);
        if now == head && (verdict != 0 || last_look) {
            return Some(verdict);
        }
        self.waited = Some(next);
        None
    }

    fn at(&self, position: u64) -> usize {
        let segment = u64::from(self.cpu) * self.shared.segments + (position / SEGMENT) % self.shared.segments;
        segment as usize * size_of::<tap_segment>() + (position % SEGMENT) as usize
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

    /// Counters of the program on this CPU. The first reader also counts CPUs that came online later and have no ring.
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
