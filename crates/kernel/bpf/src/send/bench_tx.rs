//! The bench's sender: one loaded program that sends the frames of both directions from one core, each unit numbered and some of them stamped.

mod table;

use std::{
    fs, io,
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::Path,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut};
use sys::interface::index;
use sys::{
    affinity::{is_kernel_thread, set_nice},
    interrupt::InterruptibleThread,
    map_mmap::SharedMemory,
};

use crate::{
    link::XdpError,
    program::Program,
    send::live_run::{Anchor, LiveRun, no_xmit, rate},
    skel::bench_tx::{
        BenchTxSkelBuilder,
        types::{bench_tx_state, bench_tx_step},
    },
};

use table::Table;

const PROGRAM: Program = Program("ek_bench_tx");
/// BENCH_PROBE of src/send/bench_sig.h.
pub const PROBE_FLOW: u32 = u32::MAX;
/// Length of the signature (struct bench_sig).
pub const SIGNATURE_BYTES: usize = 18;
/// Rates that one trial can have, one after the other (BENCH_STEPS).
pub const STEPS_MAX: usize = 4;
/// BENCH_UNPACED.
const UNPACED: u64 = u64::MAX;
/// Frames between two looks at the clock at most; where all units are stamped, whose stamps are half as old on average, fewer.
const FRAMES_PER_LOOK: u32 = 32;
const STAMPED_PER_LOOK: u32 = 8;
/// Frames that the kernel collects before it hands them on, without a pace and with one: fewer make stamps truer, more are faster.
const BATCH_UNPACED: u32 = 256;
const BATCH_PACED: u32 = 32;
/// Units that may be due at once before time is given up: so many, or those of so many nanoseconds. A sender that made good
/// all that it missed would overload the box for as long.
const PENDING_UNITS_MAX: f64 = 64.0;
const PENDING_NS_MAX: f64 = 50_000.0;
/// With receive rings it is this share of a ring, or what comes in so many nanoseconds if that is less: the ring takes it.
const PENDING_RING_SHARE_MAX: f64 = 0.25;
const PENDING_RING_NS_MAX: f64 = 1_000_000.0;
/// From this age on a stamp is late, and how much more each frame of a unit may take.
const STAMP_AGE_MAX: Duration = Duration::from_micros(50);
const STAMP_AGE_PER_FRAME_MAX: Duration = Duration::from_micros(1);
/// The program is never faster than this, in nanoseconds for each run.
const RUN_NS_MIN: u64 = 30;
/// Time between two looks whether a run is over, once that is near.
const END_POLL_PERIOD: Duration = Duration::from_micros(200);
/// The same in a run that ends with a count, at a pace.
const COUNT_POLL_PERIOD: Duration = Duration::from_millis(1);

/// A frame of the lap that a sender repeats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BenchEntry {
    /// The headers, up to and with the room for the signature, whose bytes are zeros; the zeros behind it are implied. At most [`crate::send::r#gen::HEADER_MAX`] bytes.
    pub frame: Vec<u8>,
    /// Length of the frame in memory, without FCS.
    pub frame_len: u16,
    /// 0 forward (out of the first port), 1 backward.
    pub direction: u8,
    /// Offset of the signature from the start of the frame.
    pub signature_at: u8,
    /// Offset of the UDP or TCP checksum, which is right for a signature of zeros; 0 is none in this frame.
    pub checksum_at: u8,
    /// The number of signatures that this checksum covers: the fragments of the datagram.
    pub checksum_times: u8,
    /// Offset of the IPv4 identification, varied per unit, and the header's checksum with it; 0 is none.
    pub id_at: u8,
    /// Offset of the identification of an IPv6 fragment header, 32 bits; 0 is none.
    pub id6_at: u8,
    /// Another frame of the same unit follows.
    pub more: bool,
    /// Number of the flow within its direction.
    pub flow: u32,
    /// Number of this unit within its flow in the first lap.
    pub seq_base: u32,
    /// Units of the flow in one lap.
    pub seq_step: u32,
}

/// Probes beside the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchProbe {
    /// The frame; its flow and its numbers are the sender's business.
    pub entry: BenchEntry,
    /// Time between two of them.
    pub every: Duration,
    /// The time of the first, from the start.
    pub after: Duration,
}

/// A receive ring of the box for each direction: frames wait there until a kernel thread of the box's CPU hands them to the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchRings {
    /// The CPU of each direction.
    pub cpus: [u32; 2],
    /// Frames that a ring holds, at most 16384 (kernel/bpf/cpumap.c).
    pub frames: u32,
}

