//! The calls that read. A pair of Unix sockets reports an end, never an error. So at an end the broker is asked whether the connection broke: a file
//! that arrived in part is not taken for a whole one.

use std::{
    ffi::{c_int, c_void},
    os::fd::BorrowedFd,
    slice,
};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use link::sockets::BrokerClient;

use crate::{
    address,
    real::{Errno, fail, real},
    transfer::{self, Read, through_pair},
};

/// The result of a call that read `read` bytes of `wanted`: at an end, the error if the connection broke.
fn end_or_error(fd: c_int, read: isize, wanted: usize) -> isize {
    if read != 0 || wanted == 0 || address::names(fd).is_none() {
        return read;
    }
    if let Some(error) = transfer::ended(fd) {
        return fail(error) as isize;
    }
    let errno = Errno::keep();
    // SAFETY: the caller's descriptor, which has just said its name.
    match BrokerClient::here().ended(unsafe { BorrowedFd::borrow_raw(fd) }) {
        Ok(()) => 0,
        Err(error) => {
            drop(errno);
            fail(error) as isize
        }
    }
}

/// Reads into one place: here if the connection is taken over, else by the kernel's call.
///
/// # Safety
/// `to` is writable for `bytes`, or the kernel's call answers for it.
unsafe fn one(fd: c_int, to: *mut c_void, bytes: usize, flags: c_int, kernel: impl FnOnce() -> isize) -> isize {
    // SAFETY: by the caller.
    match unsafe { transfer::read(fd, &[iovec { iov_base: to, iov_len: bytes }], flags) } {
        Read::Done(read) => read,
        Read::Kernel => end_or_error(fd, through_pair(fd, kernel), bytes),
    }
}

/// read(2).
///
/// # Safety
/// The contract of read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, to: *mut c_void, bytes: usize) -> isize {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { one(fd, to, bytes, 0, || (real().read)(fd, to, bytes)) }
}

/// read(2), as compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// The contract of read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, to: *mut c_void, bytes: usize, room: usize) -> isize {
    checked(bytes, room);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { read(fd, to, bytes) }
}

/// readv(2).
///
/// # Safety
/// The contract of readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, to: *const iovec, count: c_int) -> isize {
    // SAFETY: the caller's places, which readv(2) reads too.
    unsafe { many(fd, to, usize::try_from(count).unwrap_or(0), 0, || (real().readv)(fd, to, count)) }
}

/// recv(2).
///
/// # Safety
/// The contract of recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, bytes: usize, flags: c_int) -> isize {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { one(fd, to, bytes, flags, || (real().recv)(fd, to, bytes, flags)) }
}

/// recv(2), as [`__read_chk`].
///
/// # Safety
/// The contract of recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(fd: c_int, to: *mut c_void, bytes: usize, room: usize, flags: c_int) -> isize {
    checked(bytes, room);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { recv(fd, to, bytes, flags) }
}

/// recvfrom(2).
///
/// # Safety
/// The contract of recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    bytes: usize,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> isize {
    // SAFETY: the caller's arguments, unchanged; a pair has no address, and neither does TCP.
    unsafe {
        let read = one(fd, to, bytes, flags, || (real().recvfrom)(fd, to, bytes, flags, from, len));
        if read >= 0 && !len.is_null() && transfer::is_registered(fd) {
            *len = 0;
        }
        read
    }
}

/// recvfrom(2), as [`__read_chk`].
///
/// # Safety
/// The contract of recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: usize,
    room: usize,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> isize {
    checked(bytes, room);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { recvfrom(fd, to, bytes, flags, from, len) }
}

/// recvmsg(2).
///
/// # Safety
/// The contract of recvmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    if message.is_null() || !transfer::is_known(fd) {
        // SAFETY: the caller's arguments, unchanged.
        return end_or_error(fd, unsafe { (real().recvmsg)(fd, message, flags) }, 1);
    }
    // SAFETY: the caller's message, which recvmsg(2) reads and writes too.
    unsafe {
        let (to, count) = ((*message).msg_iov, (*message).msg_iovlen);
        let mut is_kernels = false;
        let read = many(fd, to, count, flags, || {
            is_kernels = true;
            (real().recvmsg)(fd, message, flags)
        });
        if !is_kernels && read >= 0 {
            ((*message).msg_namelen, (*message).msg_controllen, (*message).msg_flags) = (0, 0, 0);
        }
        read
    }
}

/// Reads into several places, as [`one`].
///
/// # Safety
/// `to` points to `count` places, each writable for its length, or the kernel's call answers for it.
unsafe fn many(fd: c_int, to: *const iovec, count: usize, flags: c_int, kernel: impl FnOnce() -> isize) -> isize {
    if transfer::is_known(fd) && !to.is_null() && count > 0 && count <= libc::UIO_MAXIOV as usize {
        // SAFETY: by the caller.
        if let Read::Done(read) = unsafe { transfer::read(fd, slice::from_raw_parts(to, count), flags) } {
            return read;
        }
    }
    end_or_error(fd, through_pair(fd, kernel), 1)
}

/// Ends the program if a call may overrun its buffer, as the C library does.
fn checked(bytes: usize, room: usize) {
    if bytes > room {
        std::process::abort();
    }
}
