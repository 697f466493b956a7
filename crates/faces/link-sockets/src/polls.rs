//! The calls that wait for many descriptors.
//!
//! poll(2) and select(2) name their descriptors, and those of an epoll instance are known from epoll_ctl(2): a connection taken over is reported
//! readable without passing its bytes into the pair. Where an instance watches in another way (EPOLLONESHOT, another process), they are passed first,
//! and the kernel reports.

use std::{
    ffi::{c_int, c_ulong},
    ptr, slice,
    time::{Duration, Instant},
};

use libc::{
    EINTR, EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLRDNORM, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDNORM, epoll_event,
    fd_set, nfds_t, pollfd, sigset_t, time_t, timespec, timeval,
};

use crate::{
    epoll,
    locked::Locked,
    real::{fail, real},
    sleep::Woke,
    table::{self, Descriptor},
};

/// poll(2).
///
/// # Safety
/// The contract of poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(polls: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    let until = deadline_of_milliseconds(milliseconds);
    // SAFETY: the caller's descriptors, which poll(2) reads and writes too.
    match unsafe { watch(polls, count, until, ptr::null()) } {
        Some(ready) => ready,
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { (real().poll)(polls, count, milliseconds) },
    }
}

/// poll(2), as compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// The contract of poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(polls: *mut pollfd, count: nfds_t, milliseconds: c_int, room: usize) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { poll(polls, count, milliseconds) }
}

/// ppoll(2).
///
/// # Safety
/// The contract of ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    polls: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's time and descriptors, which ppoll(2) reads and writes too.
    match unsafe { watch(polls, count, deadline(time), mask) } {
        Some(ready) => ready,
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { (real().ppoll)(polls, count, time, mask) },
    }
}

/// Waits as ppoll(2) does; none: the kernel's call has to be made.
///
/// # Safety
/// `polls` points to `count` of them.
unsafe fn watch(polls: *mut pollfd, count: nfds_t, until: Option<Instant>, mask: *const sigset_t) -> Option<c_int> {
    // The kernel refuses what cannot be as many, or are nowhere.
    if !table::has_registered() || polls.is_null() || count == 0 || c_int::try_from(count).is_err() {
        return None;
    }
    // SAFETY: by the caller.
    let polls = unsafe { slice::from_raw_parts_mut(polls, count as usize) };
    if !polls.iter().any(|one| is_registered(one.fd)) {
        return None;
    }
    wait(polls, until, mask, |polls, locked| {
        // SAFETY: the descriptors are alive for the time of the call.
        let ready = unsafe { (real().poll)(polls.as_mut_ptr(), polls.len() as nfds_t, 0) };
        if ready < 0 {
            return ready;
        }
        polls.iter_mut().fold(ready, |ready, one| {
            let wanted = one.events & (POLLIN | POLLRDNORM);
            if wanted == 0 || one.revents & wanted == wanted || !has_more(locked, one.fd) {
                return ready;
            }
            let was_none = one.revents == 0;
            one.revents |= wanted;
            ready + c_int::from(was_none)
        })
    })
}

fn is_registered(fd: c_int) -> bool {
    matches!(table::get(fd), Descriptor::Registered(_))
}

/// True if a connection has unread bytes that are not in its pair.
fn has_more(locked: &mut Locked, fd: c_int) -> bool {
    match table::get(fd) {
        Descriptor::Registered(id) => locked.takeovers().is_some_and(|takeovers| takeovers.is_readable(id)),
        _ => false,
    }
}

/// Calls `look`, and sleeps until one of `polls` is ready or a frame arrives, in turns. None: the kernel's call has to be made.
fn wait(
    polls: &mut [pollfd],
    until: Option<Instant>,
    mask: *const sigset_t,
    mut look: impl FnMut(&mut [pollfd], &mut Locked) -> c_int,
) -> Option<c_int> {
    let mut locked = Locked::take()?;
    loop {
        locked.poll(None);
        let ready = look(polls, &mut locked);
        if ready != 0 {
            return Some(ready);
        }
        // With many connections a longer sleep gathers more events.
        let is_one = locked.takeovers().is_some_and(|takeovers| takeovers.has_one());
        if is_one && until.is_none_or(|until| Instant::now() < until) && locked.busy_poll(None) {
            continue;
        }
        if let Some(takeovers) = locked.takeovers() {
            takeovers.sleeps_for_any(true);
        }
        let watches = locked.has_no_waiter();
        // Any handler ends these calls, SA_RESTART or not (signal(7)).
        let woke = locked.sleep_until(polls, watches, until, mask, || true);
        if let Some(takeovers) = locked.takeovers() {
            takeovers.sleeps_for_any(false);
        }
        match woke {
            Woke::Check => {}
            Woke::TimedOut => {
                locked.poll(None);
                return Some(look(polls, &mut locked));
            }
            Woke::Interrupted => return Some(fail(EINTR)),
        }
    }
}