/// The time and the speed of a sender.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchPace {
    /// Drawn anew for each trial; its lowest bit is replaced by the direction.
    pub tag: u16,
    /// Units per second over all directions (none is as fast as it goes, 0 is nothing but probes) and for how long: at most [`STEPS_MAX`].
    pub steps: Vec<(Option<f64>, Duration)>,
    /// Units to send; none is no limit.
    pub count: Option<u64>,
    /// Period of stamps: one unit in so many, from the first on; 1 is all.
    pub stamp_every: u32,
    pub probe: Option<BenchProbe>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BenchTxCounts {
    /// Units begun, forward and backward.
    pub units: [u64; 2],
    /// Frames handed to the devices, probes not among them.
    pub frames: [u64; 2],
    pub probes: u64,
    /// Looks at the clock.
    pub turns: u64,
    /// Looks that found nothing due.
    pub fillers: u64,
    /// Time behind schedule that was given up, in nanoseconds.
    pub given_up_ns: u64,
    /// The longest time behind schedule, in nanoseconds.
    pub latest_ns: u64,
    /// The longest time between a look that let units go and the next: how much older than its sending a stamp may be, in nanoseconds.
    pub oldest_stamp_ns: u64,
    /// Units whose stamps may be more than 50 microseconds old (and 1 for each frame of a unit): the sender was kept from sending in between.
    pub late: u64,
    /// Time from the first look to the last, in nanoseconds.
    pub elapsed_ns: u64,
    /// CLOCK_MONOTONIC of the first look, in nanoseconds; 0 before it.
    pub started_ns: u64,
    /// CLOCK_MONOTONIC when the present (in the end: the last) step began.
    pub switched_ns: u64,
    /// Count or duration is reached, or the sender was stopped.
    pub done: bool,
}

/// A loaded sender. [`BenchSender::run`] sends from the calling thread; [`BenchSender::stop`] and [`BenchSender::counts`] may be called from elsewhere meanwhile.
#[derive(Debug)]
pub struct BenchSender {
    run: LiveRun,
    state: SharedMemory,
    table: SharedMemory,
    layout: Table,
    rings: Option<BenchRings>,
    devices: MapHandle,
    directions: [bool; 2],
    ready: [bool; 2],
    pace: BenchPace,
    ending: Mutex<Ending>,
    changed: Condvar,
    // Goes after the program's own descriptor.
    _anchor: Anchor,
}

/// Makes the ring of `cpu`, whose thread goes before other work of normal scheduling.
fn ring(map: &MapMut<'_>, cpu: u32, frames: u32, program: BorrowedFd<'_>) -> Result<(), XdpError> {
    let map_failed = |operation| move |source| PROGRAM.failed(operation, source);
    let value = [frames.to_ne_bytes(), program.as_raw_fd().to_ne_bytes()].concat();
    map.update(&cpu.to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(io::Error::other)
        .map_err(map_failed("make a receive ring on a CPU of the box (a CPU map; is the CPU online?)"))?;
    let id = map.info().map_err(io::Error::other).map_err(map_failed("ask for the id of a receive ring"))?.info.id;
    // Without it other work on this core holds the box up, as it does on any machine that has other work.
    if let Some(thread) = kernel_thread(&format!("cpumap/{cpu}/map:{id}")) {
        let _ = set_nice(thread, -20);
    }
    Ok(())
}

fn kernel_thread(name: &str) -> Option<u32> {
    let is_it = |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name);
    let found = fs::read_dir("/proc").ok()?.flatten().filter(|entry| is_it(&entry.path()));
    let mut pids = found.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| is_kernel_thread(*pid))
}

/// The event that the run's watch waits for.
#[derive(Debug, Default)]
struct Ending {
    stopped: bool,
    over: bool,
}

impl BenchSender {
    /// Loads a program that sends `entries` in order, over and over.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for no entries, offsets or lengths out of bounds, a lap that ends within a unit, or a pace that cannot be kept.
    pub fn load(entries: &[BenchEntry], pace: BenchPace) -> Result<Self, XdpError> {
        Self::load_behind(None, entries, pace)
    }

