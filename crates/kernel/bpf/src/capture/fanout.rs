//! The program by which a packet fanout group chooses its member (PACKET_FANOUT_EBPF).

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::{
    capture::redirect::duplicate,
    skel::fanout::FanoutSkelBuilder,
    xdp::{XdpError, quiet_libbpf},
};

/// Loads a socket filter that gives all packets of one source address to one member, and packets that are neither IPv4 nor
/// IPv6 to the first. It goes with its descriptor; a group that has taken it keeps it.
pub fn by_source_address() -> Result<OwnedFd, XdpError> {
    quiet_libbpf();
    let failed = |source| XdpError::load("fanout", source);
    let mut object = MaybeUninit::uninit();
    let skel = FanoutSkelBuilder::default().open(&mut object).map_err(failed)?.load().map_err(failed)?;
    duplicate(skel.progs.fanout.as_fd(), "fanout")
}
