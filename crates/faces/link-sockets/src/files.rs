//! The calls after which a number stands for something else.

use std::ffi::{c_char, c_int, c_uint};

use libc::{EBADF, EBUSY, F_DUPFD, F_DUPFD_CLOEXEC, FILE, SHUT_WR};
use link::sockets::direct::Id;

use crate::{
    fast::aside,
    helper_mode::{kick_fd, wake_helper},
    locked::Locked,
    real::{Errno, fail, real},
    table::{self, What},
};

/// Closes a number by `close`: what it stood for has a descriptor less.
fn closing(fd: c_int, close: impl FnOnce() -> c_int) -> c_int {
    let What::Carried(id) = table::get(fd) else {
        if table::get(fd) != What::Other {
            table::set(fd, What::Other);
        }
        // A connection that is left to the broker for good is Other, too.
        crate::epoll::forget(fd);
        return close();
    };
    let Some(mut locked) = Locked::take() else { return close() };
    if !locked.is_own() {
        drop(locked);
        return close();
    }
    table::set(fd, What::Other);
    locked.unknow(fd, id);
    crate::epoll::forget(fd);
    let done = close();
    let _errno = Errno::keep();
    leave(&mut locked, id);
    done
}

/// Has a connection end here for which no descriptor is known any more.
fn leave(locked: &mut Locked, id: Id) {
    let mut is_left = false;
    table::each_carried(|_, other| is_left |= other == id);
    if !is_left {
        if let Some(direct) = locked.direct() {
            direct.closed(id);
        }
        wake_helper();
    }
}

/// Is a number one of this library's, of which the program knows nothing?
fn is_ours(fd: c_int) -> bool {
    if !table::has_carried() || table::get(fd) != What::Other {
        return false;
    }
    let Some(mut locked) = Locked::take() else { return false };
    locked.is_own() && (fd == kick_fd() || locked.direct().is_some_and(|direct| direct.descriptors().contains(&fd)))
}

/// close(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_ours(fd) {
        return fail(EBADF);
    }
    // SAFETY: the caller's argument.
    closing(fd, || unsafe { (real().close)(fd) })
}

/// fclose(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: the caller's file.
    let fd = if file.is_null() { -1 } else { unsafe { libc::fileno(file) } };
    // SAFETY: the caller's argument.
    closing(fd, || unsafe { (real().fclose)(file) })
}

/// fdopen(3): what reads and writes the file from then on are calls that are not seen.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, how: *const c_char) -> *mut FILE {
    give_back(fd);
    // SAFETY: the caller's arguments, as they came.
    unsafe { (real().fdopen)(fd, how) }
}

/// Has all that comes for a connection go through its pair from now on.
fn give_back(fd: c_int) {
    let what = table::get(fd);
    table::set(fd, What::Other);
    let What::Carried(id) = what else { return };
    let _errno = Errno::keep();
    if let Some(mut locked) = Locked::take() {
        locked.unknow(fd, id);
        leave(&mut locked, id);
    }
}

/// close_range(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    let range =
        |first: c_uint, last: c_uint| unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int };
    // Only marks them, or is none.
    if flags != 0 || first > last || !table::has_carried() {
        return range(first, last);
    }
    let mut ours: Vec<c_uint> = Vec::new();
    if let Some(mut locked) = Locked::take() {
        if !locked.is_own() {
            drop(locked);
            return range(first, last);
        }
        let all = locked.direct().map(|direct| direct.descriptors()).unwrap_or_default();
        ours.extend(all.into_iter().chain([kick_fd()]).filter_map(|fd| c_uint::try_from(fd).ok()));
    }
    let mut carried = Vec::new();
    table::each_carried(|fd, _| carried.push(fd));
    for fd in carried {
        if (first..=last).contains(&(fd.unsigned_abs())) {
            // SAFETY: the caller wants it closed.
            unsafe { close(fd) };
        }
    }
    ours.sort_unstable();
    let mut next = first;
    for fd in ours.into_iter().filter(|fd| (first..=last).contains(fd)) {
        if fd > next && range(next, fd - 1) != 0 {
            return -1;
        }
        next = fd + 1;
    }
    if next <= last { range(next, last) } else { 0 }
}

/// closefrom(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: it takes numbers only.
    unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) };
}

/// What a copy of a descriptor is: what the descriptor is.
fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0 {
        let what = table::get(fd);
        if table::get(copy) != what {
            table::set(copy, what);
        }
        if let What::Carried(id) = what
            && let Some(mut locked) = Locked::take()
        {
            locked.know(copy, id);
        }
    }
    copy
}

/// dup(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: it takes a number only.
    copied(fd, unsafe { (real().dup)(fd) })
}

/// dup2(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    over(fd, to, || unsafe { (real().dup2)(fd, to) })
}

/// dup3(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    over(fd, to, || unsafe { (real().dup3)(fd, to, flags) })
}

/// Copies a descriptor over another number, which is closed by that.
fn over(fd: c_int, to: c_int, copy: impl Fn() -> c_int) -> c_int {
    if fd != to && is_ours(to) {
        return fail(EBUSY);
    }
    if fd == to || table::get(fd) == What::Other && table::get(to) == What::Other {
        return copy();
    }
    if let Some(mut locked) = Locked::take()
        && !locked.is_own()
    {
        // A child of vfork(2) has its descriptors for itself, and the memory with its parent.
        drop(locked);
        return copy();
    }
    copied(fd, closing(to, copy))
}

/// fcntl(2). On the machines that this is built for an argument that is not there is one that is not read.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, what: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments, as they came.
    let done = unsafe { (real().fcntl)(fd, what, argument) };
    if what == F_DUPFD || what == F_DUPFD_CLOEXEC { copied(fd, done) } else { done }
}

/// The same by its other name.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, what: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments, as they came.
    unsafe { fcntl(fd, what, argument) }
}

/// shutdown(2). Who reads no more has what comes dropped by the pair.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    let done = aside(fd, || unsafe { (real().shutdown)(fd, how) });
    if done == 0 && how != SHUT_WR {
        give_back(fd);
    }
    done
}
