//! The lock, as a call of the program holds it.

use std::{ffi::c_int, process, sync::MutexGuard};

use link::sockets::direct::{Direct, Id};

use crate::{
    helper_mode::{Mode, mode, wake_helper},
    reentry,
    state::{State, lock},
};

/// So often a call takes what comes meanwhile before it lets others sleep.
const ARMS: u32 = 16;

/// So many calls do what they do before one takes what came, and has acknowledgements leave.
const BEHIND: u32 = 8;

/// The lock, held by a call of the program.
pub(crate) struct Locked {
    guard: Option<MutexGuard<'static, State>>,
}

impl Locked {
    /// None: this thread holds it already, and the kernel's call is right.
    pub(crate) fn take() -> Option<Self> {
        if reentry::enter() {
            return None;
        }
        Some(Self { guard: Some(lock()) })
    }

    pub(crate) fn state(&mut self) -> &mut State {
        self.guard.get_or_insert_with(lock)
    }

    /// The connections; none: there are none in this process.
    pub(crate) fn direct(&mut self) -> Option<&mut Direct> {
        self.state().direct.as_mut()
    }

    /// Nobody else sleeps until a frame comes.
    pub(crate) fn is_first(&mut self) -> bool {
        self.state().watchers == 0
    }

    /// Counts a call that has not taken what came; true: it is time to.
    pub(crate) fn is_behind(&mut self) -> bool {
        let state = self.state();
        state.behind += 1;
        state.behind >= BEHIND
    }

    /// Takes what came, for all but one connection.
    pub(crate) fn turn(&mut self, but: Option<Id>) {
        self.state().turn(but);
    }

    /// A descriptor is one of a connection.
    pub(crate) fn know(&mut self, fd: c_int, id: Id) {
        let fds = self.state().descriptors.entry(id).or_default();
        if !fds.contains(&fd) {
            fds.push(fd);
        }
    }

    /// A descriptor is none of a connection any more.
    pub(crate) fn unknow(&mut self, fd: c_int, id: Id) {
        let all = &mut self.state().descriptors;
        if let Some(fds) = all.get_mut(&id) {
            fds.retain(|&other| other != fd);
            if fds.is_empty() {
                all.remove(&id);
            }
        }
    }

    /// Calls `each` with a descriptor of each connection that has something to read, and whether that is new. Those for which it is true are passed into
    /// their pairs.
    pub(crate) fn tidings(&mut self, mut each: impl FnMut(c_int, bool) -> bool) {
        let State { direct: Some(direct), descriptors, .. } = self.state() else { return };
        direct.tidings(|id, is_fresh| {
            let mut passes = false;
            for &fd in descriptors.get(&id).map_or(&[][..], Vec::as_slice) {
                passes |= each(fd, is_fresh);
            }
            passes
        });
    }

    /// Is this process the one that has it, and not a child that sees its memory for a while?
    pub(crate) fn is_own(&mut self) -> bool {
        let pid = self.state().pid;
        pid == 0 || pid == process::id()
    }

    /// Has this process what it takes to carry connections?
    pub(crate) fn has_begun(&self) -> bool {
        self.guard.as_ref().is_some_and(|state| state.direct.is_some() && state.pid == process::id())
    }

    /// Lets others have it. A call that sleeps is woken by frames only as long as nobody took any since it went to sleep.
    pub(crate) fn unlock(&mut self) {
        let Some(mut state) = self.guard.take() else { return };
        // Without the interface there is no end to that.
        for _ in 0..ARMS {
            if state.watchers == 0 || !state.has_turned || state.arm() {
                break;
            }
            state.turn(None);
        }
        drop(state);
        reentry::leave();
    }

    /// Has the lock again, after [`Locked::unlock`].
    pub(crate) fn lock_again(&mut self) -> &mut State {
        reentry::enter();
        self.guard.insert(lock())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The helper waits for frames, and may have set its clock for later than what this call did wants.
        if mode() == Mode::Watch {
            wake_helper();
        }
        self.unlock();
    }
}
