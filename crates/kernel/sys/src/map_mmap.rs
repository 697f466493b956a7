//! Memory shared with the kernel: BPF arrays (BPF_F_MMAPABLE) and rings of sockets.

use std::{
    io,
    num::NonZeroUsize,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A readable and writable mapping that the other side (the kernel) may change at any time, unmapped on drop.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; it is reached through atomics or through the unsafe methods, whose
// callers answer for the order of access.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `bytes` of `fd` from `offset` on, with every page present at once.
    ///
    /// # Errors
    /// The error of mmap(2); EINVAL for 0 bytes.
    pub fn of(fd: BorrowedFd<'_>, bytes: usize, offset: i64) -> io::Result<Self> {
        Self::map(fd, bytes, offset, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)
    }

    fn map(fd: BorrowedFd<'_>, bytes: usize, offset: i64, prot: ProtFlags) -> io::Result<Self> {
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: the kernel chooses the address, so that no memory of ours is replaced.
        let start = unsafe { mmap(None, length, prot, flags, fd, offset) }?;
        Ok(Self { start: start.cast(), bytes })
    }

    /// Maps `bytes` of `fd` from `offset` on, read-only: a store into the mapping faults.
    ///
    /// # Errors
    /// The error of mmap(2); EINVAL for 0 bytes.
    pub(crate) fn read_only(fd: BorrowedFd<'_>, bytes: usize, offset: i64) -> io::Result<Self> {
        Self::map(fd, bytes, offset, ProtFlags::PROT_READ)
    }

    /// Maps `bytes` of private zeroed memory, on huge pages if the machine has them reserved and `huge` asks for them.
    ///
    /// # Errors
    /// The error of mmap(2); EINVAL for 0 bytes.
    pub fn anonymous(bytes: usize, huge: bool) -> io::Result<Self> {
        const HUGE_PAGE: usize = 2 << 20;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        if huge && let Some(length) = NonZeroUsize::new(bytes.next_multiple_of(HUGE_PAGE)) {
            // SAFETY: the kernel chooses the address, so that no memory of ours is replaced.
            if let Ok(start) = unsafe { mmap_anonymous(None, length, prot, flags | MapFlags::MAP_HUGETLB) } {
                return Ok(Self { start: start.cast(), bytes: length.get() });
            }
        }
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the address, so that no memory of ours is replaced.
        let start = unsafe { mmap_anonymous(None, length, prot, flags) }?;
        Ok(Self { start: start.cast(), bytes })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never: an empty mapping cannot be made.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address of the mapping, for system calls that want it.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    fn at(&self, offset: usize, bytes: usize, align: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "shared memory: {bytes} bytes at {offset} of {}", self.bytes);
        // SAFETY: the offset was checked to lie inside the mapping.
        let at = unsafe { self.start.add(offset) };
        assert!(
            (at.as_ptr() as usize).is_multiple_of(align),
            "shared memory: offset {offset} is not aligned to {align}"
        );
        at
    }

    /// The 64-bit word at `offset` bytes. Panics if it is not aligned or not inside.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, 8, 8);
        // SAFETY: aligned and inside, as `at` checked; any bits are a valid integer; the borrow keeps the mapping alive.
        unsafe { at.cast().as_ref() }
    }

    /// The 32-bit word at `offset` bytes. Panics if it is not aligned or not inside.
    pub fn half_word(&self, offset: usize) -> &AtomicU32 {
        let at = self.at(offset, 4, 4);
        // SAFETY: aligned and inside, as `at` checked; any bits are a valid integer; the borrow keeps the mapping alive.
        unsafe { at.cast().as_ref() }
    }

    /// `bytes` bytes at `offset`. Panics if they are not inside.
    ///
    /// # Safety
    /// Neither side writes to them while the slice is alive.
    pub unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        let at = self.at(offset, bytes, 1);
        // SAFETY: inside, as `at` checked; initialised, as mappings are; not written to, as the caller promises.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes) }
    }

    /// `bytes` bytes at `offset`, to be written. Panics if they are not inside.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice is alive.
    #[allow(clippy::mut_from_ref, reason = "the memory is the kernel's too; who may write is the caller's promise")]
    pub unsafe fn slice_mut(&self, offset: usize, bytes: usize) -> &mut [u8] {
        let at = self.at(offset, bytes, 1);
        // SAFETY: inside, as `at` checked; initialised, as mappings are; ours alone, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), bytes) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it is alive.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_and_slices_see_the_same_memory() -> io::Result<()> {
        let memory = SharedMemory::anonymous(8192, false)?;
        memory.word(8).store(0x0102_0304_0506_0708, Ordering::Relaxed);
        // SAFETY: this test is alone with the memory.
        let bytes = unsafe { memory.slice(8, 8) };
        assert_eq!(bytes, 0x0102_0304_0506_0708u64.to_ne_bytes());
        Ok(())
    }

    #[test]
    #[should_panic(expected = "8 bytes at 4089 of 4096")]
    fn a_word_beyond_the_end_is_refused() {
        let memory = SharedMemory::anonymous(4096, false).expect("memory");
        memory.word(4089);
    }

    #[test]
    fn nothing_cannot_be_mapped() {
        assert!(SharedMemory::anonymous(0, false).is_err());
    }
}
