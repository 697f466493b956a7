//! The mode of the helper's thread, and what wakes it.

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicI32, AtomicU8, Ordering::Relaxed},
};

use crate::real::{Errno, real};

/// What the helper's thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// It has not been started.
    None,
    /// A time, as calls of the program take what comes.
    Tick,
    /// Frames.
    Watch,
    /// To be told: a call has slept for long, and waits for frames itself.
    Deep,
}

/// The mode of the helper's thread. It changes under the lock.
static MODE: AtomicU8 = AtomicU8::new(Mode::None as u8);
/// What wakes that thread.
static KICK: AtomicI32 = AtomicI32::new(-1);

pub(crate) fn mode() -> Mode {
    match MODE.load(Relaxed) {
        1 => Mode::Tick,
        2 => Mode::Watch,
        3 => Mode::Deep,
        _ => Mode::None,
    }
}

pub(crate) fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Relaxed);
}

pub(crate) fn kick_fd() -> c_int {
    KICK.load(Relaxed)
}

/// Has the helper's thread look at everything, and wait for a time only.
pub(crate) fn wake_helper() {
    if mode() != Mode::None {
        set_mode(Mode::Tick);
        let _errno = Errno::keep();
        // SAFETY: a write of eight bytes that are there; the descriptor is the helper's.
        unsafe { (real().write)(kick_fd(), ptr::from_ref(&1_u64).cast(), 8) };
    }
}

/// Begins with a descriptor that wakes the helper.
pub(crate) fn start(kick: c_int) {
    KICK.store(kick, Relaxed);
    set_mode(Mode::Tick);
}

/// Takes the descriptor away.
pub(crate) fn take_kick() -> c_int {
    KICK.swap(-1, Relaxed)
}