    /// The same with receive rings before the ports, if any.
    ///
    /// # Errors
    /// As [`BenchSender::load`], and when a ring cannot be made on its CPU.
    pub fn load_behind(rings: Option<BenchRings>, entries: &[BenchEntry], pace: BenchPace) -> Result<Self, XdpError> {
        let probe = pace.probe.as_ref().map(|p| &p.entry);
        let layout = Table::of(entries, probe)?;
        check(&pace, rings)?;
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<BenchTxSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.bench_header_len = layout.header_len as u64;
            knobs.bench_stride = layout.stride as u64;
            knobs.bench_table_len = layout.table_len() as u64;
            knobs.bench_frame_max = layout.frame_max as u32;
            knobs.bench_sizes_vary = layout.sizes_vary;
            knobs.bench_fragments = layout.fragments;
            if let Some((signature_at, checksum_at)) = layout.uniform {
                knobs.bench_signature_at = u64::from(signature_at);
                knobs.bench_checksum_at = u64::from(checksum_at);
            }
            knobs.bench_late_ns = nanoseconds(STAMP_AGE_MAX + STAMP_AGE_PER_FRAME_MAX * layout.longest_unit);
            knobs.bench_single = layout.single;
        }
        if let Some(rings) = rings {
            if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
                knobs.bench_rings = true;
                [knobs.bench_ring_cpu0, knobs.bench_ring_cpu1] = rings.cpus;
            }
            let room = rings.cpus[0].max(rings.cpus[1]) + 1;
            open.maps.bench_tx_ring0.set_max_entries(room).map_err(failed)?;
            open.maps.bench_tx_ring1.set_max_entries(room).map_err(failed)?;
        }
        open.maps.data_bench_tx.set_value_size(layout.bytes() as u32).map_err(failed)?;
        open.progs.ek_bench_tx.set_autoload(!layout.plain);
        open.progs.ek_bench_plain.set_autoload(layout.plain);
        let skel = PROGRAM.load(open)?;
        let table = PROGRAM.memory(&skel.maps.data_bench_tx, layout.bytes(), "map the table of frames")?;
        let state = PROGRAM.memory(&skel.maps.bss, size_of::<bench_tx_state>(), "map the counters")?;
        let devices = PROGRAM.map(&skel.maps.bench_tx_device)?;
        if let Some(rings) = rings {
            let [first, second] = rings.cpus;
            ring(&skel.maps.bench_tx_ring0, first, rings.frames, skel.progs.ek_bench_ring0.as_fd())?;
            ring(&skel.maps.bench_tx_ring1, second, rings.frames, skel.progs.ek_bench_ring1.as_fd())?;
        }
        let program = if layout.plain { &skel.progs.ek_bench_plain } else { &skel.progs.ek_bench_tx };
        let program = PROGRAM.descriptor(program.as_fd())?;
        let anchor = Anchor::hold(program.as_fd(), PROGRAM)?;
        let mut directions = [false; 2];
        entries.iter().chain(probe).for_each(|e| directions[usize::from(e.direction & 1)] = true);
        // SAFETY: the program does not run yet, and nobody else has this mapping.
        layout.write(entries, unsafe { table.slice_mut(0, layout.bytes()) });
        let run = LiveRun { name: PROGRAM, program, frame: vec![0; layout.frame_max] };
        let mut made = Self {
            run,
            state,
            table,
            layout,
            rings,
            devices,
            directions,
            ready: [false; 2],
            pace: pace.clone(),
            ending: Mutex::default(),
            changed: Condvar::new(),
            _anchor: anchor,
        };
        made.rearm(pace)?;
        Ok(made)
    }

    /// Makes it ready for another trial with the same entries, numbers from the start again.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for a pace that cannot be kept, or a probe longer than what was loaded.
    pub fn rearm(&mut self, pace: BenchPace) -> Result<(), XdpError> {
        let steps = check(&pace, self.rings)?;
        if let Some(probe) = &pace.probe {
            self.directions[usize::from(probe.entry.direction & 1)] = true;
            // SAFETY: `run` borrows this sender, which is borrowed mutably here: the program does not run.
            let table = unsafe { self.table.slice_mut(0, self.layout.bytes()) };
            self.layout.write_probe(&probe.entry, table)?;
        }
        for offset in (0..size_of::<bench_tx_state>()).step_by(8) {
            self.state.word(offset).store(0, Ordering::Relaxed);
        }
        let set = |offset, value| self.state.word(offset).store(value, Ordering::Relaxed);
        let set_half = |offset, value| self.state.half_word(offset).store(value, Ordering::Relaxed);
        set_half(offset_of!(bench_tx_state, steps), steps.len() as u32);
        set_half(offset_of!(bench_tx_state, tag), u32::from(pace.tag & !1));
        set_half(offset_of!(bench_tx_state, stamp_every), pace.stamp_every);
        let grant = if pace.stamp_every == 1 { STAMPED_PER_LOOK } else { FRAMES_PER_LOOK };
        set(offset_of!(bench_tx_state, grant), u64::from((grant / self.layout.longest_unit).max(1)));
        set(offset_of!(bench_tx_state, count), pace.count.unwrap_or(u64::MAX));
        if let Some(probe) = &pace.probe {
            set(offset_of!(bench_tx_state, probe_every_ns), nanoseconds(probe.every).max(1));
            set(offset_of!(bench_tx_state, probe_after_ns), nanoseconds(probe.after));
        }
        for (i, step) in steps.iter().enumerate() {
            let at = offset_of!(bench_tx_state, step_of) + i * size_of::<bench_tx_step>();
            set(at + offset_of!(bench_tx_step, rate), step.rate);
            set(at + offset_of!(bench_tx_step, unit_ns), step.unit_ns);
            set(at + offset_of!(bench_tx_step, pending_max), step.pending_max);
            set(at + offset_of!(bench_tx_step, duration_ns), step.duration_ns);
        }
        *self.ending() = Ending::default();
        self.pace = pace;
        Ok(())
    }

    /// Sends what goes in `direction` (0 or 1) to `interface` of this thread's network namespace.
    ///
    /// # Errors
    /// [`XdpError::NoInterface`], or [`XdpError::Unsupported`] if its driver cannot transmit redirected frames.
    pub fn set_device(&mut self, direction: usize, interface: &str) -> Result<(), XdpError> {
        let index = index(interface)?;
        let key = (direction as u32).to_ne_bytes();
        self.devices.update(&key, &index.to_ne_bytes(), MapFlags::ANY).map_err(|e| no_xmit(interface, PROGRAM, &e))?;
        if let Some(ready) = self.ready.get_mut(direction) {
            *ready = true;
        }
        Ok(())
    }

    /// Sends until all steps are through, the count is reached or [`BenchSender::stop`] was called.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] if a direction has no device, and what BPF_PROG_TEST_RUN answers.
    pub fn run(&self) -> Result<(), XdpError> {
        if let Some(way) = (0..2).find(|&way| self.directions[way] && !self.ready[way]) {
            return Err(XdpError::setting(format!("direction {way} of the sender has no device")));
        }
        let thread =
            InterruptibleThread::current().map_err(|source| PROGRAM.failed("install the signal handler", source))?;
        thread::scope(|scope| {
            scope.spawn(|| self.watch(thread));
            let result = self.send();
            self.ending().over = true;
            self.changed.notify_all();
            result
        })
    }

    fn send(&self) -> Result<(), XdpError> {
        let unpaced = self.pace.steps.iter().all(|(pps, _)| pps.is_none());
        let batch = if unpaced { BATCH_UNPACED } else { BATCH_PACED };
        let repeat = match self.pace.count {
            // Without a pace every run sends, and one more sees that all is sent: the call ends by itself.
            Some(count) if unpaced && self.pace.probe.is_none() => {
                i32::try_from(self.layout.frames_of(count).saturating_add(1)).unwrap_or(i32::MAX)
            }
            // It is interrupted at the end. Should the watch not get the core for that, the call ends by itself not much later.
            _ => self.whole().map_or(i32::MAX, |whole| {
                i32::try_from(nanoseconds(whole) / RUN_NS_MIN).unwrap_or(i32::MAX).max(batch as i32)
            }),
        };
        while !self.counts().done && !self.ending().stopped {
            self.run.send(repeat, batch)?;
        }
        Ok(())
    }

    /// Interrupts the sending thread once there is nothing left to send. It sleeps until then, as it may share the sender's core.
    fn watch(&self, thread: InterruptibleThread) {
        let whole = self.whole();
        let start = Instant::now();
        let mut ending = self.ending();
        while !ending.over {
            let left = whole.unwrap_or(Duration::MAX).saturating_sub(start.elapsed());
            let wait = match self.pace.count {
                _ if ending.stopped || left.is_zero() => END_POLL_PERIOD,
                Some(_) => COUNT_POLL_PERIOD.min(left),
                None => left,
            };
            ending = if whole.is_none() && wait == left {
                self.changed.wait(ending).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.changed.wait_timeout(ending, wait).unwrap_or_else(PoisonError::into_inner).0
            };
            if !ending.over && (ending.stopped || self.counts().done) {
                thread.interrupt();
            }
        }
    }

    /// The time of all steps together; none without steps.
    fn whole(&self) -> Option<Duration> {
        self.pace.steps.iter().map(|&(_, duration)| duration).reduce(Duration::saturating_add)
    }

    fn ending(&self) -> MutexGuard<'_, Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run between two units. If it is not running, the next run ends at once; [`BenchSender::rearm`] takes that back.
    pub fn stop(&self) {
        self.state.half_word(offset_of!(bench_tx_state, stop)).store(1, Ordering::Relaxed);
        self.ending().stopped = true;
        self.changed.notify_all();
    }

    /// Counts so far.
    pub fn counts(&self) -> BenchTxCounts {
        let word = |offset| self.state.word(offset).load(Ordering::Relaxed);
        let (lap, offset) = if self.layout.single {
            (word(offset_of!(bench_tx_state, sent)), 0)
        } else {
            (word(offset_of!(bench_tx_state, lap)), word(offset_of!(bench_tx_state, offset)))
        };
        let (units, frames) = self.layout.sent(lap, offset);
        let started_ns = word(offset_of!(bench_tx_state, started_ns));
        BenchTxCounts {
            units,
            frames,
            probes: word(offset_of!(bench_tx_state, probes)),
            turns: word(offset_of!(bench_tx_state, turns)),
            fillers: word(offset_of!(bench_tx_state, fillers)),
            given_up_ns: word(offset_of!(bench_tx_state, given_up_ns)),
            latest_ns: word(offset_of!(bench_tx_state, latest_ns)),
            oldest_stamp_ns: word(offset_of!(bench_tx_state, oldest_ns)),
            late: word(offset_of!(bench_tx_state, late)),
            elapsed_ns: word(offset_of!(bench_tx_state, seen_ns)).saturating_sub(started_ns),
            started_ns,
            switched_ns: word(offset_of!(bench_tx_state, step_ns)),
            done: self.state.half_word(offset_of!(bench_tx_state, done)).load(Ordering::Relaxed) != 0,
        }
    }

    /// Runs the program once without sending, and gives its verdict (include/uapi/linux/bpf.h) and the frame.
    pub fn try_once(&self) -> Result<(u32, Vec<u8>), XdpError> {
        self.run.try_once()
    }
}

