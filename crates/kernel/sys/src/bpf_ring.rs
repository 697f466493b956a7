//! The one reader of a BPF ring buffer (BPF_MAP_TYPE_RINGBUF).
//!
//! libbpf's own reader is as fast, but binds a callback to the ring when it is made; here each look has a closure of its own, and a process that reads
//! needs no libbpf.
//! Layout: Documentation/bpf/ringbuf.rst; include/uapi/linux/bpf.h (BPF_RINGBUF_*_BIT, BPF_RINGBUF_HDR_SZ).

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::map_mmap::SharedMemory;

/// Length and flags of a record, and an offset that is the kernel's own.
const HEADER: usize = 8;
/// The record is not committed yet; it was given up.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Records after which their room is given back while more are read.
const RELEASE_RECORDS: usize = 16;

/// The size in bytes that the kernel tells of a ring buffer's descriptor; none: it is something else.
fn size(fdinfo: &str) -> Option<usize> {
    /// BPF_MAP_TYPE_RINGBUF.
    const RING: usize = 27;
    let of = |name| {
        let line = fdinfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|number| number.trim().parse::<usize>().ok())
    };
    (of("map_type") == Some(RING)).then(|| of("max_entries"))?.filter(|bytes| bytes.is_power_of_two())
}

/// Bytes of a page, the least size of a ring.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf(3) takes no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A ring buffer, mapped. Nobody else may read from it.
#[derive(Debug)]
pub struct BpfRing {
    fd: OwnedFd,
    reader: SharedMemory,
    /// The writers' position, and the records, twice in a row: none is cut in two.
    writers: SharedMemory,
    mask: u64,
    at: u64,
    page: usize,
}

impl BpfRing {
    /// Maps the ring, and goes on where its reader stopped. It takes no privilege.
    ///
    /// # Errors
    /// EINVAL for the descriptor of something else; what reading /proc and mmap(2) answer.
    pub fn of(fd: OwnedFd) -> io::Result<Self> {
        let fdinfo = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd()))?;
        let bytes = size(&fdinfo).ok_or(io::ErrorKind::InvalidInput)?;
        let page = page_bytes();
        // The reader's position is in the first page, the writers' in the second, and the records begin in the third.
        let reader = SharedMemory::of(fd.as_fd(), page, 0)?;
        let writers = SharedMemory::read_only(fd.as_fd(), page + 2 * bytes, page as i64)?;
        let at = reader.word(0).load(Ordering::Acquire);
        Ok(Self { fd, reader, writers, mask: bytes as u64 - 1, at, page })
    }

    /// Hands every pending record to `each`, and returns their number. No system call.
    ///
    /// Records that arrive meanwhile stay for the next call.
    #[inline]
    pub fn consume<F: FnMut(&[u8])>(&mut self, mut each: F) -> usize {
        let end = self.writers.word(0).load(Ordering::Acquire);
        let (mut at, mut read, mut kept) = (self.at, 0, 0);
        while at != end {
            let place = self.page + (at & self.mask) as usize;
            let header = self.writers.half_word(place).load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let bytes = (header & !DISCARDED) as usize;
            if header & DISCARDED == 0 {
                // SAFETY: the kernel has committed this record, and writes there again only when the reader's position, which this value alone
                // moves, has passed it: behind `each`.
                each(unsafe { self.writers.slice(place + HEADER, bytes) });
                read += 1;
            }
            at += (HEADER + bytes).next_multiple_of(8) as u64;
            kept += 1;
            if kept == RELEASE_RECORDS {
                kept = 0;
                self.give_back(at);
            }
        }
        if kept != 0 {
            self.give_back(at);
        }
        read
    }

    fn give_back(&mut self, at: u64) {
        self.at = at;
        self.reader.word(0).store(at, Ordering::Release);
    }

    /// Bytes of records that are there or being written.
    #[inline]
    pub fn filled(&self) -> usize {
        self.writers.word(0).load(Ordering::SeqCst).wrapping_sub(self.at) as usize
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.mask as usize + 1
    }

    /// Waits until a record is pending or `timeout` expires; true if one is. A writer wakes only if it was told to.
    ///
    /// # Errors
    /// The error of poll(2), except EINTR, which counts as no record.
    pub fn wait(&self, timeout: PollTimeout) -> io::Result<bool> {
        match poll(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for BpfRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_ring_is_refused() {
        let fdinfo = "pos:\t0\nflags:\t02000002\nmap_type:\t27\nkey_size:\t0\nvalue_size:\t0\nmax_entries:\t65536\n";
        assert_eq!(size(fdinfo), Some(65536));
        assert_eq!(size(&fdinfo.replace("27", "2")), None);
        assert_eq!(size("pos:\t0\n"), None);
        let file = std::fs::File::open("/dev/null").map(OwnedFd::from);
        let refused = file.and_then(BpfRing::of).map(|ring| ring.bytes());
        assert_eq!(refused.map_err(|e| e.kind()), Err(io::ErrorKind::InvalidInput));
    }
}
