//! The program of one port of a router.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use libbpf_rs::{
    MapCore, MapFlags, MapHandle,
    skel::{OpenSkel, Skel},
};

use model::route::RouteTotals;
use sys::interface::index;

use super::{
    steering::FlowSteering,
    tables::{PORTS_MAX, PROGRAM, RouteTables, set_groups},
};
use crate::{
    chain::{Place, STATE, Slot, SlotMaps},
    counters::{PerCpu, per_cpu},
    filter::Shield,
    link::{XdpError, XdpMode},
    program::{Program, ProgramError, kernel_has, module_has, to_io},
    skel::{
        route::{RouteSkelBuilder, types::route_count},
        route_stateful::RouteStatefulSkelBuilder,
    },
};

pub(super) const STATEFUL: Program = Program("ek_route_state");
/// Kernel functions that it calls, with the Linux version of each.
const NEEDED: [(&str, &str); 3] =
    [("bpf_xdp_ct_lookup", "6.0"), ("bpf_ct_change_timeout", "6.0"), ("bpf_rdonly_cast", "6.2")];

/// The first requirement of mode stateful that the running kernel lacks.
pub fn stateful_lacks() -> Option<ProgramError> {
    // Connection tracking is a module on most kernels.
    let lacks = |&(function, _): &(&str, &str)| !kernel_has(function) && !module_has("nf_conntrack", function);
    let (function, since) = NEEDED.into_iter().find(lacks)?;
    let instead = "mode routed forwards without a look at connections, where no rule of nftables stands";
    Some(ProgramError::Kernel { feature: "mode stateful", function, since, instead })
}

model::route_totals!(per_cpu route_count);

/// A port: its program in the interface's chain, until it is dropped.
#[derive(Debug)]
pub struct RoutePort {
    pub(super) slot: Slot,
    pub(super) program: OwnedFd,
    counts: MapHandle,
    more: MapHandle,
    pub(super) has_state: bool,
    pub(super) steering: Option<FlowSteering>,
    number: usize,
    ifindex: u32,
    /// Packets may come whose checksum is left to a device.
    partial_csum: bool,
    /// Maps of the slot in front, for a program with rules.
    front: Option<SlotMaps>,
}

impl RoutePort {
    /// Loads the program and takes its place on `interface`; no frame meets it before [`RoutePort::put`] or [`RoutePort::put_behind`].
    /// `partial_csum`: packets may come whose checksum is left to a device, of a virtual interface or in generic mode; they go up to the kernel.
    ///
    /// # Errors
    /// [`ProgramError::Setting`] for a port too many, and those of [`Slot::take`].
    pub fn load(
        tables: &RouteTables,
        number: usize,
        interface: &str,
        mac: [u8; 6],
        mode: XdpMode,
        partial_csum: bool,
    ) -> Result<Self, XdpError> {
        Self::load_in(Slot::take(interface, mode, &[Place::Route])?, tables, number, mac, partial_csum)
    }

    /// As [`RoutePort::load`], in the place in which an earlier process left rules under the name `path` ([`RoutePort::pin`]). They hold until
    /// something is put there.
    pub fn take_over(
        tables: &RouteTables,
        number: usize,
        path: &Path,
        mac: [u8; 6],
        partial_csum: bool,
    ) -> Result<Self, XdpError> {
        Self::load_in(Slot::open(path, Place::Route)?, tables, number, mac, partial_csum)
    }

