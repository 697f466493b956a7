//! The mode of the helper's thread, and the eventfd that wakes it.

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicI32, AtomicU8, Ordering::Relaxed},
};

use crate::real::{Errno, real};

/// Events that the helper's thread waits for, beside its eventfd and the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// The thread is not started.
    Stopped,
    /// A timeout: calls of the program poll the receive ring.
    Periodic,
    Frames,
    /// Nothing else: a call of the program has slept for long, and waits for frames itself.
    Idle,
}

/// The mode of the helper's thread, changed under the lock.
static MODE: AtomicU8 = AtomicU8::new(Mode::Stopped as u8);
/// The eventfd that wakes the helper's thread; -1: there is none.
static WAKE_FD: AtomicI32 = AtomicI32::new(-1);

pub(crate) fn mode() -> Mode {
    match MODE.load(Relaxed) {
        1 => Mode::Periodic,
        2 => Mode::Frames,
        3 => Mode::Idle,
        _ => Mode::Stopped,
    }
}

pub(crate) fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Relaxed);
}

pub(crate) fn wake_fd() -> c_int {
    WAKE_FD.load(Relaxed)
}

/// Wakes the helper's thread, which then checks everything.
pub(crate) fn wake_helper() {
    if mode() != Mode::Stopped {
        set_mode(Mode::Periodic);
        let _errno = Errno::keep();
        // SAFETY: a write of eight bytes that are there; the descriptor is the helper's.
        unsafe { (real().write)(wake_fd(), ptr::from_ref(&1_u64).cast(), 8) };
    }
}

/// Sets the eventfd of a helper that is about to start.
pub(crate) fn start(wake_fd: c_int) {
    WAKE_FD.store(wake_fd, Relaxed);
    set_mode(Mode::Periodic);
}

/// Takes the eventfd out.
pub(crate) fn take_wake_fd() -> c_int {
    WAKE_FD.swap(-1, Relaxed)
}
