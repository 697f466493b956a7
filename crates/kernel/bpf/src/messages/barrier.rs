//! A barrier, and a sum over a cluster, as a second protocol: the handle of `barrier.bpf.c`.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::atomic::Ordering,
    time::Duration,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, skel::OpenSkel};
use sys::map_mmap::SharedMemory;

use super::{
    counts::BarrierCounts,
    endpoints::Endpoints,
    port::{LinkPort, mac_of, set_mac},
    ring::LinkRing,
};
use crate::{
    bytes::{word32, word64},
    chain::{Place, STATE, Slot, SlotMaps},
    link::{XdpError, XdpMode},
    program::{Program, to_io},
    skel::barrier::{
        BarrierSkelBuilder,
        types::{barrier_done, barrier_frame, barrier_group, barrier_slot, link_own},
    },
};

const PROGRAM: Program = Program("ek_barrier");
/// BARRIER_GROUPS, BARRIER_NODES.
const GROUPS: u16 = 64;
const NODES: u8 = (size_of::<barrier_slot>() / 8 - 2) as u8;
const BYTES: usize = size_of::<barrier_frame>();

const _: () = assert!(NODES == 32 && BYTES == 16);

/// The program that counts who has come to a round, in an interface's place of messages, until it is dropped.
#[derive(Debug)]
pub struct LinkBarrier {
    program: OwnedFd,
    counts: MapHandle,
    groups: SharedMemory,
    endpoints: Endpoints,
    position: Position,
}

#[derive(Debug)]
enum Position {
    First(Slot),
    /// Behind another protocol, which hands on what is not its own.
    Behind(MapHandle),
}

/// Message to a barrier's endpoint: all have arrived at the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierDone {
    pub epoch: u32,
    /// The round, from 1 on.
    pub round: u32,
    /// The sum of the values that came. This node's own is not among them.
    pub sum: u64,
}

impl BarrierDone {
    /// Reads what [`LinkRing::consume`] hands over; none if it is something else.
    pub fn read(record: &[u8]) -> Option<Self> {
        let of = |at| word32(record, at);
        (record.len() == size_of::<barrier_done>()).then(|| Self {
            epoch: of(offset_of!(barrier_done, epoch)),
            round: of(offset_of!(barrier_done, round)),
            sum: word64(record, offset_of!(barrier_done, sum)),
        })
    }
}

impl LinkBarrier {
    /// The EtherType of its frames.
    pub const ETHERTYPE: u16 = 0x88B6;

    /// Puts the program in the place of messages on `interface`.
    pub fn attach(interface: &str, mode: XdpMode) -> Result<Self, XdpError> {
        let mut slot = Slot::take(interface, mode, &[Place::Link])?;
        let (maps, mac) = (slot.maps(), mac_of(interface)?);
        Self::load(&maps, mac, |program| {
            slot.put(&[program.as_fd()])?;
            Ok(Position::First(slot))
        })
    }

    /// Puts the program behind that of `port`: both protocols on one interface.
    ///
    /// # Errors
    /// An interface without an address; another protocol that is there; what the kernel refuses.
    pub fn behind(port: &LinkPort) -> Result<Self, XdpError> {
        let next = port.next()?;
        let key = 0u32.to_ne_bytes();
        if next.lookup(&key, MapFlags::ANY).ok().flatten().is_some() {
            return Err(XdpError::setting(format!("{} has a second protocol already", port.slot().interface())));
        }
        Self::load(&port.slot().maps(), mac_of(port.slot().interface())?, |program| {
            let put = next.update(&key, &program.as_raw_fd().to_ne_bytes(), MapFlags::ANY);
            put.map_err(|e| PROGRAM.failed("follow another protocol", to_io(&e)))?;
            Ok(Position::Behind(next))
        })
    }

