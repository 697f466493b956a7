//! What an end says of itself: what a TCP socket would say.

use std::{
    ffi::{c_int, c_void},
    mem,
    os::fd::BorrowedFd,
    ptr,
};

use libc::{
    AF_INET, AF_INET6, ENOPROTOOPT, IP_OPTIONS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_DOMAIN, SO_PROTOCOL,
    SOL_SOCKET, TCP_INFO, TCP_MAXSEG, TCP_NODELAY, sockaddr, socklen_t, tcp_info,
};
use link::sockets::Asker;

use crate::{
    address,
    real::{Errno, fail, real},
};

/// Bytes of a segment, where a program asks: what TCP has at an MTU of 1500.
const SEGMENT: c_int = 1448;

/// The state of an open connection (net/tcp_states.h).
const TCP_ESTABLISHED: u8 = 1;

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
    if at.is_null() || len.is_null() {
        return fail(libc::EFAULT);
    }
    if (level, name) == (IPPROTO_TCP, TCP_INFO) {
        return match info(fd) {
            // SAFETY: by the caller; neither is null.
            Some(info) => unsafe { put(&info, at, len) },
            None => fail(ENOPROTOOPT),
        };
    }
    if (level, name) == (IPPROTO_IP, IP_OPTIONS) {
        // There are none.
        // SAFETY: it is not null, and the caller's.
        unsafe { *len = 0 };
        return 0;
    }
    let value = match (level, name) {
        (SOL_SOCKET, SO_DOMAIN) => {
            if local.is_ipv6() {
                AF_INET6
            } else {
                AF_INET
            }
        }
        (SOL_SOCKET, _) => IPPROTO_TCP,
        // Small writes leave at once.
        (IPPROTO_TCP, TCP_NODELAY) => 1,
        (IPPROTO_TCP, TCP_MAXSEG) => SEGMENT,
        (IPPROTO_TCP, _) => return fail(ENOPROTOOPT),
        // Of IP: nothing is set, for which zero stands.
        _ => 0,
    };
    // SAFETY: by the caller; neither is null.
    unsafe { put(&value, at, len) }
}

/// Writes as much of an option's value as there is room for.
///
/// # Safety
/// `at` points to as many writable bytes as `len` says, which is not null either.
unsafe fn put<T>(value: &T, at: *mut c_void, len: *mut socklen_t) -> c_int {
    // SAFETY: by the caller.
    unsafe {
        let room = (*len as usize).min(mem::size_of::<T>());
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), at.cast::<u8>(), room);
        *len = room as socklen_t;
    }
    0
}

/// What TCP_INFO says of an end. What link does not have stays zero.
fn info(fd: c_int) -> Option<tcp_info> {
    let _errno = Errno::keep();
    // SAFETY: the caller's descriptor, which has just said its name.
    let figures = Asker::here().figures(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    // SAFETY: all zeros are a tcp_info.
    let mut info: tcp_info = unsafe { mem::zeroed() };
    info.tcpi_state = TCP_ESTABLISHED;
    info.tcpi_rtt = u32::try_from(figures.round_trip.as_micros()).unwrap_or(u32::MAX);
    info.tcpi_total_retrans = u32::try_from(figures.resent).unwrap_or(u32::MAX);
    info.tcpi_snd_mss = figures.frame_bytes.into();
    info.tcpi_rcv_mss = figures.frame_bytes.into();
    Some(info)
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
