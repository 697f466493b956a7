//! A word for threads that run until the test has done its work.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the word when it is dropped, also when an assertion fails: the threads that look at it end.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
