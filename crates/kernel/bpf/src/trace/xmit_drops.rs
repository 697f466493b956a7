//! Frames that a device refused when they were redirected to it (`src/trace/xmit_drops.bpf.c`).

use std::{fs::File, mem::MaybeUninit, os::unix::fs::MetadataExt};

use libbpf_rs::{Link, MapHandle};
use sys::interface::index;

use crate::{bytes::word64, link::XdpError, program::Program, skel::xmit_drops::XmitDropsSkelBuilder};

const PROGRAM: Program = Program("xmit_drops");

/// Counts refused frames of one interface until it is dropped.
#[derive(Debug)]
pub struct XmitDrops {
    _link: Link,
    refused: MapHandle,
}

impl XmitDrops {
    /// Starts counting for `interface` of the calling thread's network namespace. Needs CAP_BPF and CAP_PERFMON, and a kernel with BTF.
    pub fn attach(interface: &str) -> Result<Self, XdpError> {
        let index = index(interface)?;
        let netns = File::open("/proc/thread-self/ns/net").and_then(|f| f.metadata());
        let netns = netns.map_err(XdpError::on(interface, "tell the network namespace"))?;
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<XmitDropsSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.xmit_ifindex = index.cast_signed();
            // The inode number of a namespace is 32 bits wide (struct ns_common).
            knobs.xmit_netns = netns.ino() as u32;
        }
        let skel = PROGRAM.load(open)?;
        let link = skel.progs.on_xmit.attach_trace().map_err(failed)?;
        Ok(Self { _link: link, refused: PROGRAM.map(&skel.maps.xmit_refused)? })
    }

    /// Frames refused so far, over all CPUs.
    pub fn refused(&self) -> Result<u64, XdpError> {
        let counts = PROGRAM.per_cpu(&self.refused, "read the map xmit_refused")?;
        Ok(counts.iter().map(|count| word64(count, 0)).sum())
    }
}
