//! The lock, as a call of the program holds it: taken once for each thread, and released for each sleep.

use std::{ffi::c_int, process, sync::MutexGuard};

use link::sockets::takeover::{ConnectionId, Takeovers};

use crate::{
    helper_mode::{Mode, mode, wake_helper},
    reentry,
    state::{State, lock},
};

/// Polls before the lock is released to sleeping calls.
const POLLS_BEFORE_UNLOCK_MAX: u32 = 16;

/// Calls between two polls of the receive ring. A poll also sends pending acknowledgements.
const CALLS_PER_POLL: u32 = 8;

/// The lock, held by a call of the program.
pub(crate) struct Locked {
    guard: Option<MutexGuard<'static, State>>,
}

impl Locked {
    /// Takes the lock; none: this thread holds it already, and makes the kernel's call.
    pub(crate) fn take() -> Option<Self> {
        if reentry::enter() {
            return None;
        }
        Some(Self { guard: Some(lock()) })
    }

    pub(crate) fn state(&mut self) -> &mut State {
        self.guard.get_or_insert_with(lock)
    }

    /// The connections of this process; none: nothing is started.
    pub(crate) fn takeovers(&mut self) -> Option<&mut Takeovers> {
        self.state().takeovers.as_mut()
    }

    /// True while no call sleeps until a frame arrives.
    pub(crate) fn has_no_waiter(&mut self) -> bool {
        self.state().frame_waiters == 0
    }

    /// Counts a call since the last poll; true: it has to poll.
    pub(crate) fn is_poll_due(&mut self) -> bool {
        let state = self.state();
        state.calls_since_poll += 1;
        state.calls_since_poll >= CALLS_PER_POLL
    }

    /// Polls the receive ring, and passes on what arrived but for the connection `but`, which the caller reads.
    pub(crate) fn poll(&mut self, but: Option<ConnectionId>) {
        self.state().poll(but);
    }

    pub(crate) fn add_descriptor(&mut self, fd: c_int, id: ConnectionId) {
        let fds = self.state().descriptors.entry(id).or_default();
        if !fds.contains(&fd) {
            fds.push(fd);
        }
    }

    pub(crate) fn remove_descriptor(&mut self, fd: c_int, id: ConnectionId) {
        let all = &mut self.state().descriptors;
        if let Some(fds) = all.get_mut(&id) {
            fds.retain(|&other| other != fd);
            if fds.is_empty() {
                all.remove(&id);
            }
        }
    }

    /// Calls `each` with each descriptor of a readable connection, and whether that is new since the last call. Connections for which it returns true
    /// are passed into their pairs.
    pub(crate) fn readable(&mut self, mut each: impl FnMut(c_int, bool) -> bool) {
        let State { takeovers: Some(takeovers), descriptors, .. } = self.state() else { return };
        takeovers.readable(|id, is_fresh| {
            let mut passes = false;
            for &fd in descriptors.get(&id).map_or(&[][..], Vec::as_slice) {
                passes |= each(fd, is_fresh);
            }
            passes
        });
    }

    /// False in a child of vfork(2), which shares the memory of its parent.
    pub(crate) fn is_own(&mut self) -> bool {
        let pid = self.state().pid;
        pid == 0 || pid == process::id()
    }

    /// True once this process has an engine and a helper.
    pub(crate) fn has_started(&self) -> bool {
        self.guard.as_ref().is_some_and(|state| state.takeovers.is_some() && state.pid == process::id())
    }

    /// Releases the lock. Frames wake sleeping calls only if the engine was armed after the last poll.
    pub(crate) fn unlock(&mut self) {
        let Some(mut state) = self.guard.take() else { return };
        // Without the interface arming never succeeds.
        for _ in 0..POLLS_BEFORE_UNLOCK_MAX {
            if state.frame_waiters == 0 || !state.has_polled || state.arm() {
                break;
            }
            state.poll(None);
        }
        drop(state);
        reentry::leave();
    }

    /// Takes the lock again, after [`Locked::unlock`].
    pub(crate) fn lock_again(&mut self) -> &mut State {
        reentry::enter();
        self.guard.insert(lock())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The helper sleeps, and its timeout may be later than what this call has made due.
        if mode() == Mode::Frames {
            wake_helper();
        }
        self.unlock();
    }
}
