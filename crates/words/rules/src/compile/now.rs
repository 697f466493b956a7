//! The moment at which rules are compiled or asked, on both clocks.

use jiff::Timestamp;
use model::clock::monotonic_ns;

/// A moment on the wall clock, by which rules expire, and on the kernel program's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub wall: Timestamp,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub monotonic_ns: u64,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Self {
        let monotonic_ns = monotonic_ns();
        Self { wall: Timestamp::now(), monotonic_ns }
    }

    /// The monotonic time at which the wall clock says `at`; 1, which has been long ago, if it is past; never 0.
    ///
    /// The wall clock may be set afterwards: compile again then.
    pub fn monotonic_at(&self, at: Timestamp) -> u64 {
        let ahead = at.as_nanosecond() - self.wall.as_nanosecond();
        let ns = i128::from(self.monotonic_ns) + ahead;
        if ahead <= 0 { 1 } else { u64::try_from(ns.max(1)).unwrap_or(u64::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_becomes_the_monotonic_one() {
        let now = Now { wall: Timestamp::from_second(1000).unwrap(), monotonic_ns: 5_000_000_000 };
        assert_eq!(now.monotonic_at(Timestamp::from_second(1003).unwrap()), 8_000_000_000);
        assert_eq!(now.monotonic_at(Timestamp::from_second(1000).unwrap()), 1);
        assert!(now.monotonic_at(Timestamp::MAX) > 5_000_000_000);
        let (a, b) = (Now::read(), Now::read());
        assert!(0 < a.monotonic_ns && a.monotonic_ns <= b.monotonic_ns);
    }
}
