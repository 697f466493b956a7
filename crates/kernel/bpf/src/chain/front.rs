//! The shield's program before another one in the same place: what it lets pass goes on to that one.

use std::os::fd::BorrowedFd;

use libbpf_rs::{MapHandle, MapType, libbpf_sys};

use super::{
    PROGRAM, Place,
    maps::put,
    seat::SeatMaps,
    state::{STATE, state_bytes},
};
use crate::{link::XdpError, program::to_io};

/// CHAIN_RESTS: what follows behind each place, and the same programs again.
const RESTS: u32 = 2 * Place::ALL.len() as u32;

impl SeatMaps {
    /// For a shield's program that stands directly before `next`, which judges in a place that is not the shield's own: captures hear nothing of
    /// its verdicts. `next` is left out once this is dropped, or the process dies; what passes then goes to the kernel.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub(crate) fn before(next: BorrowedFd<'_>) -> Result<Self, XdpError> {
        let failed = |operation| move |e: libbpf_rs::Error| XdpError::from(PROGRAM.failed(operation, to_io(&e)));
        let opts = |flags| libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: flags,
            ..Default::default()
        };
        let rests = MapHandle::create(MapType::ProgArray, Some("ek_rests"), 4, 4, RESTS, &opts(0));
        let rests = rests.map_err(failed("make a place for what follows a program"))?;
        let bytes = state_bytes()? as u32;
        let state = MapHandle::create(MapType::Array, Some(STATE), 4, bytes, 1, &opts(libbpf_sys::BPF_F_MMAPABLE));
        let state = state.map_err(failed("make the state of a chain"))?;
        put(&rests, Place::Filter as u32, next).map_err(|e| PROGRAM.failed("enter what follows a program", e))?;
        Ok(Self::of(rests, state))
    }
}
