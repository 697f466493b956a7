//! Marks of a thread whose calls are all the kernel's.

use std::cell::Cell;

thread_local! {
    /// This thread holds the lock, or is the helper: a call that comes meanwhile, out of a signal's handler or from the library itself, is the kernel's.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread; true: it was marked already.
pub(crate) fn enter() -> bool {
    BUSY.replace(true)
}

/// Takes the mark off.
pub(crate) fn leave() {
    BUSY.set(false);
}

/// Is this call one of the library itself?
pub(crate) fn is_busy() -> bool {
    BUSY.get()
}
