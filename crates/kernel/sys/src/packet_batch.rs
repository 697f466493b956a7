//! AF_PACKET transmit without a ring: frames are gathered and handed to the kernel together by sendmmsg(2).
//!
//! The kernel copies each into a socket buffer in one piece, where a transmit ring lends it pages, which a veth copies once more: cheaper for
//! small frames that need not wait for room. The send buffer bounds how many of them wait in queues behind the interface.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use crate::packet_tx::{PacketTxError, set};

/// Frames that are sent in one go.
pub const BATCH: usize = 64;

/// A sender on one interface, past its qdisc.
#[derive(Debug)]
pub struct PacketBatch {
    fd: OwnedFd,
    /// [`BATCH`] places of `frame_max` bytes.
    bytes: Box<[u8]>,
    frame_max: usize,
    /// Lengths of the frames that wait, in the order of their places.
    lens: Vec<usize>,
}

impl AsFd for PacketBatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PacketBatch {
    /// Opens a socket on the interface of index `index` in this thread's namespace, which receives nothing, for frames of at most
    /// `frame_max` bytes without FCS. Of what was sent, about `in_flight` bytes of the kernel's memory (some 770 for a small frame) may
    /// not have been let go of by their receivers.
    pub fn open(index: u32, frame_max: usize, in_flight: usize) -> Result<Self, PacketTxError> {
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(PacketTxError::Open(io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, "PACKET_QDISC_BYPASS", &1i32)?;
        // The kernel takes it twice.
        let half = i32::try_from(in_flight / 2).unwrap_or(i32::MAX);
        set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, "SO_SNDBUF", &half)?;
        crate::packet_tx::bind(fd.as_fd(), index)?;
        Ok(Self::of(fd, frame_max))
    }

    /// Gives its socket a filter of what it receives, which nobody changes any more, whoever has the socket: it could be bound to all that arrives.
    pub fn lock_filter(&self, program: BorrowedFd<'_>) -> Result<(), PacketTxError> {
        set(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, "SO_ATTACH_BPF", &program.as_raw_fd())?;
        set(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_LOCK_FILTER, "SO_LOCK_FILTER", &1i32)
    }

    /// A sender on a socket that another process opened by [`PacketBatch::open`].
    pub fn of(fd: OwnedFd, frame_max: usize) -> Self {
        Self { fd, bytes: vec![0; BATCH * frame_max].into(), frame_max, lens: Vec::with_capacity(BATCH) }
    }

    /// Puts a frame behind those that wait; false if it is too long, or [`BATCH`] wait: [`PacketBatch::flush`] first.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        let at = self.lens.len() * self.frame_max;
        if frame.len() > self.frame_max || self.lens.len() == BATCH {
            return false;
        }
        self.bytes[at..at + frame.len()].copy_from_slice(frame);
        self.lens.push(frame.len());
        true
    }

    /// The same with a frame that lies in `parts`.
    #[inline]
    pub fn push_parts(&mut self, parts: [&[u8]; 3]) -> bool {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > self.frame_max || self.lens.len() == BATCH {
            return false;
        }
        let mut at = self.lens.len() * self.frame_max;
        for part in parts {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.lens.push(len);
        true
    }

    /// Hands over the frames that wait, in their order, until `each` says that it has no more room; those go another way. How many.
    #[inline]
    pub fn take(&mut self, mut each: impl FnMut(&[u8]) -> bool) -> usize {
        let frames = self.bytes.chunks(self.frame_max).zip(&self.lens);
        let count = frames.take_while(|&(place, &len)| each(&place[..len])).count();
        self.lens.clear();
        count
    }

    pub fn waiting(&self) -> usize {
        self.lens.len()
    }

    pub fn bytes(&self) -> usize {
        self.lens.iter().sum()
    }

    /// Sends what waits, as far as the send buffer has room. What is not sent is lost, and its number returned.
    ///
    /// A frame that the interface's queue has no room for or that is longer than the interface allows is lost alone.
    ///
    /// # Errors
    /// [`PacketTxError::Send`], among others ENETDOWN for an interface that is down and ENXIO for one that is gone; all that waited is
    /// lost then.
    pub fn flush(&mut self) -> Result<usize, PacketTxError> {
        let count = self.lens.len();
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: an address of null and a length of 0 are valid iovecs, and zeroes a valid msghdr: nothing is pointed to.
        let (mut places, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        for (n, (place, message)) in places.iter_mut().zip(&mut messages).take(count).enumerate() {
            place.iov_base = self.bytes[n * self.frame_max..].as_ptr().cast_mut().cast();
            place.iov_len = self.lens[n];
            message.msg_hdr.msg_iov = place;
            message.msg_hdr.msg_iovlen = 1;
        }
        self.lens.clear();
        let is_alone = |error| matches!(error, libc::ENOBUFS | libc::EMSGSIZE);
        // SAFETY: each header points to an iovec of `places`, and that to initialised bytes of `self.bytes`: the place's length is at most
        // `frame_max` (push). Both outlive the call.
        unsafe { send_all(self.fd.as_fd(), &mut messages[..count], is_alone) }.map_err(PacketTxError::Send)
    }
}

/// Sends messages, as far as the send buffer has room; returns the number lost. A message that fails with an error which `is_alone` is lost alone.
///
/// # Errors
/// As sendmmsg(2), with any other error.
///
/// # Safety
/// The memory that each header points to is readable for the lengths that it states. The call writes nothing but the headers' lengths.
#[inline]
pub(crate) unsafe fn send_all(
    fd: BorrowedFd<'_>,
    messages: &mut [libc::mmsghdr],
    is_alone: impl Fn(i32) -> bool,
) -> io::Result<usize> {
    let (mut next, mut lost) = (0, 0);
    while next < messages.len() {
        let left = &mut messages[next..];
        // SAFETY: by the caller; the slice is as long as is said.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), left.as_mut_ptr(), left.len() as u32, libc::MSG_DONTWAIT) };
        if sent > 0 {
            next += sent.cast_unsigned() as usize;
            continue;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => return Ok(lost + messages.len() - next),
            Some(alone) if is_alone(alone) => (next, lost) = (next + 1, lost + 1),
            _ => return Err(error),
        }
    }
    Ok(lost)
}