/// select(2).
///
/// # Safety
/// The contract of select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    most: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    // SAFETY: the caller's time, which select(2) reads and writes too.
    let until = unsafe { time.as_ref() }
        .and_then(|time| deadline_of(time.tv_sec, Duration::from_micros(time.tv_usec.try_into().unwrap_or(0))));
    // SAFETY: the caller's sets, which select(2) reads and writes too.
    let Some(ready) = (unsafe { watch_sets(most, [reads, writes, others], until, ptr::null()) }) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { (real().select)(most, reads, writes, others, time) };
    };
    if let Some(until) = until {
        let left = until.saturating_duration_since(Instant::now());
        // SAFETY: it is not null, as there is a time.
        unsafe { *time = timeval { tv_sec: left.as_secs() as _, tv_usec: left.subsec_micros().into() } };
    }
    ready
}

/// pselect(2).
///
/// # Safety
/// The contract of pselect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    most: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's time and sets, which pselect(2) reads and writes too.
    match unsafe { watch_sets(most, [reads, writes, others], deadline(time), mask) } {
        Some(ready) => ready,
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { (real().pselect)(most, reads, writes, others, time, mask) },
    }
}

/// Waits as pselect(2) does; none: the kernel's call has to be made.
///
/// # Safety
/// Each set is null or has `most` bits.
unsafe fn watch_sets(
    most: c_int,
    sets: [*mut fd_set; 3],
    until: Option<Instant>,
    mask: *const sigset_t,
) -> Option<c_int> {
    const EVENTS: [i16; 3] = [POLLIN, POLLOUT, POLLPRI];
    if !table::has_registered() {
        return None;
    }
    // SAFETY: by the caller.
    let is_in = |set: *mut fd_set, fd| !set.is_null() && unsafe { word_of(fd, set).read() } & bit_of(fd) != 0;
    let events = |fd| (0..3).filter(|&at| is_in(sets[at], fd)).map(|at| EVENTS[at]).sum::<i16>();
    let all = (0..most).map(|fd| pollfd { fd, events: events(fd), revents: 0 });
    let mut polls: Vec<pollfd> = all.filter(|one| one.events != 0).collect();
    if !polls.iter().any(|one| is_registered(one.fd)) {
        return None;
    }
    // SAFETY: by the caller.
    let ready = unsafe { watch(polls.as_mut_ptr(), polls.len() as nfds_t, until, mask)? };
    if ready < 0 {
        return Some(ready);
    }
    if polls.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
        return Some(fail(libc::EBADF));
    }
    let mut count = 0;
    for one in polls {
        let is_over = one.revents & (POLLHUP | libc::POLLERR) != 0;
        for (at, set) in sets.into_iter().enumerate() {
            if one.events & EVENTS[at] == 0 {
                continue;
            }
            if one.revents & EVENTS[at] != 0 || is_over && at < 2 {
                count += 1;
            } else {
                // SAFETY: it was in the set, so the set is there and long enough.
                unsafe { *word_of(one.fd, set) &= !bit_of(one.fd) };
            }
        }
    }
    Some(count)
}

/// The word of a set that has a descriptor's bit. A program may give a set longer than `fd_set`, which FD_ISSET would not read.
///
/// # Safety
/// The set has more than `fd` bits.
unsafe fn word_of(fd: c_int, set: *mut fd_set) -> *mut c_ulong {
    // SAFETY: by the caller.
    unsafe { set.cast::<c_ulong>().add(fd as usize / c_ulong::BITS as usize) }
}

fn bit_of(fd: c_int) -> c_ulong {
    1 << (fd as u32 % c_ulong::BITS)
}

