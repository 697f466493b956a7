//! fork(2): the connections stay with the parent.

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
    /// The lock, while this thread forks. Nothing is to be dropped, so that it can be asked at the very end of a thread, too.
    static FORKS: Cell<Option<ManuallyDrop<MutexGuard<'static, State>>>> = const { Cell::new(None) };
}

/// Has fork(2) leave the connections to the parent: the child has ends of pairs, which the parent's helper serves.
pub(crate) fn at_forks() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are this library's, and stay.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
    });
}

extern "C" fn before_fork() {
    if !reentry::enter() {
        FORKS.set(Some(ManuallyDrop::new(lock())));
    }
}

extern "C" fn after_fork() {
    if let Some(held) = FORKS.take() {
        drop(ManuallyDrop::into_inner(held));
        reentry::leave();
    }
}

extern "C" fn in_child() {
    if let Some(held) = FORKS.take() {
        let mut state = ManuallyDrop::into_inner(held);
        state.forget();
        drop(state);
        reentry::leave();
    }
}
