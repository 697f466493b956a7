//! The two simplest receivers: end every frame, or let every frame pass.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use libbpf_rs::{
    MapHandle,
    skel::{OpenSkel, SkelBuilder},
};

use crate::{
    capture::redirect::{duplicate, number, per_cpu},
    skel::{xdp_drop::XdpDropSkelBuilder, xdp_pass::XdpPassSkelBuilder},
    xdp::{XdpError, XdpLink, XdpMode, quiet_libbpf},
};

/// What [`XdpDrop`] has ended so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropCounts {
    /// Frames.
    pub frames: u64,
    /// Their bytes without FCS.
    pub bytes: u64,
}

/// Counts and ends every frame of an interface, until it is dropped.
#[derive(Debug)]
pub struct XdpDrop {
    link: XdpLink,
    counts: MapHandle,
}

impl XdpDrop {
    /// Loads and attaches it. See [`XdpLink::attach`] for what is refused.
    pub fn attach(interface: &str, mode: XdpMode) -> Result<Self, XdpError> {
        quiet_libbpf();
        let failed = |source| XdpError::load("xdp_drop", source);
        let mut object = MaybeUninit::uninit();
        let skel = XdpDropSkelBuilder::default().open(&mut object).map_err(failed)?.load().map_err(failed)?;
        let link = XdpLink::attach(skel.progs.xdp_drop.as_fd(), "xdp_drop", interface, mode)?;
        Ok(Self { link, counts: MapHandle::try_from(&skel.maps.drop_counts).map_err(failed)? })
    }

    /// What it has ended so far, over all CPUs.
    pub fn counts(&self) -> Result<DropCounts, XdpError> {
        let mut sum = DropCounts::default();
        for count in per_cpu(&self.counts, "xdp_drop", "read the map drop_counts")? {
            let (frames, bytes) = count.split_at(size_of::<u64>());
            sum.frames += number(frames);
            sum.bytes += number(bytes);
        }
        Ok(sum)
    }

    /// The attached program.
    pub fn link(&self) -> &XdpLink {
        &self.link
    }
}

/// Lets every frame of an interface pass, until it is dropped. A veth end takes redirected and live frames only while it runs
/// an XDP program: this one is there for its own sake.
#[derive(Debug)]
pub struct XdpPass {
    link: XdpLink,
    _program: OwnedFd,
}

impl XdpPass {
    /// Loads and attaches it. See [`XdpLink::attach`] for what is refused.
    pub fn attach(interface: &str, mode: XdpMode) -> Result<Self, XdpError> {
        quiet_libbpf();
        let failed = |source| XdpError::load("xdp_pass", source);
        let mut object = MaybeUninit::uninit();
        let skel = XdpPassSkelBuilder::default().open(&mut object).map_err(failed)?.load().map_err(failed)?;
        let program = duplicate(skel.progs.xdp_pass.as_fd(), "xdp_pass")?;
        let link = XdpLink::attach(program.as_fd(), "xdp_pass", interface, mode)?;
        Ok(Self { link, _program: program })
    }

    /// The attached program.
    pub fn link(&self) -> &XdpLink {
        &self.link
    }
}