/// epoll_wait(2).
///
/// # Safety
/// The contract of epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    room: c_int,
    milliseconds: c_int,
) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    match unsafe { watch_instance(instance, events, room, deadline_of_milliseconds(milliseconds), ptr::null()) } {
        Some(ready) => ready,
        // SAFETY: as above.
        None => unsafe { (real().epoll_wait)(instance, events, room, milliseconds) },
    }
}

/// epoll_pwait(2).
///
/// # Safety
/// The contract of epoll_pwait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    instance: c_int,
    events: *mut epoll_event,
    room: c_int,
    milliseconds: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    match unsafe { watch_instance(instance, events, room, deadline_of_milliseconds(milliseconds), mask) } {
        Some(ready) => ready,
        // SAFETY: as above.
        None => unsafe { (real().epoll_pwait)(instance, events, room, milliseconds, mask) },
    }
}

/// epoll_pwait2(2).
///
/// # Safety
/// The contract of epoll_pwait2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    instance: c_int,
    events: *mut epoll_event,
    room: c_int,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    match unsafe { watch_instance(instance, events, room, deadline(time), mask) } {
        Some(ready) => ready,
        // SAFETY: as above; the size of the kernel's set of signals is 8 bytes.
        None => unsafe { libc::syscall(libc::SYS_epoll_pwait2, instance, events, room, time, mask, 8_usize) as c_int },
    }
}

/// Waits as epoll_pwait(2) does; none: the kernel's call has to be made.
///
/// # Safety
/// `events` has room for `room`, or the kernel's call answers for it.
unsafe fn watch_instance(
    instance: c_int,
    events: *mut epoll_event,
    room: c_int,
    until: Option<Instant>,
    mask: *const sigset_t,
) -> Option<c_int> {
    if !table::has_registered() {
        return None;
    }
    let mut polls = [pollfd { fd: instance, events: POLLIN, revents: 0 }];
    wait(&mut polls, until, mask, |_, locked| {
        // SAFETY: by the caller.
        let ready = unsafe { (real().epoll_wait)(instance, events, room, 0) };
        let Ok(mut count) = usize::try_from(ready) else { return ready };
        let reported = match events.is_null() {
            true => &mut [],
            // SAFETY: there is room, as the kernel has not refused it.
            false => unsafe { slice::from_raw_parts_mut(events, usize::try_from(room).unwrap_or(0)) },
        };
        let mut is_passed = false;
        locked.readable(|fd, is_fresh| {
            let Some((wanted, data)) = epoll::of(fd, instance) else {
                // It may be watched in an unknown way: the kernel reports.
                let passes = !epoll::is_watched(fd);
                is_passed |= passes;
                return passes;
            };
            let reads = wanted & (EPOLLIN | EPOLLRDNORM).cast_unsigned();
            if reads == 0 {
                return false;
            }
            // Where there is no place for events, the kernel refuses to report them (EFAULT).
            if wanted & EPOLLONESHOT.cast_unsigned() != 0 || events.is_null() {
                is_passed = true;
                return true;
            }
            if wanted & EPOLLET.cast_unsigned() != 0 && !is_fresh {
                return false;
            }
            let kernels = count.min(usize::try_from(ready).unwrap_or(0));
            if let Some(one) = reported[..kernels].iter_mut().find(|one| ({ one.u64 }) == data) {
                one.events |= reads;
            } else if count < reported.len() {
                reported[count] = epoll_event { events: reads, u64: data };
                count += 1;
            }
            false
        });
        if is_passed && count == 0 {
            // SAFETY: by the caller.
            return unsafe { (real().epoll_wait)(instance, events, room, 0) };
        }
        count as c_int
    })
}

/// The deadline of a timeout in milliseconds; none: never.
fn deadline_of_milliseconds(time: c_int) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(u64::try_from(time).ok()?))
}

/// The deadline of a timeout; none: never (null).
///
/// # Safety
/// `time` is null or points to one.
unsafe fn deadline(time: *const timespec) -> Option<Instant> {
    // SAFETY: by the caller.
    let time = unsafe { time.as_ref()? };
    deadline_of(time.tv_sec, Duration::from_nanos(time.tv_nsec.try_into().unwrap_or(0)))
}

/// The deadline of a timeout; none: never (beyond the range of the clock: the kernel takes any number of seconds).
fn deadline_of(seconds: time_t, rest: Duration) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(seconds.try_into().unwrap_or(0)))?.checked_add(rest)
}
