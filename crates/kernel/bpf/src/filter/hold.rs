//! This host's stack kept away from an interface whose frames packet sockets carry.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use libbpf_rs::libbpf_sys;
use sys::interface::index;

use crate::{
    link::{XdpError, attach_at_tcx},
    program::{Program, needs_tcx},
    skel::shield_hold::ShieldHoldSkelBuilder,
};

const PROGRAM: Program = Program("shield_hold");

/// Programs at tc ingress and egress that drop what comes to them: the stack gets nothing from the interface and gets nothing out by it.
/// Packet sockets read before the one, and write past the other with PACKET_QDISC_BYPASS. They go when this is dropped.
#[derive(Debug)]
pub struct StackHold {
    _links: [OwnedFd; 2],
}

impl StackHold {
    /// In front of all other programs at tc (tcx) of `interface`.
    ///
    /// # Errors
    /// [`crate::ProgramError::Kernel`] below 6.6, which has no tcx; [`crate::ProgramError::Load`]; [`XdpError::System`] for what else the kernel refuses.
    pub fn attach(interface: &str) -> Result<Self, XdpError> {
        index(interface)?;
        needs_tcx("`--backend ring`", "use `--backend xdp`, with `--xdp-mode generic` where the driver has no XDP")?;
        let mut object = MaybeUninit::uninit();
        let skel = PROGRAM.load(PROGRAM.open::<ShieldHoldSkelBuilder>(&mut object)?)?;
        let program = PROGRAM.descriptor(skel.progs.shield_hold.as_fd())?;
        let operation = "keep this host's stack away by a program at tc";
        let attach = |at| attach_at_tcx(program.as_fd(), interface, (at, libbpf_sys::BPF_F_BEFORE), operation);
        Ok(Self { _links: [attach(libbpf_sys::BPF_TCX_INGRESS)?, attach(libbpf_sys::BPF_TCX_EGRESS)?] })
    }
}
