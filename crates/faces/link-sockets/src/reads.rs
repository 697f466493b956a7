//! The calls that read. A pair of Unix sockets can say that nothing follows, and not that a connection broke: where the end of a stream is read, the
//! broker is asked which it was, so that a file that came in part is not taken for a whole one.

use std::{
    ffi::{c_int, c_void},
    os::fd::BorrowedFd,
};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use link::sockets::Asker;

use crate::{
    address,
    real::{Errno, fail, real},
};

/// What a call that read `read` bytes says: where it was none, whether the connection broke.
fn said(fd: c_int, read: isize, asked: usize) -> isize {
    if read != 0 || asked == 0 || address::names(fd).is_none() {
        return read;
    }
    let errno = Errno::keep();
    // SAFETY: the caller's descriptor, which has just said its name.
    match Asker::here().ended(unsafe { BorrowedFd::borrow_raw(fd) }) {
        Ok(()) => 0,
        Err(error) => {
            drop(errno);
            fail(error) as isize
        }
    }
}

/// read(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, to: *mut c_void, bytes: usize) -> isize {
    // SAFETY: the caller's arguments, as they came.
    said(fd, unsafe { (real().read)(fd, to, bytes) }, bytes)
}

/// readv(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, to: *const iovec, count: c_int) -> isize {
    // SAFETY: the caller's arguments, as they came.
    said(fd, unsafe { (real().readv)(fd, to, count) }, 1)
}

/// recv(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, bytes: usize, flags: c_int) -> isize {
    // SAFETY: the caller's arguments, as they came.
    said(fd, unsafe { (real().recv)(fd, to, bytes, flags) }, bytes)
}

/// recvfrom(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    bytes: usize,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> isize {
    // SAFETY: the caller's arguments, as they came.
    said(fd, unsafe { (real().recvfrom)(fd, to, bytes, flags, from, len) }, bytes)
}

/// recvmsg(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's arguments, as they came.
    said(fd, unsafe { (real().recvmsg)(fd, message, flags) }, 1)
}
