//! The connections that this program carries itself, behind one lock.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use link::sockets::direct::{Direct, Id};

use crate::spins::Spins;

static STATE: Mutex<State> = Mutex::new(State {
    direct: None,
    is_refused: false,
    helper: None,
    descriptors: BTreeMap::new(),
    watchers: 0,
    since: None,
    turns: 0,
    behind: 0,
    spins: Spins::NEW,
    has_turned: false,
    pid: 0,
});

pub(crate) struct State {
    pub(crate) direct: Option<Direct>,
    /// There was no broker to ask, or it said no.
    pub(crate) is_refused: bool,
    /// The thread of [`crate::helper`].
    pub(crate) helper: Option<JoinHandle<()>>,
    /// The descriptors of each connection.
    pub(crate) descriptors: BTreeMap<Id, Vec<c_int>>,
    /// Calls that sleep until a frame comes.
    pub(crate) watchers: u32,
    /// When the first of them went to sleep.
    pub(crate) since: Option<Instant>,
    /// Calls of the program that took what came.
    pub(crate) turns: u64,
    /// Calls since then that did not.
    pub(crate) behind: u32,
    /// A call that found nothing lately looked on for a while, and something came.
    pub(crate) spins: Spins,
    /// Frames were taken since they were last made to wake who sleeps.
    pub(crate) has_turned: bool,
    /// The process that has it: a child of vfork(2) sees the memory of its parent.
    pub(crate) pid: u32,
}

pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(crate) fn direct(&mut self) -> Option<&mut Direct> {
        self.direct.as_mut()
    }

    pub(crate) fn turn(&mut self, but: Option<Id>) {
        if let Some(direct) = &mut self.direct {
            direct.turn(but);
            (self.turns, self.behind, self.has_turned) = (self.turns + 1, 0, true);
        }
    }

    /// Has frames wake who sleeps; false: there is something to do already.
    pub(crate) fn arm(&mut self) -> bool {
        let is_armed = self.direct.as_mut().is_none_or(|direct| matches!(direct.arm(), Ok(true)));
        self.has_turned &= !is_armed;
        is_armed
    }
}
