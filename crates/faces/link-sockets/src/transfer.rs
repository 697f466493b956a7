//! Reads and writes of connections that are taken over.

use std::{
    ffi::c_int,
    slice,
    time::{Duration, Instant},
};

use libc::{
    EAGAIN, EINTR, F_GETFL, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_WAITALL, O_NONBLOCK,
    SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET, c_void, iovec, socklen_t, timeval,
};
use link::sockets::takeover::{ConnectionId, Step};

use crate::{
    helper_mode::wake_helper,
    locked::Locked,
    real::{Errno, fail, real},
    sleep::Woke,
    table::{self, Descriptor},
    takeover::count_call,
};

/// Flags that are handled here; calls with others go to the kernel.
const READ_FLAGS: c_int = MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
const WRITE_FLAGS: c_int = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE;
/// Bytes of one write that are gathered from several places.
const GATHER_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// The return value of the call; errno is set.
    Done(isize),
    /// The kernel's call has to be made, inside [`through_pair`].
    Kernel,
}

/// Reads into `to`.
///
/// # Safety
/// Each is writable for its length.
pub(crate) unsafe fn read(fd: c_int, to: &[iovec], flags: c_int) -> Read {
    let Some(id) = count_call(fd) else { return Read::Kernel };
    let whole: usize = to.iter().map(|place| place.iov_len).sum();
    if flags & !READ_FLAGS != 0 || whole == 0 || is_null(to) {
        return Read::Kernel;
    }
    let Some(mut locked) = Locked::take() else { return Read::Kernel };
    let mut got = 0;
    let mut until = None;
    let done = |got: usize, error| if got > 0 { Read::Done(got as isize) } else { Read::Done(fail(error) as isize) };
    loop {
        // Bytes that are there already need no poll.
        if locked.is_poll_due() {
            locked.poll(Some(id));
        }
        // SAFETY: by the caller.
        let mut read = unsafe { step(&mut locked, id, fd, to, got) };
        if read == Step::Waits {
            locked.poll(Some(id));
            // SAFETY: as above.
            read = unsafe { step(&mut locked, id, fd, to, got) };
        }
        match read {
            Step::Done(0) => return Read::Done(got as isize),
            Step::Done(read) => {
                got += read;
                if flags & MSG_WAITALL == 0 || got == whole {
                    return Read::Done(got as isize);
                }
            }
            Step::Waits if is_nonblocking(fd, flags) => {
                // A frame may have arrived during fcntl(2).
                locked.poll(Some(id));
                if !locked.takeovers().is_some_and(|takeovers| takeovers.has_unread_of(id)) {
                    return done(got, EAGAIN);
                }
            }
            Step::Waits if locked.busy_poll(Some(id)) => {}
            Step::Waits => {
                let until = *until.get_or_insert_with(|| deadline(fd, SO_RCVTIMEO));
                match locked.sleep(id, fd, true, until) {
                    Woke::Check => {}
                    Woke::TimedOut => return done(got, EAGAIN),
                    Woke::Interrupted => return done(got, EINTR),
                }
            }
            Step::Kernel if got > 0 => return Read::Done(got as isize),
            Step::Kernel => return Read::Kernel,
            Step::Broke(error) => return done(got, error),
        }
    }
}

/// True if a place is a null pointer, which the kernel refuses (EFAULT).
fn is_null(places: &[iovec]) -> bool {
    places.iter().any(|place| place.iov_base.is_null() && place.iov_len > 0)
}

/// Reads what is there into `to`, behind the first `skip` bytes.
///
/// # Safety
/// As [`read`].
unsafe fn step(locked: &mut Locked, id: ConnectionId, fd: c_int, to: &[iovec], mut skip: usize) -> Step {
    let mut got = 0;
    for place in to {
        let at = skip.min(place.iov_len);
        skip -= at;
        if at == place.iov_len {
            continue;
        }
        // SAFETY: by the caller, and `at` is within it.
        let to = unsafe { slice::from_raw_parts_mut(place.iov_base.cast::<u8>().add(at), place.iov_len - at) };
        let Some(takeovers) = locked.takeovers() else { return Step::Kernel };
        match takeovers.read(id, fd, to) {
            Step::Done(read) if read == to.len() => got += read,
            Step::Done(read) => return Step::Done(got + read),
            _ if got > 0 => break,
            other => return other,
        }
    }
    Step::Done(got)
}

/// Makes a kernel call that reads or queries a connection. If that is taken over, its bytes are passed into its pair before and during the call.
pub(crate) fn through_pair<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    let Descriptor::Registered(id) = table::get(fd) else { return call() };
    let Some(mut locked) = Locked::take() else { return call() };
    locked.poll(None);
    if let Some(takeovers) = locked.takeovers() {
        takeovers.pass_unread();
        takeovers.sleeps(id, true);
    }
    drop(locked);
    wake_helper();
    let done = call();
    let _errno = Errno::keep();
    if let Some(mut locked) = Locked::take()
        && let Some(takeovers) = locked.takeovers()
    {
        takeovers.sleeps(id, false);
    }
    done
}

