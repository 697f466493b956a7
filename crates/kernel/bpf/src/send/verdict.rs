//! The two simplest receivers: end every frame, or let every frame pass.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use libbpf_rs::MapHandle;

use crate::{
    chain::AtEnd,
    counters::per_cpu,
    link::{XdpError, XdpMode},
    program::Program,
    skel::{
        xdp_drop::{XdpDropSkelBuilder, types::drop_count},
        xdp_pass::XdpPassSkelBuilder,
    },
};

const DROP: Program = Program("xdp_drop");
const PASS: Program = Program("xdp_pass");

per_cpu! {
    /// The frames that [`XdpDrop`] has ended so far.
    pub struct DropCounts of drop_count {
        frames,
        /// Bytes of the frames without FCS.
        bytes,
    }
}

/// Counts and ends every frame of an interface, until it is dropped.
#[derive(Debug)]
pub struct XdpDrop {
    link: AtEnd,
    counts: MapHandle,
}

impl XdpDrop {
    /// Loads and attaches it. See [`AtEnd::attach`] for what is refused.
    pub fn attach(interface: &str, mode: XdpMode) -> Result<Self, XdpError> {
        let mut object = MaybeUninit::uninit();
        let skel = DROP.load(DROP.open::<XdpDropSkelBuilder>(&mut object)?)?;
        let link = AtEnd::attach(skel.progs.xdp_drop.as_fd(), DROP, interface, mode)?;
        Ok(Self { link, counts: DROP.map(&skel.maps.drop_counts)? })
    }

    /// Counts so far, over all CPUs.
    pub fn counts(&self) -> Result<DropCounts, XdpError> {
        Ok(DROP.sum(&self.counts, "read the map drop_counts")?)
    }

    pub fn link(&self) -> &AtEnd {
        &self.link
    }
}

/// Lets every frame of an interface pass, until it is dropped. A veth end takes redirected and live frames only while it runs
/// an XDP program: this one is there for its own sake.
#[derive(Debug)]
pub struct XdpPass {
    link: AtEnd,
    _program: OwnedFd,
}

impl XdpPass {
    /// Loads and attaches it. See [`AtEnd::attach`] for what is refused.
    pub fn attach(interface: &str, mode: XdpMode) -> Result<Self, XdpError> {
        let mut object = MaybeUninit::uninit();
        let skel = PASS.load(PASS.open::<XdpPassSkelBuilder>(&mut object)?)?;
        let program = PASS.descriptor(&skel.progs.xdp_pass)?;
        let link = AtEnd::attach(program.as_fd(), PASS, interface, mode)?;
        Ok(Self { link, _program: program })
    }

    pub fn link(&self) -> &AtEnd {
        &self.link
    }
}