    fn load(
        maps: &SlotMaps,
        mac: [u8; 6],
        put: impl FnOnce(&OwnedFd) -> Result<Position, XdpError>,
    ) -> Result<Self, XdpError> {
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<BarrierSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            (knobs.chain_on, knobs.chain_cpus_mask) = (true, SlotMaps::cpus_mask()?);
        }
        maps.lend(open.open_object_mut(), "ek_rests", STATE).map_err(|source| PROGRAM.refused(source))?;
        let skel = PROGRAM.load(open)?;
        let program = PROGRAM.descriptor(skel.progs.ek_barrier.as_fd())?;
        set_mac(&PROGRAM.memory(&skel.maps.data_link, size_of::<link_own>(), "map the address")?, mac);
        let bytes = usize::from(GROUPS) * size_of::<barrier_group>();
        let groups = PROGRAM.memory(&skel.maps.barrier_groups, bytes, "map the groups")?;
        let maps = [&skel.maps.link_rings, &skel.maps.link_states, &skel.maps.link_slots];
        let [rings, states, slots] = maps.map(|map| PROGRAM.map(map));
        let endpoints = Endpoints::new(PROGRAM, rings?, states?, &slots?)?;
        let counts = PROGRAM.map(&skel.maps.link_counts)?;
        let position = put(&program)?;
        Ok(Self { program, counts, groups, endpoints, position })
    }

    /// Begins a group's rounds anew, with another epoch (not 0): waits for the nodes of which `nodes` has a bit, this one not among them. The
    /// ring of at least `bytes` gets a [`BarrierDone`] for each round that is complete; [`LinkBarrier::sum`] tells the same.
    ///
    /// # Errors
    /// Group numbers above 63, epoch 0; what the kernel refuses.
    pub fn begin(&mut self, group: u16, epoch: u32, nodes: u32, bytes: usize) -> Result<LinkRing, XdpError> {
        if group >= GROUPS || epoch == 0 {
            return Err(XdpError::setting(format!("a barrier has groups up to {} and epochs from 1 on", GROUPS - 1)));
        }
        let at = usize::from(group) * size_of::<barrier_group>();
        let half = |field| self.groups.half_word(at + field);
        half(offset_of!(barrier_group, nodes)).store(0, Ordering::SeqCst);
        half(offset_of!(barrier_group, epoch)).store(0, Ordering::SeqCst);
        self.endpoints.remove(group.into()..=group.into());
        // At the removal the kernel has waited until no program is at work that saw the epoch before.
        let ring = self.endpoints.add(group.into()..=group.into(), bytes)?;
        let slots = at + offset_of!(barrier_group, slots);
        for word in (slots..at + size_of::<barrier_group>()).step_by(8) {
            self.groups.word(word).store(0, Ordering::Relaxed);
        }
        half(offset_of!(barrier_group, epoch)).store(epoch, Ordering::SeqCst);
        half(offset_of!(barrier_group, nodes)).store(nodes, Ordering::SeqCst);
        Ok(ring)
    }

    /// The sum of a round, if all have come to it; none before, and once the round after the next one is complete. No system call.
    pub fn sum(&self, group: u16, round: u32) -> Option<u64> {
        let slots = usize::from(group) * size_of::<barrier_group>() + offset_of!(barrier_group, slots);
        let slot = slots + (round & 1) as usize * size_of::<barrier_slot>();
        let completed = || self.groups.word(slot + offset_of!(barrier_slot, completed)).load(Ordering::SeqCst);
        let is_complete = || completed() == u64::from(round);
        let sum = is_complete().then(|| self.groups.word(slot + offset_of!(barrier_slot, sum)).load(Ordering::SeqCst));
        // Two rounds later the sum is another one before the number is.
        sum.filter(|_| is_complete())
    }

    /// A frame behind its Ethernet header: `node` of `group` has come to `round` with `value`.
    pub fn frame(group: u16, node: u8, epoch: u32, round: u32, value: u32) -> [u8; BYTES] {
        let mut frame = [0; BYTES];
        let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(barrier_frame, group), &group.to_be_bytes());
        put(offset_of!(barrier_frame, node), &[node]);
        put(offset_of!(barrier_frame, epoch), &epoch.to_be_bytes());
        put(offset_of!(barrier_frame, round), &round.to_be_bytes());
        put(offset_of!(barrier_frame, value), &value.to_be_bytes());
        frame
    }

    /// Counters so far, over all CPUs.
    pub fn counts(&self) -> Result<BarrierCounts, XdpError> {
        Ok(PROGRAM.sum(&self.counts, "read the map link_counts")?)
    }

    /// The mode in which the kernel says that it runs; none: that of the protocol before it.
    pub fn mode(&self) -> Option<XdpMode> {
        match &self.position {
            Position::First(slot) => Some(slot.mode()),
            Position::Behind(_) => None,
        }
    }

    /// Runs the program on a frame, as [`LinkPort::try_frame`] does.
    pub fn try_frame(&self, frame: &[u8], repeat: u32) -> Result<(u32, Duration), XdpError> {
        let ran = PROGRAM.run(&self.program, frame, frame.len(), frame.len(), repeat.cast_signed())?;
        Ok((ran.verdict, ran.time))
    }
}

impl Drop for LinkBarrier {
    fn drop(&mut self) {
        if let Position::Behind(next) = &self.position {
            // That it is empty already is as good.
            let _ = next.delete(&0u32.to_ne_bytes());
        }
    }
}
