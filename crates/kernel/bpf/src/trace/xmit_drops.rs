//! Frames that a device refused when they were redirected to it (`src/trace/xmit_drops.bpf.c`).

use std::{fs::File, mem::MaybeUninit, os::unix::fs::MetadataExt};

use libbpf_rs::{
    Link, MapHandle,
    skel::{OpenSkel, SkelBuilder},
};

use crate::{
    capture::redirect::{number, per_cpu},
    skel::xmit_drops::XmitDropsSkelBuilder,
    xdp::{XdpError, interface_index, quiet_libbpf},
};

const PROGRAM: &str = "xmit_drops";

/// Counts refused frames of one interface until it is dropped.
#[derive(Debug)]
pub struct XmitDrops {
    _link: Link,
    refused: MapHandle,
}

impl XmitDrops {
    /// Starts counting for `interface` of the calling thread's network namespace. Needs CAP_BPF and CAP_PERFMON, and a kernel with BTF.
    pub fn attach(interface: &str) -> Result<Self, XdpError> {
        quiet_libbpf();
        let index = interface_index(interface)?;
        let netns = File::open("/proc/thread-self/ns/net").and_then(|f| f.metadata()).map_err(|source| {
            XdpError::System { interface: interface.to_owned(), operation: "tell the network namespace", source }
        })?;
        let failed = |source| XdpError::load(PROGRAM, source);
        let mut object = MaybeUninit::uninit();
        let mut open = XmitDropsSkelBuilder::default().open(&mut object).map_err(failed)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.xmit_ifindex = index.cast_signed();
            // The inode number of a namespace is 32 bits wide (struct ns_common).
            knobs.xmit_netns = netns.ino() as u32;
        }
        let skel = open.load().map_err(failed)?;
        let link = skel.progs.on_xmit.attach_trace().map_err(failed)?;
        Ok(Self { _link: link, refused: MapHandle::try_from(&skel.maps.xmit_refused).map_err(failed)? })
    }

    /// Frames refused so far, over all CPUs.
    pub fn refused(&self) -> Result<u64, XdpError> {
        let counts = per_cpu(&self.refused, PROGRAM, "read the map xmit_refused")?;
        Ok(counts.iter().map(|count| number(count)).sum())
    }
}
