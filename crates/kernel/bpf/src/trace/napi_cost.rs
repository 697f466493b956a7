//! The cost of each NAPI instance, from the kernel's own tracepoints (`src/trace/napi_cost.bpf.c`).

use std::{
    mem::{MaybeUninit, offset_of},
    time::Duration,
};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut, skel::OpenSkel};

use crate::{
    bytes::{word32, word64},
    program::open,
    skel::napi_cost::{NapiCostSkelBuilder, types::napi_cost as Raw},
};

const _: () = assert!(size_of::<Raw>() == 48);

/// The measurement could not be started or read.
#[derive(Debug, thiserror::Error)]
pub enum NapiCostError {
    #[error(
        "cannot load the kernel program `napi_cost`: {0}; it takes CAP_BPF and CAP_PERFMON (run as root) and a kernel \
         with BTF (/sys/kernel/btf/vmlinux, in Debian's kernels since 11)"
    )]
    Load(libbpf_rs::Error),
    #[error("cannot attach to the tracepoint {tracepoint}: {source}; this kernel cannot be measured this way")]
    Attach { tracepoint: &'static str, source: libbpf_rs::Error },
    #[error("cannot read the costs of NAPI instances from the kernel: {0}")]
    Read(libbpf_rs::Error),
}

model::classified!(NapiCostError: Lacking, Internal: Read);

/// Cost of a NAPI instance on one CPU since the measurement began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NapiCost {
    /// Tells instances apart as long as the measurement lasts.
    pub instance: u64,
    /// The CPU it ran on.
    pub cpu: u32,
    /// The index of its interface; 0 for the backlog of a CPU.
    pub ifindex: u32,
    /// The network namespace of that interface, as the inode number of /proc/PID/ns/net; 0 for a backlog.
    pub netns: u32,
    /// Its NAPI id; 0 when it has none (transmit instances).
    pub napi_id: u32,
    /// The interrupt that schedules it, when that was seen without doubt.
    pub irq: Option<u32>,
    /// CPU time of its polls in nanoseconds, without hard interrupts and without busy polling.
    pub ns: u64,
    /// Packets, as the driver counts its work.
    pub packets: u64,
    pub polls: u64,
    /// Polls that used up their budget, so that more was waiting.
    pub full_polls: u64,
}

impl NapiCost {
    /// The CPU time as a duration.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.ns)
    }
}

/// A running measurement; it ends when dropped.
pub struct NapiCosts {
    costs: MapHandle,
    bss: MapHandle,
    _links: Vec<Link>,
}

impl std::fmt::Debug for NapiCosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NapiCosts").finish_non_exhaustive()
    }
}

impl NapiCosts {
    /// Loads the programs and attaches them to their tracepoints.
    ///
    /// # Errors
    /// When a privilege or the kernel's BTF is missing, or the kernel lacks a tracepoint.
    pub fn attach() -> Result<Self, NapiCostError> {
        let mut object = MaybeUninit::uninit();
        let open = open::<NapiCostSkelBuilder>(&mut object).map_err(NapiCostError::Load)?;
        let mut skel = open.load().map_err(NapiCostError::Load)?;
        let attach = |tracepoint: &'static str, program: &mut ProgramMut<'_>| {
            program.attach().map_err(|source| NapiCostError::Attach { tracepoint, source })
        };
        let progs = &mut skel.progs;
        // The one that reads the marks comes last, so that its first reading finds them set.
        let links = vec![
            attach("irq:irq_handler_entry", &mut progs.irq_begins)?,
            attach("irq:irq_handler_exit", &mut progs.irq_ends)?,
            attach("irq:softirq_raise", &mut progs.softirq_raised)?,
            attach("irq:softirq_entry", &mut progs.softirq_begins)?,
            attach("irq:softirq_exit", &mut progs.softirq_ends)?,
            attach("sched:sched_switch", &mut progs.task_switched)?,
            attach("napi:napi_poll", &mut progs.poll_ended)?,
        ];
        let handle = |map| MapHandle::try_from(map).map_err(NapiCostError::Load);
        Ok(Self { costs: handle(&skel.maps.costs)?, bss: handle(&skel.maps.bss)?, _links: links })
    }

    /// The cost of every instance so far, one entry per CPU on which it ran.
    pub fn read(&self) -> Result<Vec<NapiCost>, NapiCostError> {
        let mut out = Vec::new();
        for key in self.costs.keys() {
            let Some(values) = self.costs.lookup_percpu(&key, MapFlags::ANY).map_err(NapiCostError::Read)? else {
                continue;
            };
            let instance = word64(&key, 0);
            let of_cpu = |(cpu, value): (usize, &Vec<u8>)| NapiCost {
                instance,
                cpu: cpu as u32,
                ifindex: word32(value, offset_of!(Raw, ifindex)),
                netns: word32(value, offset_of!(Raw, netns)),
                napi_id: word32(value, offset_of!(Raw, napi_id)),
                irq: Some(word32(value, offset_of!(Raw, irq))).filter(|&irq| irq != 0),
                ns: word64(value, offset_of!(Raw, ns)),
                packets: word64(value, offset_of!(Raw, packets)),
                polls: word64(value, offset_of!(Raw, polls)),
                full_polls: word64(value, offset_of!(Raw, full_polls)),
            };
            out.extend(values.iter().enumerate().map(of_cpu).filter(|c| c.polls > 0));
        }
        Ok(out)
    }

    /// Polls of instances beyond the 4096 that are told apart.
    pub fn untracked(&self) -> Result<u64, NapiCostError> {
        let bss = self.bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(NapiCostError::Read)?;
        Ok(bss.map_or(0, |bytes| word64(&bytes, 0)))
    }
}
