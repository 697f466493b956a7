//! Handlers of fork(2): the connections stay with the parent.

use std::{
    cell::Cell,
    mem::ManuallyDrop,
    sync::{MutexGuard, Once},
};

use crate::{
    reentry,
    state::{State, lock},
};

thread_local! {
    /// The lock, while this thread forks. It needs no drop, so that it can be read at the very end of a thread, too.
    static HELD_BY_FORK: Cell<Option<ManuallyDrop<MutexGuard<'static, State>>>> = const { Cell::new(None) };
}

/// Registers the handlers, once. The child keeps ends of pairs, which the parent's helper serves.
pub(crate) fn register_fork_handlers() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are this library's, which is not unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
    });
}

extern "C" fn before_fork() {
    if !reentry::enter() {
        HELD_BY_FORK.set(Some(ManuallyDrop::new(lock())));
    }
}

extern "C" fn after_fork() {
    if let Some(held) = HELD_BY_FORK.take() {
        drop(ManuallyDrop::into_inner(held));
        reentry::leave();
    }
}

extern "C" fn in_child() {
    if let Some(held) = HELD_BY_FORK.take() {
        let mut state = ManuallyDrop::into_inner(held);
        state.forget();
        drop(state);
        reentry::leave();
    }
}
