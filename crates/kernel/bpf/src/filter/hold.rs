//! This host's stack kept away from an interface whose frames packet sockets carry.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use libbpf_rs::libbpf_sys;

use crate::{
    link::{XdpError, interface_index},
    program::{Program, ProgramError, kernel_has},
    skel::shield_hold::ShieldHoldSkelBuilder,
};

const PROGRAM: Program = Program("shield_hold");
/// What the kernel attaches links at tc by. The older programs at tc (clsact) stay when their process is killed, and would keep this
/// host's stack away for good.
const TCX: &str = "tcx_link_attach";

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
        let index = interface_index(interface)?.cast_signed();
        if !kernel_has(TCX) {
            return Err(ProgramError::Kernel {
                feature: "`--backend ring`",
                function: TCX,
                since: "6.6",
                instead: "use `--backend xdp`, with `--xdp-mode generic` where the driver has no XDP",
            }
            .into());
        }
        let mut object = MaybeUninit::uninit();
        let skel = PROGRAM.load(PROGRAM.open::<ShieldHoldSkelBuilder>(&mut object)?)?;
        let program = PROGRAM.descriptor(skel.progs.shield_hold.as_fd())?;
        let attach = |at| {
            let opts = libbpf_sys::bpf_link_create_opts {
                sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
                flags: libbpf_sys::BPF_F_BEFORE,
                ..Default::default()
            };
            // SAFETY: the program's descriptor is borrowed for the call, and `opts` is initialised and outlives it.
            let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, at, &raw const opts) };
            if fd < 0 {
                let source = io::Error::from_raw_os_error(-fd);
                let operation = "keep this host's stack away by a program at tc";
                return Err(XdpError::System { interface: interface.to_owned(), operation, source });
            }
            // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        Ok(Self { _links: [attach(libbpf_sys::BPF_TCX_INGRESS)?, attach(libbpf_sys::BPF_TCX_EGRESS)?] })
    }
}
