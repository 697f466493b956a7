//! The memory that holds the frames.

use std::{io, ops::Range};

use crate::map_mmap::SharedMemory;

/// Memory cut into frames of one size, which the kernel and we own in turns.
#[derive(Debug)]
pub struct Umem {
    memory: SharedMemory,
    frame_bytes: u32,
    frames: u32,
}

impl Umem {
    /// Memory for `frames` frames of `frame_bytes` bytes (a power of two), every page present.
    pub fn new(frames: u32, frame_bytes: u32, huge_pages: bool) -> io::Result<Self> {
        let memory = SharedMemory::anonymous(frames as usize * frame_bytes as usize, huge_pages)?;
        Ok(Self { memory, frame_bytes, frames })
    }

    pub fn frames(&self) -> u32 {
        self.frames
    }

    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let bytes = u64::from(self.frame_bytes);
        (0..u64::from(self.frames)).map(move |n| n * bytes)
    }

    pub(super) fn frame_of(&self, address: u64) -> u64 {
        address & !u64::from(self.frame_bytes - 1)
    }

    /// The bytes at `address`; none if they are not inside.
    ///
    /// # Safety
    /// The frame is ours: it came out of a ring and has not been given back.
    pub(super) unsafe fn bytes(&self, address: u64, len: u32) -> Option<&[u8]> {
        let range = self.range(address, len)?;
        // SAFETY: as this function's own.
        Some(unsafe { self.memory.slice(range.start, range.len()) })
    }

    /// The whole frame at `address`, to be written; none if it is not inside.
    ///
    /// # Safety
    /// The frame is ours, and nobody else holds it.
    #[allow(clippy::mut_from_ref, reason = "the memory is the kernel's too; who may write is the caller's promise")]
    pub(super) unsafe fn frame_mut(&self, address: u64) -> Option<&mut [u8]> {
        let range = self.range(address, self.frame_bytes)?;
        // SAFETY: as this function's own.
        Some(unsafe { self.memory.slice_mut(range.start, range.len()) })
    }

    fn range(&self, address: u64, len: u32) -> Option<Range<usize>> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(len as usize)?;
        (end <= self.memory.len()).then_some(start..end)
    }
}