struct Step {
    rate: u64,
    unit_ns: u64,
    pending_max: u64,
    duration_ns: u64,
}

/// Units that may be due at once.
fn pending_max(pps: f64, rings: Option<BenchRings>) -> u64 {
    let most = match rings {
        Some(rings) => (PENDING_RING_SHARE_MAX * f64::from(rings.frames)).min(PENDING_RING_NS_MAX * pps / 1e9),
        None => PENDING_NS_MAX * pps / 1e9,
    };
    PENDING_UNITS_MAX.max(most).ceil() as u64
}

fn check(pace: &BenchPace, rings: Option<BenchRings>) -> Result<Vec<Step>, XdpError> {
    let bad = |text: String| Err(XdpError::setting(text));
    if pace.stamp_every == 0 {
        return bad("one unit in 0 cannot be stamped: 1 stamps all".into());
    }
    if pace.steps.len() > STEPS_MAX {
        return bad(format!("{} rates one after the other, but a sender takes {STEPS_MAX}", pace.steps.len()));
    }
    if pace.steps.is_empty() && pace.probe.is_none() {
        return bad("a sender without a load and without probes has nothing to do".into());
    }
    let forever = [(Some(0.0), Duration::MAX)];
    let steps = if pace.steps.is_empty() { &forever[..] } else { &pace.steps };
    steps
        .iter()
        .map(|&(pps, duration)| {
            let (rate, pps) = match pps {
                None => (UNPACED, 0.0),
                Some(0.0) => (0, 0.0),
                Some(pps) => (rate(Some(pps))?, pps),
            };
            Ok(Step {
                rate,
                unit_ns: if pps > 0.0 { (1e9 / pps).round() as u64 } else { 0 },
                pending_max: pending_max(pps, rings),
                duration_ns: nanoseconds(duration),
            })
        })
        .collect()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The offset and the size of what the program and this file must agree on.
const _: () = assert!(
    size_of::<bench_tx_state>().is_multiple_of(8)
        && size_of::<bench_tx_step>() == 32
        && offset_of!(bench_tx_state, sent) == 0
);
