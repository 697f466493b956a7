//! The calls that open, copy or close a descriptor's number.

use std::ffi::{c_char, c_int, c_uint};

use libc::{EBADF, EBUSY, F_DUPFD, F_DUPFD_CLOEXEC, FILE, SHUT_WR};
use link::sockets::takeover::ConnectionId;

use crate::{
    helper_mode::{wake_fd, wake_helper},
    locked::Locked,
    real::{Errno, fail, real},
    table::{self, Descriptor},
    transfer::through_pair,
};

/// Closes a number by `close`, and removes it from its connection.
fn closing(fd: c_int, close: impl FnOnce() -> c_int) -> c_int {
    let Descriptor::Registered(id) = table::get(fd) else {
        if table::get(fd) != Descriptor::Other {
            table::set(fd, Descriptor::Other);
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
    table::set(fd, Descriptor::Other);
    locked.remove_descriptor(fd, id);
    crate::epoll::forget(fd);
    let done = close();
    let _errno = Errno::keep();
    leave(&mut locked, id);
    done
}

/// Closes a connection that has no descriptor left.
fn leave(locked: &mut Locked, id: ConnectionId) {
    let mut is_left = false;
    table::each_registered(|_, other| is_left |= other == id);
    if !is_left {
        if let Some(takeovers) = locked.takeovers() {
            takeovers.closed(id);
        }
        wake_helper();
    }
}

/// True for a descriptor that this library opened, not the program.
fn is_ours(fd: c_int) -> bool {
    if !table::has_registered() || table::get(fd) != Descriptor::Other {
        return false;
    }
    let Some(mut locked) = Locked::take() else { return false };
    locked.is_own()
        && (fd == wake_fd() || locked.takeovers().is_some_and(|takeovers| takeovers.descriptors().contains(&fd)))
}

/// close(2).
///
/// # Safety
/// The contract of close(2).
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
/// The contract of fclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: the caller's file.
    let fd = if file.is_null() { -1 } else { unsafe { libc::fileno(file) } };
    // SAFETY: the caller's argument.
    closing(fd, || unsafe { (real().fclose)(file) })
}

/// fdopen(3). Reads and writes of the file are calls that this library does not see.
///
/// # Safety
/// The contract of fdopen(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, how: *const c_char) -> *mut FILE {
    return_to_pair(fd);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().fdopen)(fd, how) }
}

/// Passes all bytes of a connection through its pair from now on.
fn return_to_pair(fd: c_int) {
    let what = table::get(fd);
    table::set(fd, Descriptor::Other);
    let Descriptor::Registered(id) = what else { return };
    let _errno = Errno::keep();
    if let Some(mut locked) = Locked::take() {
        locked.remove_descriptor(fd, id);
        leave(&mut locked, id);
    }
}

/// close_range(2).
///
/// # Safety
/// The contract of close_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    let range =
        |first: c_uint, last: c_uint| unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int };
    // It closes nothing, or nothing of ours.
    if flags != 0 || first > last || !table::has_registered() {
        return range(first, last);
    }
    let mut ours: Vec<c_uint> = Vec::new();
    if let Some(mut locked) = Locked::take() {
        if !locked.is_own() {
            drop(locked);
            return range(first, last);
        }
        let all = locked.takeovers().map(|takeovers| takeovers.descriptors()).unwrap_or_default();
        ours.extend(all.into_iter().chain([wake_fd()]).filter_map(|fd| c_uint::try_from(fd).ok()));
    }
    let mut fds = Vec::new();
    table::each_registered(|fd, _| fds.push(fd));
    for fd in fds {
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
/// The contract of closefrom(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: it takes numbers only.
    unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) };
}

/// Records a copy of a descriptor.
fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0 {
        let what = table::get(fd);
        if table::get(copy) != what {
            table::set(copy, what);
        }
        if let Descriptor::Registered(id) = what
            && let Some(mut locked) = Locked::take()
        {
            locked.add_descriptor(copy, id);
        }
    }
    copy
}

/// dup(2).
///
/// # Safety
/// The contract of dup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: it takes a number only.
    copied(fd, unsafe { (real().dup)(fd) })
}

/// dup2(2).
///
/// # Safety
/// The contract of dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    over(fd, to, || unsafe { (real().dup2)(fd, to) })
}

/// dup3(2).
///
/// # Safety
/// The contract of dup3(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    over(fd, to, || unsafe { (real().dup3)(fd, to, flags) })
}

/// Copies a descriptor over another number, which closes that.
fn over(fd: c_int, to: c_int, copy: impl Fn() -> c_int) -> c_int {
    if fd != to && is_ours(to) {
        return fail(EBUSY);
    }
    if fd == to || table::get(fd) == Descriptor::Other && table::get(to) == Descriptor::Other {
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

/// fcntl(2). A missing argument is a register that is not read.
///
/// # Safety
/// The contract of fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, what: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let done = unsafe { (real().fcntl)(fd, what, argument) };
    if what == F_DUPFD || what == F_DUPFD_CLOEXEC { copied(fd, done) } else { done }
}

/// fcntl(2), by the name of programs with large files.
///
/// # Safety
/// The contract of fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, what: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { fcntl(fd, what, argument) }
}

/// shutdown(2). After SHUT_RD the pair drops what arrives.
///
/// # Safety
/// The contract of shutdown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    let done = through_pair(fd, || unsafe { (real().shutdown)(fd, how) });
    if done == 0 && how != SHUT_WR {
        return_to_pair(fd);
    }
    done
}
