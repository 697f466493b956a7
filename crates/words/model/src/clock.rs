//! The clock of the kernel's programs.

use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds, as kernel programs read it.
pub fn monotonic_ns() -> u64 {
    // Linux has had this clock always, and it counts from 0 up.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}
