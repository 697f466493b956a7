//! The work of each CPU, by samples of its stack on a software clock (`src/trace/profile.bpf.c`).
//!
//! The clock is a timer of the kernel, so that it works in virtual machines, and its interrupt waits while interrupts are
//! off. What runs with interrupts off (interrupt handlers, parts of the scheduler, code under a spinlock that switches them
//! off) is therefore charged to the instruction that switches them on again; `perf record -e cpu-clock` does the same. An
//! interval in which the clock was due several times gives one sample, and so does one in which a hypervisor let somebody
//! else run: the steal time is to be read beside it, from /proc/stat.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, AsRawFd, IntoRawFd},
    time::Duration,
};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, skel::OpenSkel};
use sys::perf::{CpuClock, PerfError};

use crate::{
    bytes::{word32, word64},
    counters::{PerCpu, per_cpu},
    program::open,
    skel::profile::{
        ProfileSkelBuilder,
        types::{seen as Seen, taken as Taken},
    },
};

/// A stack is cut behind this many of its innermost frames.
pub const FRAMES_MAX: usize = 127;

const _: () = assert!(size_of::<Seen>() == 32 + 8 * FRAMES_MAX && offset_of!(Seen, frames) == 32);
const _: () = assert!(size_of::<Taken>() == 24);

/// The rate of samples, and their CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Samples per second and CPU, 1 to 100000. The default, 99, is no divisor of the kernel's tick, so that it does not
    /// march in step with it.
    pub frequency_hz: u32,
    /// The CPUs; usually all that are online.
    pub cpus: Vec<u32>,
}

impl ProfileOptions {
    /// Samples these CPUs 99 times a second.
    pub fn of(cpus: impl IntoIterator<Item = u32>) -> Self {
        Self { frequency_hz: 99, cpus: cpus.into_iter().collect() }
    }

    /// The time between two samples of a CPU.
    pub fn period(&self) -> Duration {
        Duration::from_secs(1).checked_div(self.frequency_hz).unwrap_or(Duration::ZERO)
    }
}

/// The profile could not be started or read.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(
        "cannot load the kernel program `profile`: {0}; it takes CAP_BPF and CAP_PERFMON (run as root) and a kernel from \
         6.1 on with CONFIG_BPF_EVENTS"
    )]
    Load(#[source] libbpf_rs::Error),
    #[error(transparent)]
    Clock(#[from] PerfError),
    #[error("cannot attach the kernel program `profile` to the clock of CPU {cpu}: {source}")]
    Attach { cpu: u32, source: libbpf_rs::Error },
    #[error("cannot read the samples of the profile from the kernel: {0}")]
    Read(#[source] libbpf_rs::Error),
}

model::classified!(ProfileError: Lacking, Internal: Read; within: Clock);

/// The number of times that one thing was seen since the reading before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackCount {
    pub cpu: u32,
    /// The process whose turn it was, as the first pid namespace numbers it; 0: the idle task. A soft interrupt runs on top
    /// of whoever it finds.
    pub pid: u32,
    /// The name of the thread; `swapper/N` for the idle task of CPU N.
    pub comm: String,
    /// The kernel's stack, innermost frame first: the address where the clock found the CPU, then return addresses. Cut
    /// behind [`FRAMES_MAX`]. Empty in user mode.
    pub kernel: Vec<u64>,
    /// The CPU ran the program itself, not the kernel.
    pub user: bool,
    /// True for the idle task. That is idleness only if no soft interrupt was served on top of it: then `kernel`
    /// holds `handle_softirqs` (before 6.10 `__do_softirq`).
    pub idle_task: bool,
    pub samples: u64,
}

per_cpu! {
    /// Samples taken and lost since the start.
    pub struct SampleCounts of Taken {
        /// Times the clock ticked.
        samples,
        /// Of them lost because the kernel could not walk the stack.
        no_stack,
        /// Of them lost because more than 16384 different things were seen between two readings, or the kernel had no memory.
        no_room,
    }
}

impl SampleCounts {
    /// Samples that are in no [`StackCount`].
    pub fn lost(&self) -> u64 {
        self.no_stack + self.no_room
    }
}

/// A running profile; it ends when dropped.
pub struct CpuProfile {
    // The links first: nothing counts any more when the tables go.
    _links: Vec<Link>,
    tables: [MapHandle; 2],
    counting: usize,
    active: MapHandle,
    taken: MapHandle,
}

impl std::fmt::Debug for CpuProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuProfile").finish_non_exhaustive()
    }
}

