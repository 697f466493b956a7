//! The end of what this process carries: in a child of fork, behind a program that ends, and before it gives up root.

use std::{ptr, thread::JoinHandle};

use crate::{
    helper_mode::{Mode, set_mode, take_wake_fd},
    locked::Locked,
    real::{Errno, real},
    state::State,
    table::{self, Descriptor},
};

impl Locked {
    /// Forgets all connections, which another process carries on: nothing is sent.
    pub(crate) fn forget(&mut self) {
        self.state().forget();
    }

    /// Stops the helper and closes the engine's sockets until [`allow_start`]. If another process carries on (`goes_on`), the other ends are told
    /// nothing.
    pub(crate) fn end(mut self, goes_on: bool) {
        let state = self.state();
        let Some(takeovers) = state.takeovers.take() else { return };
        state.is_refused = true;
        let mut fds = Vec::new();
        table::each_registered(|fd, _| fds.push(fd));
        fds.into_iter().for_each(|fd| table::set(fd, Descriptor::Other));
        let (wake_fd, helper) = (take_wake_fd(), state.helper.take());
        set_mode(Mode::Stopped);
        state.descriptors.clear();
        (state.frame_waiters, state.waiting_since, state.pid) = (0, None, 0);
        drop(self);
        let _errno = Errno::keep();
        // SAFETY: it writes eight bytes from a live place; the descriptor is the helper's.
        unsafe { (real().write)(wake_fd, ptr::from_ref(&1_u64).cast(), 8) };
        // The helper sleeps on these descriptors: they are closed behind it.
        let _ = helper.map(JoinHandle::join);
        // SAFETY: it is this library's own, and nobody uses it any more.
        unsafe { (real().close)(wake_fd) };
        if goes_on {
            for fd in takeovers.descriptors() {
                // SAFETY: as above; they are forgotten below.
                unsafe { (real().close)(fd) };
            }
            std::mem::forget(takeovers);
        }
    }
}

impl State {
    pub(crate) fn forget(&mut self) {
        let mut fds = Vec::new();
        table::each_registered(|fd, _| fds.push(fd));
        fds.into_iter().for_each(|fd| table::set(fd, Descriptor::Other));
        // The thread is the parent's: there is nothing to join here.
        std::mem::forget(self.helper.take());
        let Some(takeovers) = self.takeovers.take() else { return };
        let wake_fd = take_wake_fd();
        for fd in takeovers.descriptors().into_iter().chain([wake_fd]) {
            // SAFETY: they are this library's own, and forgotten below.
            unsafe { (real().close)(fd) };
        }
        std::mem::forget(takeovers);
        set_mode(Mode::Stopped);
        self.descriptors.clear();
        (self.frame_waiters, self.waiting_since, self.pid) = (0, None, 0);
    }
}

/// Allows the start again, after [`Locked::end`].
pub(crate) fn allow_start() {
    if let Some(mut locked) = Locked::take() {
        locked.state().is_refused = false;
    }
}
