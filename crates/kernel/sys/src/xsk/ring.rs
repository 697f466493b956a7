//! Ring of an AF_XDP socket: single producer, single consumer, one of them the kernel.

use std::{
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU32, Ordering},
};

use super::XskError;
use crate::map_mmap::SharedMemory;

/// An entry of the receive and transmit rings (struct xdp_desc).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

pub(super) trait Entry: Copy {}
impl Entry for Descriptor {}
impl Entry for u64 {}

/// A mapped ring of `T`. Our own index is kept beside it and published once per batch.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: SharedMemory,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// Our side's index: the producer's if we produce, the consumer's if we consume.
    own: u32,
    /// The other side's index as we last saw it.
    other: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// Maps the ring of `size` (a power of two) entries that lies at `page_offset` of the socket.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        size: u32,
        page_offset: i64,
    ) -> Result<Self, XskError> {
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        let memory = SharedMemory::of(fd, bytes, page_offset)
            .map_err(|source| XskError { operation: "map an AF_XDP ring", source })?;
        Ok(Self { memory, offsets, mask: size - 1, own: 0, other: 0, entry: std::marker::PhantomData })
    }

    fn producer(&self) -> &AtomicU32 {
        self.memory.half_word(self.offsets.producer as usize)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.memory.half_word(self.offsets.consumer as usize)
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = self.offsets.desc as usize + (index & self.mask) as usize * size_of::<T>();
        (self.memory.address() as usize + at) as *mut T
    }

    /// As the consumer: how many entries are there, at most `most`. Looks at the producer only when none were known.
    pub(super) fn available(&mut self, most: u32) -> u32 {
        if self.other == self.own {
            self.other = self.producer().load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.own).min(most)
    }

    /// As the consumer: the entry `ahead` places from our index.
    ///
    /// # Panics
    /// If `ahead` is not below what [`Ring::available`] knew of.
    pub(super) fn peek(&self, ahead: u32) -> T {
        assert!(ahead < self.other.wrapping_sub(self.own), "an entry that the producer has not published");
        // SAFETY: the mask keeps the index inside the mapping, which `map` made large enough and the kernel aligned; every bit pattern
        // is an `Entry`. The producer has published the entry, as the assertion says of the index that `available` loaded with acquire
        // order, and leaves it alone until we release it.
        unsafe { self.entry(self.own.wrapping_add(ahead)).read() }
    }

    /// As the consumer: gives `count` entries back.
    pub(super) fn release(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        self.consumer().store(self.own, Ordering::Release);
    }

    /// As the producer: how many entries are free, at most `most`.
    pub(super) fn free(&mut self, most: u32) -> u32 {
        let size = self.mask + 1;
        if size - self.own.wrapping_sub(self.other) < most {
            self.other = self.consumer().load(Ordering::Acquire);
        }
        (size - self.own.wrapping_sub(self.other)).min(most)
    }

    /// As the producer: writes the entry `ahead` places from our index.
    ///
    /// # Panics
    /// If `ahead` is not below what [`Ring::free`] knew of.
    pub(super) fn put(&mut self, ahead: u32, value: T) {
        let used = self.own.wrapping_sub(self.other);
        assert!(ahead <= self.mask.wrapping_sub(used), "an entry that the consumer has not given back");
        // SAFETY: the mask keeps the index inside the mapping, which `map` made large enough and the kernel aligned. The consumer has
        // given the entry back, as the assertion says of the index that `free` loaded with acquire order (or of a ring never used),
        // and does not look at it before we publish it.
        unsafe { self.entry(self.own.wrapping_add(ahead)).write(value) }
    }

    /// As the producer: publishes `count` entries.
    pub(super) fn submit(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        self.producer().store(self.own, Ordering::Release);
    }

    /// The kernel wants a system call before it goes on (XDP_RING_NEED_WAKEUP).
    pub(super) fn needs_wakeup(&self) -> bool {
        let flags = self.memory.half_word(self.offsets.flags as usize);
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
