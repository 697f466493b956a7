//! The program by which a packet fanout group chooses its member (PACKET_FANOUT_EBPF).

use std::{mem::MaybeUninit, os::fd::OwnedFd};

use crate::{
    program::{Program, ProgramError},
    skel::fanout::FanoutSkelBuilder,
};

const PROGRAM: Program = Program("fanout");

/// Loads a socket filter that gives all packets of one source address to one member, and packets that are neither IPv4 nor
/// IPv6 to the first. It goes with its descriptor; a group that has taken it keeps it.
pub fn by_source_address() -> Result<OwnedFd, ProgramError> {
    let mut object = MaybeUninit::uninit();
    let skel = PROGRAM.load(PROGRAM.open::<FanoutSkelBuilder>(&mut object)?)?;
    PROGRAM.descriptor(&skel.progs.fanout)
}
