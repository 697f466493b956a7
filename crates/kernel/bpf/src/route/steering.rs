//! The CPUs that forward what a port's own core receives.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, ProgramAttachType,
    skel::{OpenSkel, Skel},
};
use model::{CpuSet, route::RouteLost};

use super::{
    port::{RoutePort, STATEFUL},
    tables::{PROGRAM as ROUTE, RouteTables, set_groups},
};
use crate::{
    bytes::word64,
    chain::{STATE, SlotMaps},
    link::XdpError,
    program::{Program, kernel_traces, to_io},
    skel::{
        route::RouteSkelBuilder,
        route_loss::{RouteLossSkelBuilder, types::route_loss},
        route_stateful::RouteStatefulSkelBuilder,
        route_steer::RouteSteerSkelBuilder,
    },
};

const PROGRAM: Program = Program("ek_route_steer");
const LOSS: Program = Program("route_loss");
/// Frames that a queue to a CPU holds, at the most (kernel/bpf/cpumap.c).
pub const QUEUE_MAX: u32 = 16384;

/// Steering of a port's flows to CPUs: the program in the port's slot, the queues (a CPU map), and the programs behind them.
#[derive(Debug)]
pub(super) struct FlowSteering {
    /// The steering program, in the port's slot or directly behind the rules there.
    program: OwnedFd,
    /// Tail call to `ek_route`: the kernel empties the map with its last descriptor.
    _here: MapHandle,
    /// Queues of CPUs, by the CPU's number.
    queues: MapHandle,
    /// `ek_route`, behind the queues.
    taker: OwnedFd,
    /// The program of mode stateful, behind the queues.
    more: MapHandle,
    has_state: bool,
    on: CpuSet,
    /// True while it runs in the port's slot.
    is_active: bool,
}

impl FlowSteering {
    fn load(port: &RoutePort, tables: &RouteTables) -> Result<Self, XdpError> {
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = ROUTE.open::<RouteSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            (knobs.route_port, knobs.route_ifindex) = (port.number() as u32, port.ifindex());
            set_groups!(knobs, tables);
            (knobs.route_from_queue, knobs.route_partial_csum) = (true, port.partial_csum());
        }
        // Calls between programs of interfaces and those of queues are refused: what follows in the chain is not called from here.
        open.progs.ek_route.set_attach_type(ProgramAttachType::XdpCpumap);
        tables.lend(open.open_object_mut()).map_err(failed)?;
        open.maps.route_counts.reuse_fd(port.counts_map().as_fd()).map_err(failed)?;
        let skel = ROUTE.load(open)?;
        let (taker, more) = (ROUTE.descriptor(skel.progs.ek_route.as_fd())?, ROUTE.map(&skel.maps.route_stateful)?);

        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<RouteSteerSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            (knobs.chain_on, knobs.chain_cpus_mask) = (true, SlotMaps::cpus_mask()?);
            (knobs.route_port, knobs.route_ifindex) = (port.number() as u32, port.ifindex());
            knobs.route_partial_csum = port.partial_csum();
        }
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed)? as u32;
        open.maps.route_cpus.set_max_entries(cpus).map_err(failed)?;
        port.slot().maps().lend(open.open_object_mut(), "ek_rests", STATE).map_err(failed)?;
        tables.lend(open.open_object_mut()).map_err(failed)?;
        open.maps.route_counts.reuse_fd(port.counts_map().as_fd()).map_err(failed)?;
        let skel = PROGRAM.load(open)?;
        let itself = port.program().as_raw_fd().to_ne_bytes();
        let put = skel.maps.route_local.update(&0u32.to_ne_bytes(), &itself, MapFlags::ANY);
        put.map_err(|e| PROGRAM.failed("keep frames on the core that receives them", to_io(&e)))?;
        let here = PROGRAM.map(&skel.maps.route_local)?;
        let (program, queues) =
            (PROGRAM.descriptor(skel.progs.ek_route_steer.as_fd())?, PROGRAM.map(&skel.maps.route_cpus)?);
        Ok(Self { program, _here: here, queues, taker, more, has_state: false, on: CpuSet::new(), is_active: false })
    }

    /// The steering program, while CPUs are assigned.
    pub(super) fn active_program(&self) -> Option<BorrowedFd<'_>> {
        self.is_active.then(|| self.program.as_fd())
    }

    /// Loads the program of mode stateful behind the queues, once.
    pub(super) fn add_state(
        &mut self,
        port: (u32, u32, bool),
        counts: &MapHandle,
        tables: &RouteTables,
    ) -> Result<(), XdpError> {
        if self.has_state {
            return Ok(());
        }
        let failed = |source| STATEFUL.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = STATEFUL.open::<RouteStatefulSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            (knobs.route_port, knobs.route_ifindex, knobs.route_partial_csum) = port;
            set_groups!(knobs, tables);
            knobs.route_connections_mask = tables.slots().groups().connections - 1;
        }
        open.progs.ek_route_state.set_attach_type(ProgramAttachType::XdpCpumap);
        tables.lend(open.open_object_mut()).map_err(failed)?;
        open.maps.route_counts.reuse_fd(counts.as_fd()).map_err(failed)?;
        let skel = STATEFUL.load(open)?;
        tables.keep_stateful(skel.object()).map_err(failed)?;
        let program = skel.progs.ek_route_state.as_fd().as_raw_fd();
        let put = self.more.update(&0u32.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY);
        put.map_err(|e| STATEFUL.failed("hand frames over", to_io(&e)))?;
        self.has_state = true;
        Ok(())
    }

    /// Makes the queue of a CPU, which begins to take frames once flows are assigned to it.
    fn add(&mut self, cpu: u32, queue: u32) -> Result<(), XdpError> {
        if self.on.contains(cpu) {
            return Ok(());
        }
        let value = [queue.to_ne_bytes(), self.taker.as_raw_fd().to_ne_bytes()].concat();
        self.queues.update(&cpu.to_ne_bytes(), &value, MapFlags::ANY).map_err(|e| {
            let source = to_io(&e);
            match source.raw_os_error() {
                Some(libc::ENODEV) => XdpError::setting(format!("there is no CPU {cpu}")),
                _ => PROGRAM.failed("make the queue to a CPU", source).into(),
            }
        })?;
        self.on.insert(cpu);
        Ok(())
    }

    /// Takes away the queues of all CPUs but these. What is in them is forwarded first.
    fn keep(&mut self, cpus: &CpuSet) {
        for cpu in self.on.difference(cpus).iter() {
            // It is there: nobody else takes it away.
            let _ = self.queues.delete(&cpu.to_ne_bytes());
        }
        self.on = self.on.intersection(cpus);
    }
}

