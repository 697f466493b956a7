//! The end of what this process carries.

use std::{ptr, thread::JoinHandle};

use crate::{
    helper_mode::{Mode, set_mode, take_kick},
    locked::Locked,
    real::{Errno, real},
    state::State,
    table::{self, What},
};

impl Locked {
    /// Forgets all that is carried here: another process does. Nothing of it is undone.
    pub(crate) fn forget(&mut self) {
        self.state().forget();
    }

    /// Ends all that this process carries connections with, its sockets among it; [`may_begin`] allows it again. If it `goes_on` in another process,
    /// nothing of it is undone.
    pub(crate) fn end(mut self, goes_on: bool) {
        let state = self.state();
        let Some(direct) = state.direct.take() else { return };
        state.is_refused = true;
        let mut carried = Vec::new();
        table::each_carried(|fd, _| carried.push(fd));
        carried.into_iter().for_each(|fd| table::set(fd, What::Other));
        let (kick, helper) = (take_kick(), state.helper.take());
        set_mode(Mode::None);
        state.descriptors.clear();
        (state.watchers, state.since, state.pid) = (0, None, 0);
        drop(self);
        let _errno = Errno::keep();
        // SAFETY: a write of eight bytes that are there; the descriptor is the helper's.
        unsafe { (real().write)(kick, ptr::from_ref(&1_u64).cast(), 8) };
        // It sleeps on these descriptors, and finds that there is nothing to do.
        let _ = helper.map(JoinHandle::join);
        // SAFETY: it is this library's own, and nobody uses it any more.
        unsafe { (real().close)(kick) };
        if goes_on {
            for fd in direct.descriptors() {
                // SAFETY: as above; they are forgotten below.
                unsafe { (real().close)(fd) };
            }
            std::mem::forget(direct);
        }
    }
}

impl State {
    pub(crate) fn forget(&mut self) {
        let mut carried = Vec::new();
        table::each_carried(|fd, _| carried.push(fd));
        carried.into_iter().for_each(|fd| table::set(fd, What::Other));
        // Of a thread that this process has not there is nothing to give back.
        std::mem::forget(self.helper.take());
        let Some(direct) = self.direct.take() else { return };
        let kick = take_kick();
        for fd in direct.descriptors().into_iter().chain([kick]) {
            // SAFETY: they are this library's own, and forgotten below.
            unsafe { (real().close)(fd) };
        }
        std::mem::forget(direct);
        set_mode(Mode::None);
        self.descriptors.clear();
        (self.watchers, self.since, self.pid) = (0, None, 0);
    }
}

/// The process may carry connections, after [`Locked::end`].
pub(crate) fn may_begin() {
    if let Some(mut locked) = Locked::take() {
        locked.state().is_refused = false;
    }
}
