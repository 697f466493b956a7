//! Exit and exec. Written bytes may still be unacknowledged, and other processes may hold the descriptors: a child of this library's own carries the
//! connections to their end.

use std::{
    ffi::{c_char, c_int},
    os::fd::AsRawFd,
    ptr,
    time::{Duration, Instant},
};

use libc::{O_RDWR, POLLIN, SIG_DFL, SIG_IGN, SIGKILL, SIGSTOP, pollfd, timespec};

use crate::{locked::Locked, real::real, table};

/// Longest sleep of the child between two polls.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Time that the child waits for the acknowledgements of ended connections.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

type Strings = *const *const c_char;

/// execve(2).
///
/// # Safety
/// The contract of execve(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    detach();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().execve)(path, arguments, environment) }
}

/// execv(3).
///
/// # Safety
/// The contract of execv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    detach();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().execv)(path, arguments) }
}

/// execvp(3).
///
/// # Safety
/// The contract of execvp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    detach();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().execvp)(file, arguments) }
}

/// execvpe(3).
///
/// # Safety
/// The contract of execvpe(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    detach();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().execvpe)(file, arguments, environment) }
}

/// fexecve(3).
///
/// # Safety
/// The contract of fexecve(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    detach();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { (real().fexecve)(fd, arguments, environment) }
}

/// _exit(2).
///
/// # Safety
/// The contract of _exit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(code: c_int) -> ! {
    detach();
    // SAFETY: the caller's argument, unchanged.
    unsafe { (real().exit_now)(code) }
}

/// _Exit(3).
///
/// # Safety
/// The contract of _Exit(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(code: c_int) -> ! {
    // SAFETY: the caller's argument, unchanged.
    unsafe { _exit(code) }
}

/// Called by exit(3), last.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = detach;

/// Leaves the connections to a child. Nothing is taken over after that.
extern "C" fn detach() {
    if !table::has_started() {
        return;
    }
    let Some(mut locked) = Locked::take() else { return };
    if hand_to_child(&mut locked) {
        locked.forget();
    }
}

/// Forks a process that carries on the connections; false: there are none.
pub(crate) fn hand_to_child(locked: &mut Locked) -> bool {
    if !locked.is_own() || locked.takeovers().is_none_or(|takeovers| !takeovers.has_any() && takeovers.is_quiet()) {
        return false;
    }
    // SAFETY: this thread holds the lock, so that the functions of this library at a fork do nothing; the child calls what a child may.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // The program's descriptors are closed before the program ends: its ports are free for whoever starts next.
            daemonize(locked);
            // Its parent ends at once, so that the program has no child that it knows nothing of.
            if libc::fork() == 0 {
                drain(locked);
            }
            (real().exit_now)(0);
        }
        if child > 0 {
            libc::waitpid(child, ptr::null_mut(), 0);
        }
    }
    true
}

/// Leaves the session, the signals and the descriptors of the program.
///
/// # Safety
/// Only in a child without another thread.
unsafe fn daemonize(locked: &mut Locked) {
    // SAFETY: the descriptors that are closed are the program's, which is none here; actions are all zeros but for what is set.
    unsafe {
        libc::setsid();
        for signal in 1..=64 {
            if signal != SIGKILL && signal != SIGSTOP {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = if signal == libc::SIGTERM { SIG_DFL } else { SIG_IGN };
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
        let kept = locked.takeovers().map(|takeovers| takeovers.descriptors()).unwrap_or_default();
        let mut open: Vec<c_int> = std::fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        open.retain(|fd| !kept.contains(fd));
        for fd in open {
            (real().close)(fd);
        }
        let null = libc::open(c"/dev/null".as_ptr(), O_RDWR);
        for fd in 0..3 {
            if null >= 0 && null != fd && !kept.contains(&fd) {
                (real().dup2)(null, fd);
            }
        }
    }
}

/// Carries the connections to their end, in the child.
fn drain(locked: &mut Locked) {
    let Some(takeovers) = locked.takeovers() else { return };
    takeovers.closed_all();
    let mut emptied = None;
    while takeovers.has_any() || !takeovers.is_quiet() {
        // Bytes in flight arrive within the timeout, or never: the interface may be gone.
        if takeovers.has_any() {
            emptied = None;
        } else if emptied.get_or_insert_with(Instant::now).elapsed() > DRAIN_TIMEOUT {
            return;
        }
        takeovers.on_pairs();
        takeovers.join_all();
        takeovers.poll(None);
        if matches!(takeovers.arm(), Ok(false)) {
            continue;
        }
        let pairs = takeovers.pairs().as_raw_fd();
        let engine = takeovers.descriptor().map_or(-1, |fd| fd.as_raw_fd());
        let mut polls = [pairs, engine].map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
        let time = takeovers.due().map_or(SLEEP_MAX, |due| due.min(SLEEP_MAX));
        let time = timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        // SAFETY: the array and the time are alive.
        unsafe { (real().ppoll)(polls.as_mut_ptr(), 2, &raw const time, ptr::null()) };
    }
}
