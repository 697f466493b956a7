//! The shield's program before another one in the same place: what it lets pass goes on to that one.

use std::os::fd::BorrowedFd;

use libbpf_rs::{MapHandle, MapType, libbpf_sys};

use super::{
    Maps, PROGRAM, Place,
    maps::{self, put, sits},
    slot::SlotMaps,
    state::{STATE, state_bytes},
};
use crate::{
    link::XdpError,
    program::{opts, to_io},
};

/// CHAIN_RESTS: what follows behind each place, and the same programs again.
const ENTRIES: u32 = 2 * Place::ALL.len() as u32;

/// The id of the program that follows one before it ([`SlotMaps::before`]), of whose maps these are some.
pub(crate) fn behind(maps: &Maps) -> Option<u32> {
    sits(maps.get(maps::RESTS).ok()?, Place::Filter as u32)
}

impl SlotMaps {
    /// For a shield's program that stands directly before `next`, which judges in a place that is not the shield's own: captures hear nothing of
    /// its verdicts. `next` is left out once this is dropped, or the process dies; what passes then goes to the kernel.
    pub(crate) fn before(next: BorrowedFd<'_>) -> Result<Self, XdpError> {
        let failed = |operation| move |e: libbpf_rs::Error| XdpError::from(PROGRAM.failed(operation, to_io(&e)));
        let opts = |map_flags| opts!(bpf_map_create_opts { map_flags });
        let rests = MapHandle::create(MapType::ProgArray, Some(maps::RESTS), 4, 4, ENTRIES, &opts(0));
        let rests = rests.map_err(failed("make a place for what follows a program"))?;
        let bytes = state_bytes()? as u32;
        let state = MapHandle::create(MapType::Array, Some(STATE), 4, bytes, 1, &opts(libbpf_sys::BPF_F_MMAPABLE));
        let state = state.map_err(failed("make the state of a chain"))?;
        let front = Self::of(rests, state);
        front.go_on_to(next)?;
        Ok(front)
    }

    /// Replaces the program behind a place of [`SlotMaps::before`]. Each frame meets the old one or the new one.
    ///
    /// # Errors
    /// The kernel refuses; the program of before stays.
    pub(crate) fn go_on_to(&self, next: BorrowedFd<'_>) -> Result<(), XdpError> {
        let entered = put(self.rests_map(), Place::Filter as u32, next);
        Ok(entered.map_err(|e| PROGRAM.failed("enter what follows a program", e))?)
    }
}