/// True if a descriptor is a connection of the cluster, whoever carries it.
pub(crate) fn is_known(fd: c_int) -> bool {
    table::get(fd) != Descriptor::Other
}

/// True if a descriptor is a connection that is taken over.
pub(crate) fn is_registered(fd: c_int) -> bool {
    matches!(table::get(fd), Descriptor::Registered(_))
}

/// The error of a connection that is taken over and broke.
pub(crate) fn ended(fd: c_int) -> Option<c_int> {
    let Descriptor::Registered(id) = table::get(fd) else { return None };
    Locked::take()?.takeovers()?.ended(id)
}

/// Writes from `from`; none: the kernel's call has to be made.
///
/// # Safety
/// Each is readable for its length.
pub(crate) unsafe fn write(fd: c_int, from: &[iovec], flags: c_int) -> Option<isize> {
    let id = count_call(fd)?;
    let whole: usize = from.iter().map(|place| place.iov_len).sum();
    if flags & !WRITE_FLAGS != 0 || whole == 0 || is_null(from) {
        return None;
    }
    let mut locked = Locked::take()?;
    let mut put = 0;
    let mut until = None;
    let mut gathered = Vec::new();
    // Acknowledgements make room, and a program that only writes polls for nothing else.
    if locked.is_poll_due() {
        locked.poll(None);
    }
    loop {
        // SAFETY: by the caller.
        let piece = unsafe { piece(from, put, &mut gathered) };
        let step = locked.takeovers().map_or(Step::Kernel, |takeovers| takeovers.write(id, piece));
        match step {
            Step::Done(written) => {
                put += written;
                if put == whole {
                    return Some(put as isize);
                }
                continue;
            }
            // The pair takes what finds no room here, so that poll(2) of its descriptor is true.
            Step::Kernel | Step::Broke(_) => {
                let (bytes, len) = (piece.as_ptr().cast::<c_void>(), piece.len());
                drop(locked);
                // SAFETY: the piece is alive.
                let written = unsafe { (real().send)(fd, bytes, len, flags) };
                put += usize::try_from(written).unwrap_or(0);
                if written <= 0 || put == whole || is_nonblocking(fd, flags) {
                    return Some(if put > 0 { put as isize } else { written });
                }
                let Some(again) = Locked::take() else { return Some(put as isize) };
                locked = again;
            }
            Step::Waits if is_nonblocking(fd, flags) => {
                if put > 0 {
                    return Some(put as isize);
                }
                return None;
            }
            Step::Waits => {
                let until = *until.get_or_insert_with(|| deadline(fd, SO_SNDTIMEO));
                let woke = locked.sleep(id, fd, false, until);
                let error = match woke {
                    Woke::Check => None,
                    Woke::TimedOut => Some(EAGAIN),
                    Woke::Interrupted => Some(EINTR),
                };
                if let Some(error) = error {
                    return Some(if put > 0 { put as isize } else { fail(error) as isize });
                }
            }
        }
        locked.poll(None);
    }
}

/// Bytes behind the first `skip`, in one piece.
///
/// # Safety
/// As [`write`].
unsafe fn piece<'a>(from: &[iovec], mut skip: usize, gathered: &'a mut Vec<u8>) -> &'a [u8] {
    gathered.clear();
    for place in from {
        let at = skip.min(place.iov_len);
        skip -= at;
        if at == place.iov_len {
            continue;
        }
        // SAFETY: by the caller, and `at` is within it.
        let bytes =
            unsafe { slice::from_raw_parts(place.iov_base.cast::<u8>().cast_const().add(at), place.iov_len - at) };
        if gathered.is_empty() && (bytes.len() >= GATHER_BYTES_MAX || from.len() == 1) {
            return bytes;
        }
        let taken = bytes.len().min(GATHER_BYTES_MAX - gathered.len());
        gathered.extend_from_slice(&bytes[..taken]);
        if taken < bytes.len() {
            break;
        }
    }
    gathered
}

/// True if a call returns EAGAIN instead of waiting.
fn is_nonblocking(fd: c_int, flags: c_int) -> bool {
    // SAFETY: F_GETFL takes nothing.
    flags & MSG_DONTWAIT != 0 || unsafe { (real().fcntl)(fd, F_GETFL) } & O_NONBLOCK != 0
}

/// The end of SO_RCVTIMEO or SO_SNDTIMEO of a call that begins now; none: it waits for ever.
fn deadline(fd: c_int, option: c_int) -> Option<Instant> {
    // SAFETY: all zeros are a time; the place is as long as is said.
    let time = unsafe {
        let mut time: timeval = std::mem::zeroed();
        let mut len = size_of::<timeval>() as socklen_t;
        (real().getsockopt)(fd, SOL_SOCKET, option, (&raw mut time).cast(), &raw mut len);
        time
    };
    let time = Duration::from_secs(time.tv_sec.try_into().unwrap_or(0))
        + Duration::from_micros(time.tv_usec.try_into().unwrap_or(0));
    (!time.is_zero()).then(|| Instant::now() + time)
}
