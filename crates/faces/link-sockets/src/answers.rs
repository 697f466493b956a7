//! Addresses and options of an end of a pair, as a TCP socket reports them.

use std::{
    ffi::{c_int, c_void},
    os::fd::BorrowedFd,
    ptr,
};

use libc::{EFAULT, sockaddr, socklen_t};
use link::sockets::{BrokerClient, is_of_tcp, option, set_option};

use crate::{
    address,
    real::{Errno, fail, real},
};

/// getsockname(2).
///
/// # Safety
/// The contract of getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match address::names(fd) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { (real().getsockname)(fd, at, len) },
        Some((local, _)) => {
            // SAFETY: by the caller.
            unsafe { address::write(local, at, len) };
            0
        }
    }
}

/// getpeername(2).
///
/// # Safety
/// The contract of getpeername(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match address::names(fd) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { (real().getpeername)(fd, at, len) },
        Some((_, peer)) => {
            // SAFETY: by the caller.
            unsafe { address::write(peer, at, len) };
            0
        }
    }
}

/// getsockopt(2).
///
/// # Safety
/// The contract of getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let Some((local, _)) = is_of_tcp(level, name).then(|| address::names(fd)).flatten() else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { (real().getsockopt)(fd, level, name, at, len) };
    };
    let errno = Errno::keep();
    // SAFETY: the caller's descriptor, which has just said its name.
    let figures = || BrokerClient::here().figures(unsafe { BorrowedFd::borrow_raw(fd) }).ok();
    let value = option(level, name, local.is_ipv6(), figures);
    drop(errno);
    let value = match value {
        Ok(value) => value,
        Err(error) => return fail(error),
    };
    if at.is_null() || len.is_null() {
        return fail(EFAULT);
    }
    // SAFETY: `at` has room for as many bytes as `len` says, by the caller.
    unsafe {
        let room = (*len as usize).min(value.len());
        ptr::copy_nonoverlapping(value.as_ptr(), at.cast::<u8>(), room);
        *len = room as socklen_t;
    }
    0
}

/// setsockopt(2).
///
/// # Safety
/// The contract of setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(fd: c_int, level: c_int, name: c_int, at: *const c_void, len: socklen_t) -> c_int {
    if is_of_tcp(level, name) && address::names(fd).is_some() {
        return set_option(level, name).map_or_else(fail, |()| 0);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().setsockopt)(fd, level, name, at, len) }
}