    fn load_in(
        slot: Slot,
        tables: &RouteTables,
        number: usize,
        mac: [u8; 6],
        partial_csum: bool,
    ) -> Result<Self, XdpError> {
        if number >= PORTS_MAX {
            return Err(XdpError::setting(format!("{} ports, but a router has up to {PORTS_MAX}", number + 1)));
        }
        let failed = |source| PROGRAM.refused(source);
        let ifindex = index(slot.interface())?;
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<RouteSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            (knobs.chain_on, knobs.chain_cpus_mask) = (true, SlotMaps::cpus_mask()?);
            (knobs.route_port, knobs.route_ifindex) = (number as u32, ifindex);
            set_groups!(knobs, tables);
            knobs.route_partial_csum = partial_csum;
        }
        slot.maps().lend(open.open_object_mut(), "ek_rests", STATE).map_err(failed)?;
        tables.lend(open.open_object_mut()).map_err(failed)?;
        let skel = PROGRAM.load(open)?;
        let (program, counts, more) = (
            PROGRAM.descriptor(skel.progs.ek_route.as_fd())?,
            PROGRAM.map(&skel.maps.route_counts)?,
            PROGRAM.map(&skel.maps.route_stateful)?,
        );
        tables.set_port(number, ifindex, mac);
        tables.set_transmit(number, Some(ifindex)).map_err(|e| PROGRAM.failed("enter the port", e))?;
        Ok(Self {
            slot,
            program,
            counts,
            more,
            has_state: false,
            steering: None,
            number,
            ifindex,
            partial_csum,
            front: None,
        })
    }

    /// Puts the program in its place.
    pub fn put(&mut self) -> Result<(), XdpError> {
        let program = PROGRAM.descriptor(self.first())?;
        self.slot.put(&[program.as_fd()])
    }

    /// The port's first program behind the rules: the forwarding one, or the one that steers flows to other CPUs.
    pub(super) fn first(&self) -> BorrowedFd<'_> {
        self.steering.as_ref().and_then(FlowSteering::active_program).unwrap_or(self.program.as_fd())
    }

    /// Has frames meet [`RoutePort::first`] as it is now, where the rules stand before it or alone.
    pub(super) fn put_first(&mut self) -> Result<(), XdpError> {
        match &self.front {
            Some(front) => front.go_on_to(self.first()),
            None => self.put(),
        }
    }

    /// Maps that rules for this port are loaded with ([`crate::filter::ShieldConfig::slots`]).
    pub fn front(&mut self) -> Result<SlotMaps, XdpError> {
        let front = match self.front.take() {
            Some(front) => front,
            None => SlotMaps::before(self.first())?,
        };
        Ok(self.front.insert(front).clone())
    }

    /// Puts `rules` in the place, or in the place of those that are there: each frame meets the old ones or the new ones. The program of this
    /// port gets what they let pass.
    ///
    /// # Errors
    /// Rules that were loaded for something else; those of [`Slot::put`]. What was there goes on.
    pub fn put_behind(&mut self, rules: &Shield) -> Result<(), XdpError> {
        if !self.front.as_ref().is_some_and(|front| rules.is_for(front)) {
            return Err(XdpError::setting(format!("the rules were not loaded for {}", self.slot.interface())));
        }
        self.slot.put(&[rules.as_fd()])
    }

    /// Keeps the rules in its place beyond the end of this process, under the name `path` in a BPF file system. The program of this port itself
    /// goes with the process: what the rules let pass goes to the kernel then.
    pub fn pin(&mut self, path: &Path) -> Result<(), XdpError> {
        self.slot.pin(path)
    }

    /// Has the rules end with this port again ([`Slot::unpin`]).
    pub fn unpin(&mut self) {
        self.slot.unpin();
    }

    /// Loads the program of mode stateful beside the other, once: only that mode needs a kernel that has its functions.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] for a kernel without them; what the kernel refuses.
    pub fn add_state(&mut self, tables: &RouteTables) -> Result<(), XdpError> {
        if self.has_state {
            return Ok(());
        }
        if let Some(lacking) = stateful_lacks() {
            return Err(lacking.into());
        }
        let failed = |source| STATEFUL.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = STATEFUL.open::<RouteStatefulSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            (knobs.chain_on, knobs.chain_cpus_mask) = (true, SlotMaps::cpus_mask()?);
            (knobs.route_port, knobs.route_ifindex) = (self.number as u32, self.ifindex);
            set_groups!(knobs, tables);
            knobs.route_connections_mask = tables.slots().groups().connections - 1;
            knobs.route_partial_csum = self.partial_csum;
        }
        self.slot.maps().lend(open.open_object_mut(), "ek_rests", STATE).map_err(failed)?;
        tables.lend(open.open_object_mut()).map_err(failed)?;
        open.maps.route_counts.reuse_fd(self.counts.as_fd()).map_err(failed)?;
        let skel = STATEFUL.load(open)?;
        tables.keep_stateful(skel.object()).map_err(failed)?;
        let program = skel.progs.ek_route_state.as_fd().as_raw_fd();
        let put = self.more.update(&0u32.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY);
        put.map_err(|e| STATEFUL.failed("hand frames over", to_io(&e)))?;
        if let Some(steering) = &mut self.steering {
            steering.add_state((self.number as u32, self.ifindex, self.partial_csum), &self.counts, tables)?;
        }
        self.has_state = true;
        Ok(())
    }

    /// Frames leave by it. The kernel takes an interface that leaves its network namespace out of the map of exits, also if it comes back.
    pub fn enter(&self, tables: &RouteTables) -> io::Result<()> {
        tables.set_transmit(self.number, Some(self.ifindex))
    }

    /// The interface has another name.
    pub fn rename(&mut self, name: &str) {
        self.slot.rename(name.to_owned());
    }

    /// The address on the link is another one now.
    pub fn set_mac(&self, tables: &RouteTables, mac: [u8; 6]) {
        tables.set_port(self.number, self.ifindex, mac);
        tables.flush();
    }

    /// Counters so far, over all CPUs.
    pub fn counts(&self) -> Result<RouteTotals, XdpError> {
        Ok(PROGRAM.sum(&self.counts, "read the map route_counts")?)
    }

    /// Counters of each possible CPU so far.
    pub fn counts_by_cpu(&self) -> Result<Vec<RouteTotals>, XdpError> {
        let of = |raw: &Vec<u8>| {
            let mut totals = RouteTotals::default();
            totals.add(raw);
            totals
        };
        Ok(PROGRAM.per_cpu(&self.counts, "read the map route_counts")?.iter().map(of).collect())
    }

    pub(super) fn partial_csum(&self) -> bool {
        self.partial_csum
    }

    pub(super) fn counts_map(&self) -> &MapHandle {
        &self.counts
    }

    pub(super) fn program(&self) -> &OwnedFd {
        &self.program
    }

    /// The port's place in the interface's chain.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The port's number in the tables.
    pub fn number(&self) -> usize {
        self.number
    }

    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{Program as Loaded, query::ProgInfoIter};

    use super::*;

    /// Instructions that the verifier went through.
    fn verified(program: BorrowedFd<'_>) -> u32 {
        let id = Loaded::id_from_fd(program).expect("an id");
        ProgInfoIter::default().find(|info| info.id == id).expect("a program").verified_insns
    }

    /// The verifier goes once through what asks the kernel for a next hop: for each state that calls it that was half of its work.
    #[test]
    fn the_verifier_is_done_early() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: for root only");
        }
        let (mut object, mut other) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let mut open = PROGRAM.open::<RouteSkelBuilder>(&mut object).expect("the program");
        open.maps.rodata_data.as_deref_mut().expect("knobs").route_partial_csum = true;
        let plain = PROGRAM.load(open).expect("loaded");
        let plain = verified(plain.progs.ek_route.as_fd());
        assert!(plain < 50_000, "ek_route: {plain}");
        if stateful_lacks().is_some() {
            return eprintln!("skipped: mode stateful needs Linux 6.2");
        }
        let mut open = STATEFUL.open::<RouteStatefulSkelBuilder>(&mut other).expect("the program");
        open.maps.rodata_data.as_deref_mut().expect("knobs").route_partial_csum = true;
        let stateful = STATEFUL.load(open).expect("loaded");
        let stateful = verified(stateful.progs.ek_route_state.as_fd());
        // clang 14 makes 184,046 of it, clang 19 228,491.
        assert!(stateful < 250_000, "ek_route_state: {stateful}");
    }
}
