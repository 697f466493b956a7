//! Capture filters for XDP: libpcap's classic BPF translated to a kernel program of its own.
//!
//! The translated program runs first. A frame that it takes goes on by tail call to the capturing program; any other frame goes on in the
//! interface's chain, or passes to the stack. Loads look at the frame directly where it is linear and go through a helper where it is not; the kernel's verifier checks the
//! result like any other program's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType,
    libbpf_sys::{self, bpf_insn},
};
use sys::packet::Instruction;

use crate::{
    capture::translate::{self, End, FilterError},
    chain::{Place, SlotMaps},
    link::XdpError,
    program::{Program, opts, to_io},
};

const PROGRAM: Program = Program("filter");

/// A translated filter, to be loaded in front of any capturing program.
#[derive(Debug, Clone)]
pub struct Filter {
    insns: Vec<bpf_insn>,
}

impl Filter {
    /// Translates a classic filter, compiled for Ethernet frames.
    pub fn from_classic(classic: &[Instruction]) -> Result<Self, FilterError> {
        translate::translate(classic).map(|insns| Self { insns })
    }

    /// Loads the filter in front of `target`, which has (or has not) multi-buffer support: `frags`. Other frames pass.
    pub fn load(&self, target: BorrowedFd<'_>, frags: bool) -> Result<LoadedFilter, XdpError> {
        self.load_with(target, None, frags, None)
    }

    /// As [`Filter::load`]; frames that it does not take go to the program `skipped` if there is one, or on to what is behind `place` in a chain.
    pub(crate) fn load_with(
        &self,
        target: BorrowedFd<'_>,
        skipped: Option<BorrowedFd<'_>>,
        frags: bool,
        chain: Option<(Place, &SlotMaps)>,
    ) -> Result<LoadedFilter, XdpError> {
        let load_failed = |source| PROGRAM.refused(source);
        let opts = opts!(bpf_map_create_opts {});
        let targets =
            MapHandle::create(MapType::ProgArray, Some("filter_target"), 4, 4, 2, &opts).map_err(load_failed)?;
        let mut insns = self.insns.clone();
        let end = insns.len();
        for at in End::TARGETS {
            insns[end - at].imm = targets.as_fd().as_raw_fd();
        }
        // Without a chain: the entry that is empty.
        let (rest, index) =
            chain.map_or((targets.as_fd().as_raw_fd(), 1), |(place, maps)| (maps.rests(), place as i32));
        (insns[end - End::REST].imm, insns[end - End::REST_INDEX].imm) = (rest, index);
        if chain.is_some_and(|(place, _)| place == Place::Crossing) {
            // It has been sent to another interface already; nothing is behind, as behind the last place.
            insns[end - End::REST_INDEX].imm = Place::End as i32;
            insns[end - End::VERDICT].imm = libbpf_sys::XDP_REDIRECT as i32;
        }
        let mut opts = opts!(bpf_prog_load_opts {
            // The kernel lets programs share a program array only if they agree in this, as libbpf sets it for its own.
            expected_attach_type: libbpf_sys::BPF_XDP,
            prog_flags: if frags { libbpf_sys::BPF_F_XDP_HAS_FRAGS } else { 0 },
        });
        // SAFETY: the strings end in NUL, `insns` holds as many instructions as are named, `opts` is initialised, and all outlive the
        // call.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_XDP,
                c"filter".as_ptr(),
                c"Dual BSD/GPL".as_ptr(),
                insns.as_ptr(),
                insns.len() as libbpf_sys::size_t,
                &raw mut opts,
            )
        };
        if fd < 0 {
            return Err(load_failed(libbpf_rs::Error::from_raw_os_error(-fd)).into());
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let program = unsafe { OwnedFd::from_raw_fd(fd) };
        for (at, target) in (0u32..).zip([Some(target), skipped]) {
            let Some(target) = target else { continue };
            targets
                .update(&at.to_ne_bytes(), &target.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
                .map_err(|e| PROGRAM.failed("put the target into the map filter_target", to_io(&e)))?;
        }
        Ok(LoadedFilter { program, _targets: targets })
    }
}

#[derive(Debug)]
pub struct LoadedFilter {
    program: OwnedFd,
    // A program array is emptied when its last descriptor is closed: it must live as long as the program runs.
    _targets: MapHandle,
}

impl LoadedFilter {
    /// The program to attach instead of the capturing one.
    pub fn entry(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}
