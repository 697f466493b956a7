//! Reading and writing connections that are carried here.

use std::{
    ffi::c_int,
    slice,
    time::{Duration, Instant},
};

use libc::{
    EAGAIN, EINTR, F_GETFL, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_WAITALL, O_NONBLOCK,
    SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET, c_void, iovec, socklen_t, timeval,
};
use link::sockets::direct::{Id, Step};

use crate::{
    helper_mode::wake_helper,
    locked::Locked,
    real::{Errno, fail, real},
    sleep::Woke,
    table::{self, What},
    takeover::carried,
};

/// What reading and writing do here; the kernel's calls do the others.
const READS: c_int = MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
const WRITES: c_int = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE;
/// Pieces of several places are put together up to so many bytes.
const GATHERED: usize = 16 << 10;

/// A read, and what it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// It is done: what the call returns, errno being set.
    Done(isize),
    /// The kernel's call is right, before which [`aside`] stands.
    Kernel,
}

/// Reads into places.
///
/// # Safety
/// Each is writable for its length.
pub(crate) unsafe fn read(fd: c_int, to: &[iovec], flags: c_int) -> Read {
    let Some(id) = carried(fd) else { return Read::Kernel };
    let whole: usize = to.iter().map(|place| place.iov_len).sum();
    if flags & !READS != 0 || whole == 0 {
        return Read::Kernel;
    }
    let Some(mut locked) = Locked::take() else { return Read::Kernel };
    let mut got = 0;
    let mut until = None;
    let done = |got: usize, error| if got > 0 { Read::Done(got as isize) } else { Read::Done(fail(error) as isize) };
    loop {
        // What is there already needs no look at what came.
        if locked.is_behind() {
            locked.turn(Some(id));
        }
        // SAFETY: by the caller.
        let mut read = unsafe { step(&mut locked, id, fd, to, got) };
        if read == Step::Waits {
            locked.turn(Some(id));
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
            Step::Waits if is_impatient(fd, flags) => {
                // Something may have come while the kernel was asked.
                locked.turn(Some(id));
                if !locked.direct().is_some_and(|direct| direct.has_something(id)) {
                    return done(got, EAGAIN);
                }
            }
            Step::Waits if locked.spin(Some(id)) => {}
            Step::Waits => {
                let until = *until.get_or_insert_with(|| patience(fd, SO_RCVTIMEO));
                match locked.sleep(id, fd, true, until) {
                    Woke::Look => {}
                    Woke::Late => return done(got, EAGAIN),
                    Woke::Signal => return done(got, EINTR),
                }
            }
            Step::Kernel if got > 0 => return Read::Done(got as isize),
            Step::Kernel => return Read::Kernel,
            Step::Broke(error) => return done(got, error),
        }
    }
}

/// Reads what is there into places, behind their first `skip` bytes.
///
/// # Safety
/// As [`read`].
unsafe fn step(locked: &mut Locked, id: Id, fd: c_int, to: &[iovec], mut skip: usize) -> Step {
    let mut got = 0;
    for place in to {
        let at = skip.min(place.iov_len);
        skip -= at;
        if at == place.iov_len {
            continue;
        }
        // SAFETY: by the caller, and `at` is within it.
        let to = unsafe { slice::from_raw_parts_mut(place.iov_base.cast::<u8>().add(at), place.iov_len - at) };
        let Some(direct) = locked.direct() else { return Step::Kernel };
        match direct.read(id, fd, to) {
            Step::Done(read) if read == to.len() => got += read,
            Step::Done(read) => return Step::Done(got + read),
            _ if got > 0 => break,
            other => return other,
        }
    }
    Step::Done(got)
}