impl RoutePort {
    /// Makes a queue of `queue` frames to each of these CPUs, to which flows can then be assigned ([`RouteTables::set_indirection`]).
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for a CPU that this machine cannot have; what the kernel refuses.
    pub fn add_cpus(&mut self, tables: &RouteTables, cpus: &CpuSet, queue: u32) -> Result<(), XdpError> {
        let mut steering = match self.steering.take() {
            Some(steering) => steering,
            None => FlowSteering::load(self, tables)?,
        };
        if self.has_state {
            let port = (self.number() as u32, self.ifindex(), self.partial_csum());
            steering.add_state(port, self.counts_map(), tables)?;
        }
        let added = cpus.iter().try_for_each(|cpu| steering.add(cpu, queue.clamp(1, QUEUE_MAX)));
        self.steering = Some(steering);
        added
    }

    /// Has these CPUs forward, which have queues, and no others; none: the core that receives does. Each frame meets the one or the other.
    pub fn use_cpus(&mut self, cpus: &CpuSet) -> Result<(), XdpError> {
        let Some(steering) = &mut self.steering else { return Ok(()) };
        let before = std::mem::replace(&mut steering.is_active, !cpus.is_empty());
        let put = self.put_first();
        if let Some(steering) = &mut self.steering {
            match put {
                Ok(()) => steering.keep(cpus),
                Err(_) => steering.is_active = before,
            }
        }
        put
    }

    /// The number of its CPU map in the kernel; none: it has none.
    pub fn queues_id(&self) -> Option<u32> {
        Some(self.steering.as_ref()?.queues.info().ok()?.info.id)
    }
}

/// Counts the frames that are lost on their way to a CPU. The kernel tells of them by tracepoints alone.
pub struct RouteLosses {
    losses: MapHandle,
    _links: Vec<Link>,
}

impl std::fmt::Debug for RouteLosses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouteLosses").finish_non_exhaustive()
    }
}

impl RouteLosses {
    /// Begins to count for the CPU maps with these numbers; none: this kernel does not let these tracepoints be followed.
    pub fn attach(maps: &[u32]) -> Result<Option<Self>, XdpError> {
        if !["xdp_cpumap_enqueue", "xdp_cpumap_kthread"].into_iter().all(kernel_traces) {
            return Ok(None);
        }
        let mut object = MaybeUninit::uninit();
        let open = LOSS.open::<RouteLossSkelBuilder>(&mut object)?;
        let skel = LOSS.load(open)?;
        let losses = LOSS.map(&skel.maps.route_losses)?;
        for map in maps {
            let none = [0; size_of::<route_loss>()];
            losses.update(&map.to_ne_bytes(), &none, MapFlags::ANY).map_err(|e| LOSS.failed("count", to_io(&e)))?;
        }
        let links = [skel.progs.route_queue_full.attach(), skel.progs.route_not_taken.attach()];
        let links = links.into_iter().collect::<Result<_, _>>().map_err(|e| LOSS.refused(e))?;
        Ok(Some(Self { losses, _links: links }))
    }

    /// Frames lost so far on the way to the CPUs of that map.
    pub fn of(&self, map: u32) -> Result<RouteLost, XdpError> {
        let found = self.losses.lookup(&map.to_ne_bytes(), MapFlags::ANY);
        let raw = found.map_err(|e| LOSS.failed("read the map route_losses", to_io(&e)))?.unwrap_or_default();
        let field = |at: usize| if raw.is_empty() { 0 } else { word64(&raw, at) };
        Ok(RouteLost {
            queue_full: field(offset_of!(route_loss, queue_full)),
            no_memory: field(offset_of!(route_loss, no_memory)),
            not_sent: field(offset_of!(route_loss, not_sent)),
        })
    }
}
