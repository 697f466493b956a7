//! Memory that packet work takes on a CPU (`src/trace/allocations.bpf.c`).

use std::mem::MaybeUninit;

use libbpf_rs::{Link, MapHandle, skel::Skel};

use crate::{
    counters::{PerCpu as _, per_cpu},
    program::{Program, ProgramError},
    skel::allocations::{AllocationsSkelBuilder, types::allocated},
};

const PROGRAM: Program = Program("allocations");

per_cpu! {
    /// Memory that packet work took since the count began.
    pub struct Allocated of allocated {
        /// Pages from the page allocator, without those that a page pool took in bulk.
        pages,
        /// Pages that came new to a page pool.
        pool_pages,
        /// Socket buffers that ended.
        buffers,
    }
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
        let mut sum = Allocated::default();
        cpus.iter().filter_map(|&cpu| all.get(cpu as usize)).for_each(|raw| sum.add(raw));
        Ok(sum)
    }
}
