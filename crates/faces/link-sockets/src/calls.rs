//! The calls that make connections.

use std::{
    ffi::c_int,
    mem,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    ptr,
};

use libc::{
    EISCONN, F_GETFD, F_GETFL, F_SETFL, FD_CLOEXEC, O_CLOEXEC, O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO, SOCK_NONBLOCK,
    SOL_SOCKET, c_void, sockaddr, socklen_t, timeval,
};
use link::sockets::BrokerClient;

use crate::{
    address, epoll,
    real::{Errno, fail, real},
    socket::{is_from_here, is_tcp},
    table::{self, Descriptor},
};

/// connect(2).
///
/// # Safety
/// The contract of connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: `to` and `len` are the caller's, who promises what connect(2) asks for.
    let address = unsafe { address::read(to, len) };
    if let Some(address) = address.filter(|_| fd >= 0) {
        // SAFETY: the caller's descriptor, which is open for the time of this call unless the program has an error of its own.
        let tcp = unsafe { BorrowedFd::borrow_raw(fd) };
        if address::names(fd).is_some() {
            return fail(EISCONN);
        }
        let broker = BrokerClient::here();
        if is_tcp(fd) && broker.is_of_cluster(address) {
            // SAFETY: F_GETFL takes nothing.
            let is_blocking = unsafe { (real().fcntl)(fd, F_GETFL) } & O_NONBLOCK == 0;
            match broker.connect(tcp, address, is_blocking) {
                Ok(Some(end)) => return replace(fd, &end, false),
                Ok(None) => {}
                Err(error) => return fail(error.raw_os_error().unwrap_or(libc::ENETDOWN)),
            }
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().connect)(fd, to, len) }
}

/// listen(2).
///
/// # Safety
/// The contract of listen(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let done = unsafe { (real().listen)(fd, backlog) };
    if done == 0 && is_tcp(fd) {
        let _errno = Errno::keep();
        // SAFETY: it listens, so it is open.
        let tcp = unsafe { BorrowedFd::borrow_raw(fd) };
        // Without a broker that serves a cluster nobody comes over link.
        let _ = BrokerClient::here().listens(tcp);
    }
    done
}

/// accept(2).
///
/// # Safety
/// The contract of accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let taken = unsafe { (real().accept)(fd, from, len) };
    if taken >= 0 {
        // SAFETY: as above.
        unsafe { swap(taken, 0, from, len) };
    }
    taken
}

/// accept4(2).
///
/// # Safety
/// The contract of accept4(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let taken = unsafe { (real().accept4)(fd, from, len, flags) };
    if taken >= 0 {
        // SAFETY: as above.
        unsafe { swap(taken, flags, from, len) };
    }
    taken
}

/// Replaces an accepted connection by an end of a pair, if the broker made it.
///
/// # Safety
/// `from` and `len` as accept(2) wants them.
unsafe fn swap(taken: c_int, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) {
    let _errno = Errno::keep();
    // The number may have been another connection's.
    table::set(taken, Descriptor::Other);
    epoll::forget(taken);
    if !is_from_here(taken) {
        return;
    }
    // SAFETY: accept(2) has just given it.
    let tcp = unsafe { BorrowedFd::borrow_raw(taken) };
    let Ok(Some(end)) = BrokerClient::here().accepted(tcp) else { return };
    let peer = address::names(end.as_raw_fd()).map(|(_, peer)| peer);
    if replace(taken, &end, true) == 0 {
        if flags & SOCK_NONBLOCK != 0 {
            // SAFETY: the descriptor is this function's.
            unsafe { (real().fcntl)(taken, F_SETFL, (real().fcntl)(taken, F_GETFL) | O_NONBLOCK) };
        }
        if let Some(peer) = peer {
            // SAFETY: by the caller.
            unsafe { address::write(peer, from, len) };
        }
    }
}

/// Replaces a socket by an end of a pair, with its settings: O_NONBLOCK, timeouts, FD_CLOEXEC, epoll instances.
fn replace(fd: c_int, end: &OwnedFd, is_accepted: bool) -> c_int {
    let new = end.as_raw_fd();
    epoll::forget_stale(fd);
    // SAFETY: both descriptors are open; the option's place is as long as is said.
    let done = unsafe {
        (real().fcntl)(new, F_SETFL, (real().fcntl)(fd, F_GETFL));
        for name in [SO_RCVTIMEO, SO_SNDTIMEO] {
            let mut time: timeval = mem::zeroed();
            let mut len = mem::size_of_val(&time) as socklen_t;
            let at = (&raw mut time).cast::<c_void>();
            if (real().getsockopt)(fd, SOL_SOCKET, name, at, &raw mut len) == 0 {
                (real().setsockopt)(new, SOL_SOCKET, name, ptr::from_ref(&time).cast(), len);
            }
        }
        let is_closed_by_exec = (real().fcntl)(fd, F_GETFD) & FD_CLOEXEC != 0;
        (real().dup3)(new, fd, if is_closed_by_exec { O_CLOEXEC } else { 0 })
    };
    if done < 0 {
        return -1;
    }
    epoll::add_again(fd);
    table::set(fd, Descriptor::Brokered { is_accepted, calls: 0 });
    0
}