impl CpuProfile {
    /// Loads the program and starts the clocks.
    ///
    /// # Errors
    /// When a privilege is missing, a CPU is absent or offline, there are no descriptors left (one per CPU), or the
    /// frequency is none.
    pub fn open(options: &ProfileOptions) -> Result<Self, ProfileError> {
        // The clocks first: what they are refused for is the clearer answer.
        let period = options.period();
        let clocks =
            options.cpus.iter().map(|&cpu| CpuClock::open(cpu, period)).collect::<Result<Vec<_>, PerfError>>()?;
        let mut object = MaybeUninit::uninit();
        let open = open::<ProfileSkelBuilder>(&mut object).map_err(ProfileError::Load)?;
        let skel = open.load().map_err(ProfileError::Load)?;
        let handle = |map| MapHandle::try_from(map).map_err(ProfileError::Load);
        let tables = [handle(&skel.maps.counts_a)?, handle(&skel.maps.counts_b)?];
        let (active, taken) = (handle(&skel.maps.active)?, handle(&skel.maps.taken)?);
        let mut links = Vec::with_capacity(clocks.len());
        for clock in clocks {
            let cpu = clock.cpu();
            let attach = |fd| skel.progs.sample_cpu.attach_perf_event(fd);
            let link = attach(clock.as_fd().as_raw_fd()).map_err(|source| ProfileError::Attach { cpu, source })?;
            // The link closes it from now on.
            let _ = clock.into_raw_fd();
            links.push(link);
        }
        Ok(Self { _links: links, tables, counting: 0, active, taken })
    }

    /// The samples since the reading before, or since the start. Takes the kernel some ten milliseconds, in which this
    /// thread sleeps and the sampling goes on.
    pub fn read(&mut self) -> Result<Vec<StackCount>, ProfileError> {
        let full = self.counting;
        let empty = 1 - full;
        // The kernel returns from this when no program uses the other table any more.
        let fd = self.tables[empty].as_fd().as_raw_fd().to_ne_bytes();
        self.active.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY).map_err(ProfileError::Read)?;
        self.counting = empty;
        let table = &self.tables[full];
        let keys: Vec<Vec<u8>> = table.keys().collect();
        let mut out = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(value) = table.lookup(&key, MapFlags::ANY).map_err(ProfileError::Read)? {
                out.push(decode(&key, word64(&value, 0)));
            }
            table.delete(&key).map_err(ProfileError::Read)?;
        }
        Ok(out)
    }

    /// Samples taken and lost since the start.
    pub fn counts(&self) -> Result<SampleCounts, ProfileError> {
        let of_cpus = self.taken.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(ProfileError::Read)?;
        let mut sum = SampleCounts::default();
        of_cpus.iter().flatten().for_each(|one| sum.add(one));
        Ok(sum)
    }
}

fn decode(key: &[u8], samples: u64) -> StackCount {
    let name = key.get(offset_of!(Seen, comm)..).unwrap_or_default();
    let name = &name[..name.len().min(16)];
    let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
    let frames = (0..FRAMES_MAX).map(|i| word64(key, offset_of!(Seen, frames) + 8 * i)).take_while(|&frame| frame != 0);
    let pid = word32(key, offset_of!(Seen, pid));
    let user = word32(key, offset_of!(Seen, user)) != 0;
    StackCount {
        cpu: word32(key, offset_of!(Seen, cpu)),
        pid,
        comm: String::from_utf8_lossy(name).into_owned(),
        kernel: frames.collect(),
        user,
        idle_task: pid == 0,
        samples,
    }
}
