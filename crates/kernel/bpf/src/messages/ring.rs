//! The ring of an endpoint: what its reader has of it.

use std::{
    io,
    mem::offset_of,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{Ordering, fence},
    time::Duration,
};

use nix::poll::PollTimeout;
use sys::{bpf_ring::BpfRing, map_mmap::SharedMemory};

use crate::{
    bytes::{word16, word32},
    skel::link::types::{link_record, link_ring_state},
};

/// LINK_UNTAGGED.
const UNTAGGED: u16 = 0xffff;
const HEAD: usize = size_of::<link_record>();

const _: () = assert!(HEAD == 16 && offset_of!(link_record, source) == 0 && size_of::<link_ring_state>() == 128);

/// An endpoint's ring, read by one process. Who holds nothing but this reads its own frames and no others, and keeps nobody from reading theirs.
///
/// The ring goes with its last descriptor, once the [`crate::LinkPort`] has removed the endpoint too; that one is not told when a reader dies:
/// whoever gave it the ring watches the process (a pidfd, or the socket that the ring went through) and calls [`crate::LinkPort::remove`].
/// Until then a dead reader's ring fills, and its frames are dropped and counted as full.
#[derive(Debug)]
pub struct LinkRing {
    ring: BpfRing,
    state_fd: OwnedFd,
    state: SharedMemory,
}

impl LinkRing {
    /// The ring of two descriptors that another process has passed on ([`LinkRing::descriptors`]). It takes no privilege.
    ///
    /// # Errors
    /// Descriptors of something else; what reading /proc and mmap(2) answer.
    pub fn of([ring, state]: [OwnedFd; 2]) -> io::Result<Self> {
        let ring = BpfRing::of(ring)?;
        let memory = SharedMemory::of(state.as_fd(), size_of::<link_ring_state>(), 0)?;
        Ok(Self { ring, state_fd: state, state: memory })
    }

    /// Descriptors by which another process opens the same ring, with [`LinkRing::of`]: of the ring, and of the page beside it. Of all who have
    /// them one may read.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.ring.as_fd(), self.state_fd.as_fd()]
    }

    /// Its size in bytes. A frame takes 24 bytes more than its own, rounded up to 128, 256, 512, 1024, 1536, 2560, 4608 or 9056.
    pub fn bytes(&self) -> usize {
        self.ring.bytes()
    }

    /// Bytes of it that are taken.
    #[inline]
    pub fn filled(&self) -> usize {
        self.ring.filled()
    }

    /// Frames for which it had no room.
    pub fn full(&self) -> u64 {
        self.state.word(offset_of!(link_ring_state, full)).load(Ordering::Relaxed)
    }

    /// Has what comes for it go up to the stack from now on, without waiting as [`crate::LinkPort::remove`] does, which is to follow. Its reader
    /// could take that back.
    pub fn close(&self) {
        self.state.half_word(offset_of!(link_ring_state, closed)).store(1, Ordering::SeqCst);
    }

    /// Hands each frame that is there to `each`, with the address that it came from and the number of its VLAN, and returns how many there were. The
    /// frame is header and payload, without Ethernet's padding. No system call, whether there is something or not.
    #[inline]
    pub fn consume<F: FnMut([u8; 6], Option<u16>, &[u8])>(&mut self, mut each: F) -> usize {
        self.ring.consume(|record| {
            let Some((head, frame)) = record.split_first_chunk::<HEAD>() else { return };
            let vlan = word16(head, offset_of!(link_record, vlan));
            let bytes = word32(head, offset_of!(link_record, bytes)) as usize;
            let &[a, b, c, d, e, f, ..]: &[u8; HEAD] = head;
            let Some(frame) = frame.get(..bytes) else { return };
            each([a, b, c, d, e, f], (vlan != UNTAGGED).then_some(vlan), frame);
        })
    }

    /// Says that the reader goes to sleep; true if nothing has come: it may wait for its descriptor to become readable (poll, epoll). Whatever
    /// comes from then on makes it so. If false, or when it wakes up, [`LinkRing::awake`] comes next, then [`LinkRing::consume`].
    pub fn sleep(&self) -> bool {
        self.state.half_word(offset_of!(link_ring_state, asleep)).store(1, Ordering::SeqCst);
        // The state before the look: the program reserves a record before it looks at the state.
        fence(Ordering::SeqCst);
        self.ring.filled() == 0
    }

    /// Says that the reader is awake: what comes wakes nobody.
    pub fn awake(&self) {
        self.state.half_word(offset_of!(link_ring_state, asleep)).store(0, Ordering::Relaxed);
    }

    /// Sleeps until a frame comes, at the longest for `timeout` (none: for ever); true if there is one.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = match timeout {
            None => PollTimeout::NONE,
            Some(time) => time.try_into().unwrap_or(PollTimeout::MAX),
        };
        let came = if self.sleep() { self.ring.wait(timeout) } else { Ok(true) };
        self.awake();
        came
    }
}

impl AsFd for LinkRing {
    /// The descriptor that a sleeping reader polls.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
