//! The state behind the lock.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use link::sockets::takeover::{ConnectionId, Takeovers};

use crate::busy_poll::BusyPollBackoff;

static STATE: Mutex<State> = Mutex::new(State {
    takeovers: None,
    is_refused: false,
    helper: None,
    descriptors: BTreeMap::new(),
    frame_waiters: 0,
    waiting_since: None,
    polls: 0,
    calls_since_poll: 0,
    backoff: BusyPollBackoff::NEW,
    has_polled: false,
    pid: 0,
});

pub(crate) struct State {
    pub(crate) takeovers: Option<Takeovers>,
    /// The start failed or is forbidden; it is not tried again.
    pub(crate) is_refused: bool,
    /// The thread of [`crate::helper`].
    pub(crate) helper: Option<JoinHandle<()>>,
    pub(crate) descriptors: BTreeMap<ConnectionId, Vec<c_int>>,
    /// Calls that sleep until a frame arrives.
    pub(crate) frame_waiters: u32,
    /// The time at which the first of them went to sleep.
    pub(crate) waiting_since: Option<Instant>,
    /// Polls by calls of the program.
    pub(crate) polls: u64,
    pub(crate) calls_since_poll: u32,
    pub(crate) backoff: BusyPollBackoff,
    /// The receive ring was polled after the engine was last armed.
    pub(crate) has_polled: bool,
    /// The process that started it: a child of vfork(2) shares the memory of its parent.
    pub(crate) pid: u32,
}

pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(crate) fn takeovers(&mut self) -> Option<&mut Takeovers> {
        self.takeovers.as_mut()
    }

    pub(crate) fn poll(&mut self, but: Option<ConnectionId>) {
        if let Some(takeovers) = &mut self.takeovers {
            takeovers.poll(but);
            (self.polls, self.calls_since_poll, self.has_polled) = (self.polls + 1, 0, true);
        }
    }

    /// Makes the next frame wake sleepers; false: there is something to do already.
    pub(crate) fn arm(&mut self) -> bool {
        let is_armed = self.takeovers.as_mut().is_none_or(|takeovers| matches!(takeovers.arm(), Ok(true)));
        self.has_polled &= !is_armed;
        is_armed
    }
}
