//! Waiting for a condition. How long something takes is nothing that a test asserts.

use std::{
    thread,
    time::{Duration, Instant},
};

/// A condition that does not hold within this time never will.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const CHECK_PERIOD: Duration = Duration::from_millis(10);

#[track_caller]
pub fn wait(what: &str, is_so: impl FnMut() -> bool) {
    wait_up_to(WAIT_TIMEOUT, what, is_so);
}

/// Waits until `is_so`, for what takes a busy machine longer than [`WAIT_TIMEOUT`].
#[track_caller]
pub fn wait_up_to(limit: Duration, what: &str, is_so: impl FnMut() -> bool) {
    until(limit, what, is_so, String::new);
}

/// Waits until `is_so`; if it never is, the test fails with `report`, such as a log.
#[track_caller]
pub fn wait_reporting(what: &str, is_so: impl FnMut() -> bool, report: impl FnOnce() -> String) {
    until(WAIT_TIMEOUT, what, is_so, report);
}

#[track_caller]
fn until(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool, report: impl FnOnce() -> String) {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > limit {
            panic!("{what}: not yet; {}", report());
        }
        thread::sleep(CHECK_PERIOD);
    }
}

/// Asks without a pause until `is_so`: it waits, or works, itself.
#[track_caller]
pub fn poll(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{what}: not yet");
    }
}

/// Waits until there is something, and gives it.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait(what, || {
        found = look();
        found.is_some()
    });
    found.expect("waited for")
}
