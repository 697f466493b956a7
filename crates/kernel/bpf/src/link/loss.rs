//! A wire that loses frames, for measurements.

use std::{mem::MaybeUninit, os::fd::AsFd};

use libbpf_rs::{TC_INGRESS, TcHookBuilder};

use crate::{
    link::{XdpError, interface_index},
    program::{Program, to_io},
    skel::loss::LossSkelBuilder,
};

const PROGRAM: Program = Program("ek_loss");

/// Takes all frames that arrive on `from`, of this network namespace, to `to`, but for `lost_per_million` of a million, drawn at random. It stays as
/// long as `from`. A frame that is longer than the MTU because its sender leaves segmentation to the link counts as one.
pub fn lossy_wire(from: &str, to: &str, lost_per_million: u32) -> Result<(), XdpError> {
    let mut object = MaybeUninit::uninit();
    let mut open = PROGRAM.open::<LossSkelBuilder>(&mut object)?;
    if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
        knobs.loss_to = interface_index(to)?;
        knobs.loss_of = u32::try_from((u64::from(lost_per_million) << 32) / 1_000_000).unwrap_or(u32::MAX);
    }
    let skel = PROGRAM.load(open)?;
    TcHookBuilder::new(skel.progs.ek_loss.as_fd())
        .ifindex(interface_index(from)?.cast_signed())
        .replace(true)
        .handle(1)
        .priority(1)
        .hook(TC_INGRESS)
        .create()
        .and_then(|mut hook| hook.attach())
        .map_err(|e| XdpError::System {
            interface: from.to_owned(),
            operation: "lose frames by a program at tc",
            source: to_io(&e),
        })?;
    Ok(())
}