/// Does a call of the kernel that reads, or looks at, a connection which is carried here: what came is passed into its pair meanwhile.
pub(crate) fn aside<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    let What::Carried(id) = table::get(fd) else { return call() };
    let Some(mut locked) = Locked::take() else { return call() };
    locked.turn(None);
    if let Some(direct) = locked.direct() {
        direct.pass_unread();
        direct.sleeps(id, true);
    }
    drop(locked);
    wake_helper();
    let done = call();
    let _errno = Errno::keep();
    if let Some(mut locked) = Locked::take()
        && let Some(direct) = locked.direct()
    {
        direct.sleeps(id, false);
    }
    done
}

/// Is it a connection of the cluster, whoever carries it?
pub(crate) fn is_known(fd: c_int) -> bool {
    table::get(fd) != What::Other
}

/// Is it one that is carried here?
pub(crate) fn is_carried(fd: c_int) -> bool {
    matches!(table::get(fd), What::Carried(_))
}

/// Why a connection that is carried here says nothing more.
pub(crate) fn ended(fd: c_int) -> Option<c_int> {
    let What::Carried(id) = table::get(fd) else { return None };
    Locked::take()?.direct()?.ended(id)
}

/// Writes out of places; none: the kernel's call is right.
///
/// # Safety
/// Each is readable for its length.
pub(crate) unsafe fn write(fd: c_int, from: &[iovec], flags: c_int) -> Option<isize> {
    let id = carried(fd)?;
    let whole: usize = from.iter().map(|place| place.iov_len).sum();
    if flags & !WRITES != 0 || whole == 0 {
        return None;
    }
    let mut locked = Locked::take()?;
    let mut put = 0;
    let mut until = None;
    let mut gathered = Vec::new();
    // Room comes with acknowledgements, which a program that only writes never takes otherwise.
    if locked.is_behind() {
        locked.turn(None);
    }
    loop {
        // SAFETY: by the caller.
        let piece = unsafe { piece(from, put, &mut gathered) };
        let step = locked.direct().map_or(Step::Kernel, |direct| direct.write(id, piece));
        match step {
            Step::Done(written) => {
                put += written;
                if put == whole {
                    return Some(put as isize);
                }
                continue;
            }
            // The pair takes what finds no room, so that its descriptor says the truth to who waits for that.
            Step::Kernel | Step::Broke(_) => {
                let (bytes, len) = (piece.as_ptr().cast::<c_void>(), piece.len());
                drop(locked);
                // SAFETY: the piece is alive.
                let written = unsafe { (real().send)(fd, bytes, len, flags) };
                put += usize::try_from(written).unwrap_or(0);
                if written <= 0 || put == whole || is_impatient(fd, flags) {
                    return Some(if put > 0 { put as isize } else { written });
                }
                let Some(again) = Locked::take() else { return Some(put as isize) };
                locked = again;
            }
            Step::Waits if is_impatient(fd, flags) => {
                if put > 0 {
                    return Some(put as isize);
                }
                return None;
            }
            Step::Waits => {
                let until = *until.get_or_insert_with(|| patience(fd, SO_SNDTIMEO));
                let woke = locked.sleep(id, fd, false, until);
                let error = match woke {
                    Woke::Look => None,
                    Woke::Late => Some(EAGAIN),
                    Woke::Signal => Some(EINTR),
                };
                if let Some(error) = error {
                    return Some(if put > 0 { put as isize } else { fail(error) as isize });
                }
            }
        }
        locked.turn(None);
    }
}

/// What follows the first `skip` bytes, in one piece.
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
        if gathered.is_empty() && (bytes.len() >= GATHERED || from.len() == 1) {
            return bytes;
        }
        let taken = bytes.len().min(GATHERED - gathered.len());
        gathered.extend_from_slice(&bytes[..taken]);
        if taken < bytes.len() {
            break;
        }
    }
    gathered
}

/// Does a call not wait?
fn is_impatient(fd: c_int, flags: c_int) -> bool {
    // SAFETY: F_GETFL takes nothing.
    flags & MSG_DONTWAIT != 0 || unsafe { (real().fcntl)(fd, F_GETFL) } & O_NONBLOCK != 0
}

/// When a call that waits gives up.
fn patience(fd: c_int, option: c_int) -> Option<Instant> {
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
