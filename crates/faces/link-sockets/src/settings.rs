//! What the environment of the program says.

use std::{sync::OnceLock, time::Duration};

/// A connection is taken over from the broker when so many calls have come for it: those that ask once and end are not worth it.
const AFTER: u32 = 16;
/// The number of calls, instead of [`AFTER`]; 0: the broker carries all.
const AFTER_NAME: &str = "EVENKEEL_LINK_AFTER";
/// A call that waits looks for so long before it sleeps, where that has paid: what going to sleep and waking up costs.
const SPIN: Duration = Duration::from_micros(20);
/// The time in microseconds, instead of [`SPIN`].
const SPIN_NAME: &str = "EVENKEEL_LINK_SPIN";

/// Calls after which a connection is taken over; none: never.
pub(crate) fn after() -> Option<u32> {
    static AFTER_CALLS: OnceLock<u32> = OnceLock::new();
    let after = *AFTER_CALLS.get_or_init(|| {
        // What the kernel lets a sandboxed program call is not known: asking could end it.
        // SAFETY: it takes no pointer.
        if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } > 0 {
            return 0;
        }
        std::env::var(AFTER_NAME).ok().and_then(|text| text.parse().ok()).unwrap_or(AFTER)
    });
    (after > 0).then_some(after)
}

/// How long a call that waits looks before it sleeps.
pub(crate) fn spin_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| {
        let micros = std::env::var(SPIN_NAME).ok().and_then(|text| text.parse().ok());
        micros.map_or(SPIN, Duration::from_micros)
    })
}
