//! The losses of XDP, from its tracepoints.

use std::{io, mem::offset_of};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::DropError;
use crate::{
    bytes::{word32, word64},
    skel::drops::types::xdp_loss_key as RawKey,
};

const _: () = assert!(size_of::<RawKey>() == 32);

/// A way in which XDP loses frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XdpLossKind {
    /// The verdict could not be carried out, or was none (tracepoint xdp_exception).
    Exception {
        /// The verdict: 0 aborted, 1 drop, 2 pass, 3 transmit, 4 redirect; others are unknown to the kernel too.
        action: u32,
    },
    /// A redirect failed at once (xdp_redirect_err).
    RedirectError {
        /// The id of the map; 0 when the program redirected by interface index.
        map: u32,
        /// The index in the map, or of the interface.
        index: u32,
    },
    /// A device refused frames that were redirected to it (xdp_devmap_xmit).
    DeviceRefused {
        /// The index of that device.
        ifindex: u32,
    },
    /// The driver could not send back what the program wanted transmitted (xdp_bulk_tx).
    TransmitRefused,
    /// The queue to another CPU was full (xdp_cpumap_enqueue).
    CpuQueueFull { cpu: u32, map: u32 },
    /// The other CPU had no memory for a socket buffer (xdp_cpumap_kthread).
    CpuNoBuffer { cpu: u32, map: u32 },
    /// The map's own program dropped the frame on the other CPU, or could not redirect it (xdp_cpumap_kthread).
    CpuProgramDropped { cpu: u32, map: u32 },
}

/// Frames that XDP lost in one way since the tracing began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpLoss {
    pub kind: XdpLossKind,
    /// The id of the program, as `bpftool prog` shows it; 0 when the tracepoint does not tell.
    pub program: u32,
    /// The network namespace of the receiving interface (inode number); 0 when the tracepoint does not tell.
    pub netns: u32,
    /// The receiving interface; 0 when the tracepoint does not tell.
    pub ifindex: u32,
    /// The error number (positive, as in errno.h); 0: none.
    pub errno: i32,
    /// Frames; scaled by the sampling for exceptions and failed redirects, exact otherwise.
    pub frames: u64,
}

impl XdpLoss {
    /// The error in words, if there was one.
    pub fn error(&self) -> Option<String> {
        (self.errno != 0).then(|| io::Error::from_raw_os_error(self.errno).to_string())
    }
}

pub(super) fn read(map: &MapHandle) -> Result<Vec<XdpLoss>, DropError> {
    let failed = |source| DropError::Read { operation: "read the map xdp_losses", source };
    let mut losses = Vec::new();
    for key in map.keys() {
        let Some(values) = map.lookup_percpu(&key, MapFlags::ANY).map_err(failed)? else { continue };
        let frames = values.iter().map(|v| word64(v, 0)).sum();
        if let Some(kind) = kind(&key) {
            losses.push(XdpLoss {
                kind,
                program: word32(&key, offset_of!(RawKey, program)),
                netns: word32(&key, offset_of!(RawKey, netns)),
                ifindex: word32(&key, offset_of!(RawKey, ifindex)),
                errno: word32(&key, offset_of!(RawKey, error)).cast_signed().saturating_abs(),
                frames,
            });
        }
    }
    Ok(losses)
}

/// The numbers are those in drops.bpf.c.
fn kind(key: &[u8]) -> Option<XdpLossKind> {
    let target = word32(key, offset_of!(RawKey, target));
    let map = word32(key, offset_of!(RawKey, map));
    Some(match word32(key, offset_of!(RawKey, kind)) {
        1 => XdpLossKind::Exception { action: word32(key, offset_of!(RawKey, action)) },
        2 => XdpLossKind::RedirectError { map, index: target },
        3 => XdpLossKind::DeviceRefused { ifindex: target },
        4 => XdpLossKind::TransmitRefused,
        5 => XdpLossKind::CpuQueueFull { cpu: target, map },
        6 => XdpLossKind::CpuNoBuffer { cpu: target, map },
        7 => XdpLossKind::CpuProgramDropped { cpu: target, map },
        _ => return None,
    })
}
