//! Which epoll instances watch which sockets. Before a connect: replacing the socket removes it from the instance, and it has to be added again. After
//! it: a connection taken over is reported readable without passing its bytes into the pair.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{Mutex, PoisonError},
};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};

use crate::{
    real::{Errno, real},
    socket::option,
    transfer::is_known,
};

/// Events and data by socket and epoll instance, of unconnected stream sockets, which can be replaced, and of ends of pairs.
static WATCHED: Mutex<BTreeMap<(c_int, c_int), (u32, u64)>> = Mutex::new(BTreeMap::new());

/// epoll_ctl(2).
///
/// # Safety
/// The contract of epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(instance: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let done = unsafe { (real().epoll_ctl)(instance, what, fd, event) };
    if done == 0 {
        let _errno = Errno::keep();
        match what {
            EPOLL_CTL_ADD | EPOLL_CTL_MOD if !event.is_null() && (is_known(fd) || may_be_connected(fd)) => {
                // SAFETY: epoll_ctl(2) has just read it.
                let event = unsafe { *event };
                watched().insert((fd, instance), (event.events, event.u64));
            }
            EPOLL_CTL_DEL | EPOLL_CTL_ADD => drop(watched().remove(&(fd, instance))),
            _ => {}
        }
    }
    done
}

fn watched() -> std::sync::MutexGuard<'static, BTreeMap<(c_int, c_int), (u32, u64)>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True for a TCP socket that has no peer and does not listen.
fn may_be_connected(fd: c_int) -> bool {
    if !matches!(option(fd, libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6)) {
        return false;
    }
    if option(fd, libc::SO_TYPE) != Some(libc::SOCK_STREAM) || option(fd, libc::SO_ACCEPTCONN) != Some(0) {
        return false;
    }
    // SAFETY: all zeros are a storage; the call writes at most its length.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = std::mem::size_of_val(&storage) as libc::socklen_t;
        (real().getpeername)(fd, (&raw mut storage).cast(), &raw mut len) != 0
    }
}

/// The events and data with which an instance watches a descriptor.
pub(crate) fn of(fd: c_int, instance: c_int) -> Option<(u32, u64)> {
    watched().get(&(fd, instance)).copied()
}

/// True if a known instance watches the descriptor.
pub(crate) fn is_watched(fd: c_int) -> bool {
    watched().range((fd, c_int::MIN)..=(fd, c_int::MAX)).next().is_some()
}

/// Removes a descriptor that is closed, or new.
pub(crate) fn forget(fd: c_int) {
    forget_if(fd, |_, _| true);
}

/// Removes entries that the kernel no longer has: the number was closed by a call that this library does not see.
pub(crate) fn forget_stale(fd: c_int) {
    forget_if(fd, |instance, (events, u64)| {
        let mut event = epoll_event { events, u64 };
        // SAFETY: the event is alive, and the same as the instance has, if it has one.
        unsafe { (real().epoll_ctl)(instance, EPOLL_CTL_MOD, fd, &raw mut event) != 0 }
    });
}

fn forget_if(fd: c_int, is_over: impl Fn(c_int, (u32, u64)) -> bool) {
    let mut watched = watched();
    let of_fd = watched.range((fd, c_int::MIN)..=(fd, c_int::MAX));
    let over: Vec<_> = of_fd.filter(|&(&(_, at), &event)| is_over(at, event)).map(|(&key, _)| key).collect();
    for key in over {
        watched.remove(&key);
    }
}

/// Adds a descriptor to its instances again.
pub(crate) fn add_again(fd: c_int) {
    let watched = watched();
    let of_fd: Vec<_> = watched.range((fd, c_int::MIN)..=(fd, c_int::MAX)).map(|(&at, &event)| (at, event)).collect();
    for ((fd, instance), (events, u64)) in of_fd {
        let mut event = epoll_event { events, u64 };
        // SAFETY: the event is alive. An instance that is closed by now refuses, which is as it should be.
        unsafe { (real().epoll_ctl)(instance, EPOLL_CTL_ADD, fd, &raw mut event) };
    }
}
