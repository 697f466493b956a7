//! Memory that packet work takes on a CPU (`src/trace/allocations.bpf.c`).

use std::mem::{MaybeUninit, offset_of};

use libbpf_rs::{Link, MapHandle, skel::Skel};

use crate::{
    bytes::word64,
    program::{Program, ProgramError},
    skel::allocations::{AllocationsSkelBuilder, types::allocated as Raw},
};

const PROGRAM: Program = Program("allocations");

/// Memory that packet work took since the count began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocated {
    /// Pages from the page allocator, without those that a page pool took in bulk.
    pub pages: u64,
    /// Pages that came new to a page pool.
    pub pool_pages: u64,
    /// Socket buffers that ended.
    pub buffers: u64,
}

/// Counts on all CPUs until it is dropped. Each event that it counts becomes slower by some ten nanoseconds.
#[derive(Debug)]
pub struct AllocationCounter {
    _links: Vec<Link>,
    counts: MapHandle,
}

impl AllocationCounter {
    /// Starts counting. Needs CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    /// A privilege is missing, or the kernel lacks BTF or one of the tracepoints (page pools are built in only with a driver that has one).
    pub fn attach() -> Result<Self, ProgramError> {
        let failed = |e| PROGRAM.refused(e);
        let mut object = MaybeUninit::uninit();
        let open = PROGRAM.open::<AllocationsSkelBuilder>(&mut object)?;
        let mut skel = PROGRAM.load(open)?;
        let counts = PROGRAM.map(&skel.maps.allocations)?;
        let mut links = Vec::new();
        for program in skel.object_mut().progs_mut() {
            links.push(program.attach().map_err(failed)?);
        }
        Ok(Self { _links: links, counts })
    }

    /// The sums over `cpus` so far.
    pub fn read(&self, cpus: &[u32]) -> Result<Allocated, ProgramError> {
        let all = PROGRAM.per_cpu(&self.counts, "read the map allocations")?;
        let of_cpus = cpus.iter().filter_map(|&cpu| all.get(cpu as usize));
        Ok(of_cpus.fold(Allocated::default(), |sum, raw| Allocated {
            pages: sum.pages + word64(raw, offset_of!(Raw, pages)),
            pool_pages: sum.pool_pages + word64(raw, offset_of!(Raw, pool_pages)),
            buffers: sum.buffers + word64(raw, offset_of!(Raw, buffers)),
        }))
    }
}

impl Allocated {
    /// Counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            pages: self.pages.saturating_sub(earlier.pages),
            pool_pages: self.pool_pages.saturating_sub(earlier.pool_pages),
            buffers: self.buffers.saturating_sub(earlier.buffers),
        }
    }
}
