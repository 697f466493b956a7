//! The program by which the packet sockets of a node share its frames: each gets those for the ports that it owns.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::{
    program::{Program, ProgramError, to_io},
    skel::{port_owner::PortOwnerSkelBuilder, port_reuse::PortReuseSkelBuilder},
};

const PROGRAM: Program = Program("port_owner");
const REUSE: Program = Program("port_reuse");

/// Owners of a node's ports. Owner 0 has all that nobody else has.
#[derive(Debug)]
pub struct PortOwners {
    map: MapHandle,
    filter: OwnedFd,
}

impl PortOwners {
    /// All ports belong to owner 0.
    ///
    /// # Errors
    /// The kernel refuses the program: CAP_BPF lacks, or memory.
    pub fn new() -> Result<Self, ProgramError> {
        let mut object = MaybeUninit::uninit();
        let skel = PROGRAM.load(PROGRAM.open::<PortOwnerSkelBuilder>(&mut object)?)?;
        Ok(Self { map: PROGRAM.map(&skel.maps.port_owners)?, filter: PROGRAM.descriptor(&skel.progs.port_owner)? })
    }

    pub(crate) fn map(&self) -> &MapHandle {
        &self.map
    }

    /// The filter of owner 0 (SO_ATTACH_BPF).
    pub fn rest(&self) -> impl AsFd {
        self.filter.as_fd()
    }

    /// The filter of another owner.
    pub fn filter(&self, owner: u32) -> Result<OwnedFd, ProgramError> {
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<PortOwnerSkelBuilder>(&mut object)?;
        open.maps.port_owners.reuse_fd(self.map.as_fd()).map_err(|e| PROGRAM.refused(e))?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.owner = owner;
        }
        PROGRAM.descriptor(&PROGRAM.load(open)?.progs.port_owner)
    }

    /// Gives a port to an owner, from the next frame on.
    pub fn set(&self, port: u16, owner: u32) -> Result<(), ProgramError> {
        let done = self.map.update(&u32::from(port).to_ne_bytes(), &owner.to_ne_bytes(), MapFlags::ANY);
        done.map_err(|e| PROGRAM.failed("give a port to its owner", to_io(&e)))
    }

    /// The owners for UDP sockets that share a port of UDP.
    pub fn sockets(&self) -> Result<PortSockets, ProgramError> {
        let mut object = MaybeUninit::uninit();
        let mut open = REUSE.open::<PortReuseSkelBuilder>(&mut object)?;
        open.maps.port_owners.reuse_fd(self.map.as_fd()).map_err(|e| REUSE.refused(e))?;
        let skel = REUSE.load(open)?;
        Ok(PortSockets {
            map: REUSE.map(&skel.maps.owner_sockets)?,
            program: REUSE.descriptor(&skel.progs.port_reuse)?,
        })
    }
}

/// The UDP sockets of the owners of a node's ports, and the program by which each gets its own datagrams.
#[derive(Debug)]
pub struct PortSockets {
    map: MapHandle,
    program: OwnedFd,
}

impl PortSockets {
    /// The program for SO_ATTACH_REUSEPORT_EBPF.
    pub fn program(&self) -> impl AsFd {
        self.program.as_fd()
    }

    /// Gives an owner a socket, which is bound and shares its port. It leaves when it is closed.
    pub fn set(&self, owner: u32, socket: impl AsFd) -> Result<(), ProgramError> {
        let socket = u64::from(socket.as_fd().as_raw_fd().cast_unsigned());
        let done = self.map.update(&owner.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY);
        done.map_err(|e| REUSE.failed("give a socket to its owner", to_io(&e)))
    }

    /// Takes it away; what comes for that owner is dropped.
    pub fn remove(&self, owner: u32) {
        // It may have been closed already.
        let _ = self.map.delete(&owner.to_ne_bytes());
    }
}
