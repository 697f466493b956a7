//! Settings from the environment of the program.

use std::{sync::OnceLock, time::Duration};

/// Default of [`TAKEOVER_CALLS_VARIABLE`]: a connection of one request and one answer is not worth a takeover.
const TAKEOVER_CALLS: u32 = 16;
/// Environment variable: reads and writes of a connection before this process takes it over; 0 leaves all to the broker.
const TAKEOVER_CALLS_VARIABLE: &str = "EVENKEEL_LINK_AFTER";
/// Default of [`BUSY_POLL_VARIABLE`]: about the cost of going to sleep and waking up.
const BUSY_POLL_TIME: Duration = Duration::from_micros(20);
/// Environment variable: busy-poll time in microseconds before a blocking call sleeps.
const BUSY_POLL_VARIABLE: &str = "EVENKEEL_LINK_SPIN";

/// Calls after which a connection is taken over; none: never.
pub(crate) fn takeover_calls() -> Option<u32> {
    static CALLS: OnceLock<u32> = OnceLock::new();
    let calls = *CALLS.get_or_init(|| {
        // A seccomp filter may kill the program for a system call that a takeover makes.
        // SAFETY: it takes no pointer.
        if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } > 0 {
            return 0;
        }
        std::env::var(TAKEOVER_CALLS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(TAKEOVER_CALLS)
    });
    (calls > 0).then_some(calls)
}

/// Busy-poll time before a blocking call sleeps.
pub(crate) fn busy_poll_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| {
        let micros = std::env::var(BUSY_POLL_VARIABLE).ok().and_then(|text| text.parse().ok());
        micros.map_or(BUSY_POLL_TIME, Duration::from_micros)
    })
}
