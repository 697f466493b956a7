//! Guard between packet sockets of untrusted programs and the interface that carries messages.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};
use sys::interface::index;

use crate::{
    PortOwners,
    link::{XdpError, attach_at_tc, attach_at_tcx},
    program::{Program, ProgramError, needs_tcx, to_io},
    skel::guard::GuardSkelBuilder,
};

const PROGRAM: Program = Program("guard");

/// The owners ([`PortOwners`]) whose sockets are guarded have this bit.
pub const GUARDED: u32 = 1 << 31;

/// Programs that let a socket send only frames in the name of its owner's ports, and bring it what comes for them.
///
/// The one that lets out stays as long as the pair of interfaces, whatever becomes of this process: nothing gets past it. The one that brings in goes
/// when this is dropped.
#[derive(Debug)]
pub struct LinkGuard {
    sockets: MapHandle,
    counts: MapHandle,
    _brings: OwnedFd,
}

impl LinkGuard {
    /// Between `door`, the near end of a pair of interfaces whose far end is the sockets' only one, and `wire`, whose address is `address`.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] below 6.6, which has no tcx; the kernel refuses.
    pub fn attach(owners: &PortOwners, wire: &str, address: [u8; 6], door: &str) -> Result<Self, XdpError> {
        needs_tcx("`--group`", "leave it out: root's programs alone have ports then")?;
        let (wire_index, door_index) = (index(wire)?, index(door)?);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<GuardSkelBuilder>(&mut object)?;
        open.maps.port_owners.reuse_fd(owners.map().as_fd()).map_err(|e| PROGRAM.refused(e))?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            let [a, b, c, d, e, f] = address;
            knobs.wire = wire_index;
            knobs.door = door_index;
            knobs.address = [[a, b], [c, d], [e, f]].map(u16::from_ne_bytes);
        }
        let skel = PROGRAM.load(open)?;
        attach_at_tc(skel.progs.link_guard_out.as_fd(), door, "guard programs of other users by a program at tc")?;
        let brings = PROGRAM.descriptor(skel.progs.link_guard_in.as_fd())?;
        let operation = "bring frames to programs of other users by a program at tc";
        let link = attach_at_tcx(brings.as_fd(), wire, (libbpf_sys::BPF_TCX_INGRESS, 0), operation)?;
        let counts = PROGRAM.map(&skel.maps.guard_refused)?;
        Ok(Self { sockets: PROGRAM.map(&skel.maps.guarded_sockets)?, counts, _brings: link })
    }

    /// Lets a socket, which this number of the kernel (SO_COOKIE) names, send in the name of an owner's ports.
    pub fn admit(&self, cookie: u64, owner: u32) -> Result<(), ProgramError> {
        let done = self.sockets.update(&cookie.to_ne_bytes(), &owner.to_ne_bytes(), MapFlags::ANY);
        done.map_err(|e| PROGRAM.failed("let a socket send", to_io(&e)))
    }

    /// Lets it send no longer.
    pub fn expel(&self, cookie: u64) {
        // One that is not there sends nothing.
        let _ = self.sockets.delete(&cookie.to_ne_bytes());
    }

    /// Frames that were not let out.
    pub fn refused(&self) -> Result<u64, ProgramError> {
        let values = PROGRAM.per_cpu(&self.counts, "read the count of refused frames")?;
        Ok(values.iter().filter_map(|v| v.first_chunk().copied()).map(u64::from_ne_bytes).sum())
    }
}
