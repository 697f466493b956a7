//! The calls that write.

use std::{
    ffi::{c_int, c_void},
    ptr, slice,
};

use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::{address, real::real, transfer};

/// Writes from one place: here if the connection is taken over, else by the kernel's call.
///
/// # Safety
/// `from` is readable for `bytes`, or the kernel's call answers for it.
unsafe fn one(fd: c_int, from: *const c_void, bytes: usize, flags: c_int, kernel: impl FnOnce() -> isize) -> isize {
    let place = iovec { iov_base: from.cast_mut(), iov_len: bytes };
    // SAFETY: by the caller.
    unsafe { transfer::write(fd, &[place], flags) }.unwrap_or_else(kernel)
}

/// write(2).
///
/// # Safety
/// The contract of write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, bytes: usize) -> isize {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { one(fd, from, bytes, 0, || (real().write)(fd, from, bytes)) }
}

/// writev(2).
///
/// # Safety
/// The contract of writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, from: *const iovec, count: c_int) -> isize {
    // SAFETY: the caller's places, which writev(2) reads too.
    unsafe { many(fd, from, usize::try_from(count).unwrap_or(0), 0) }
        // SAFETY: the caller's arguments, unchanged.
        .unwrap_or_else(|| unsafe { (real().writev)(fd, from, count) })
}

/// send(2).
///
/// # Safety
/// The contract of send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, from: *const c_void, bytes: usize, flags: c_int) -> isize {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { one(fd, from, bytes, flags, || (real().send)(fd, from, bytes, flags)) }
}

/// sendto(2). TCP ignores the address on a socket that is connected, while a Unix socket refuses it.
///
/// # Safety
/// The contract of sendto(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    what: *const c_void,
    bytes: usize,
    flags: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> isize {
    let is_end = !to.is_null() && (transfer::is_known(fd) || address::names(fd).is_some());
    let (to, len) = if is_end { (ptr::null(), 0) } else { (to, len) };
    // SAFETY: the caller's arguments, as they came or without the address.
    unsafe { one(fd, what, bytes, flags, || (real().sendto)(fd, what, bytes, flags, to, len)) }
}

/// sendmsg(2), as [`sendto`].
///
/// # Safety
/// The contract of sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    if message.is_null() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { (real().sendmsg)(fd, message, flags) };
    }
    // SAFETY: the caller's message, which sendmsg(2) reads too; the copy has the same pointers.
    unsafe {
        let mut one = *message;
        if one.msg_controllen == 0
            && let Some(written) = many(fd, one.msg_iov, one.msg_iovlen, flags)
        {
            return written;
        }
        if !one.msg_name.is_null() && address::names(fd).is_some() {
            (one.msg_name, one.msg_namelen) = (ptr::null_mut(), 0);
            return (real().sendmsg)(fd, &raw const one, flags);
        }
        (real().sendmsg)(fd, message, flags)
    }
}

/// Writes from several places; none: the kernel's call has to be made.
///
/// # Safety
/// `from` points to `count` places, each readable for its length, or the kernel's call answers for it.
unsafe fn many(fd: c_int, from: *const iovec, count: usize, flags: c_int) -> Option<isize> {
    if !transfer::is_known(fd) || from.is_null() || count == 0 || count > libc::UIO_MAXIOV as usize {
        return None;
    }
    // SAFETY: by the caller.
    unsafe { transfer::write(fd, slice::from_raw_parts(from, count), flags) }
}
