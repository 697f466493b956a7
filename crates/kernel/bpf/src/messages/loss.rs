//! A wire that loses frames, for measurements.

use std::{mem::MaybeUninit, os::fd::AsFd};
use sys::interface::index;

use crate::{
    link::{XdpError, attach_at_tc},
    program::Program,
    skel::loss::LossSkelBuilder,
};

const PROGRAM: Program = Program("ek_loss");

/// Takes all frames that arrive on `from`, of this network namespace, to `to`, but for `lost_per_million` of a million, drawn at random. It stays as
/// long as `from`. A frame that is longer than the MTU because its sender leaves segmentation to the link counts as one.
pub fn lossy_wire(from: &str, to: &str, lost_per_million: u32) -> Result<(), XdpError> {
    let mut object = MaybeUninit::uninit();
    let mut open = PROGRAM.open::<LossSkelBuilder>(&mut object)?;
    if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
        knobs.loss_to = index(to)?;
        knobs.loss_of = u32::try_from((u64::from(lost_per_million) << 32) / 1_000_000).unwrap_or(u32::MAX);
    }
    let skel = PROGRAM.load(open)?;
    attach_at_tc(skel.progs.ek_loss.as_fd(), from, "lose frames by a program at tc")
}
