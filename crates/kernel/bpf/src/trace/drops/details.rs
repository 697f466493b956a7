//! Drops by flow, each with one packet and the kernel's way to the drop (`src/trace/drops/details.h`).

use std::mem::offset_of;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{DropError, DropFlow, DropKind, RawDetail, RawDetailKey};
use crate::bytes::{word16, word32, word64};

const _: () = assert!(size_of::<RawDetailKey>() == 64 && size_of::<RawDetail>() == 336);

/// The kernel's way to the drop has at most so many functions.
const FRAMES_MAX: usize = 24;
/// So many bytes of a packet are kept at most.
const BYTES_MAX: usize = 128;

/// Drops of one flow since the tracing began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropDetail {
    pub netns: u32,
    pub ifindex: u32,
    pub reason: u32,
    pub location: u64,
    pub protocol: u16,
    pub kind: DropKind,
    /// The flow; its source port is not kept apart. None if they are no IP.
    pub flow: Option<DropFlow>,
    /// Socket buffers, scaled up by the sampling, since this flow was seen first (or again after others took its room).
    pub packets: u64,
    /// The first one's first bytes.
    pub bytes: Vec<u8>,
    /// Bytes of them that are the link's header; 0: it was not made yet.
    pub link_header: usize,
    /// Its length on the wire.
    pub length: u32,
    /// The kernel's instructions that led to the drop, innermost first, tracing itself included.
    pub stack: Vec<u64>,
}

pub(super) fn read(map: &MapHandle) -> Result<Vec<DropDetail>, DropError> {
    let failed = |source| DropError::Read { operation: "read the map details", source };
    let mut details = Vec::new();
    for key in map.keys() {
        // Gone meanwhile: another one took its room.
        if let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(failed)? {
            details.push(detail(&key, &value));
        }
    }
    Ok(details)
}

fn detail(key: &[u8], value: &[u8]) -> DropDetail {
    let stack = (0..FRAMES_MAX).map(|at| word64(value, offset_of!(RawDetail, stack) + at * 8)).take_while(|&a| a != 0);
    let captured = usize::from(word16(value, offset_of!(RawDetail, captured))).min(BYTES_MAX);
    let begin = offset_of!(RawDetail, bytes);
    DropDetail {
        netns: word32(key, offset_of!(RawDetailKey, netns)),
        ifindex: word32(key, offset_of!(RawDetailKey, ifindex)),
        reason: word32(key, offset_of!(RawDetailKey, reason)),
        location: word64(key, offset_of!(RawDetailKey, location)),
        protocol: word16(key, offset_of!(RawDetailKey, protocol)),
        kind: DropKind::from_raw(key.get(offset_of!(RawDetailKey, kind)).copied().unwrap_or(0)),
        flow: DropFlow::from_raw(key.get(offset_of!(RawDetailKey, flow)..).unwrap_or_default()),
        packets: word64(value, offset_of!(RawDetail, packets)),
        bytes: value.get(begin..begin + captured).unwrap_or_default().to_vec(),
        link_header: usize::from(word16(value, offset_of!(RawDetail, link_header))),
        length: word32(value, offset_of!(RawDetail, length)),
        stack: stack.collect(),
    }
}
