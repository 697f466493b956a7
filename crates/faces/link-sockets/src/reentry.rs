//! The mark of a thread whose calls all go to the kernel.

use std::cell::Cell;

thread_local! {
    /// True while this thread holds the lock, or is the helper: its calls, out of a signal's handler or of this library, go to the kernel.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread; true: it was marked before.
pub(crate) fn enter() -> bool {
    BUSY.replace(true)
}

/// Takes the mark off.
pub(crate) fn leave() {
    BUSY.set(false);
}

/// True if this thread is marked.
pub(crate) fn is_busy() -> bool {
    BUSY.get()
}
