//! What an end says of itself: what a TCP socket would say.

use std::{
    ffi::{c_int, c_void},
    mem, ptr,
};

use libc::{
    AF_INET, AF_INET6, ENOPROTOOPT, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_DOMAIN, SO_PROTOCOL, SOL_SOCKET, TCP_MAXSEG,
    TCP_NODELAY, sockaddr, socklen_t,
};

use crate::{
    address,
    real::{fail, real},
};

/// Bytes of a segment, where a program asks: what TCP has at an MTU of 1500.
const SEGMENT: c_int = 1448;

/// getsockname(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match address::names(fd) {
        // SAFETY: the caller's arguments, as they came.
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
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match address::names(fd) {
        // SAFETY: the caller's arguments, as they came.
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
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let is_asked = matches!(level, IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6)
        || level == SOL_SOCKET && matches!(name, SO_DOMAIN | SO_PROTOCOL);
    let Some((local, _)) = is_asked.then(|| address::names(fd)).flatten() else {
        // SAFETY: the caller's arguments, as they came.
        return unsafe { (real().getsockopt)(fd, level, name, at, len) };
    };
    let value = match (level, name) {
        (SOL_SOCKET, SO_DOMAIN) => if local.is_ipv6() { AF_INET6 } else { AF_INET },
        (SOL_SOCKET, _) => IPPROTO_TCP,
        // Small writes leave at once.
        (IPPROTO_TCP, TCP_NODELAY) => 1,
        (IPPROTO_TCP, TCP_MAXSEG) => SEGMENT,
        (IPPROTO_TCP, _) => return fail(ENOPROTOOPT),
        // Of IP: nothing is set, for which zero stands.
        _ => 0,
    };
    if at.is_null() || len.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: `at` has room for as many bytes as `len` says, by the caller.
    unsafe {
        let room = (*len as usize).min(mem::size_of_val(&value));
        ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast::<u8>(), room);
        *len = room as socklen_t;
    }
    0
}

/// setsockopt(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(fd: c_int, level: c_int, name: c_int, at: *const c_void, len: socklen_t) -> c_int {
    // What is set of TCP and IP has nothing to work on.
    if matches!(level, IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6) && address::names(fd).is_some() {
        return 0;
    }
    // SAFETY: the caller's arguments, as they came.
    unsafe { (real().setsockopt)(fd, level, name, at, len) }
}
