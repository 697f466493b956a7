//! Round trips, and the times that follow from them (RFC 6298, with a least time for links of microseconds).

use crate::Nanos;

/// A frame is given up for lost no sooner than this after it was sent, when nothing is heard.
pub(crate) const TIMEOUT_MIN: Nanos = 1_000_000;
/// … and no later.
const TIMEOUT_MAX: Nanos = 1_000_000_000;
/// Before the first round trip is known.
const TIMEOUT_FIRST: Nanos = 10_000_000;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    smoothed: Nanos,
    variation: Nanos,
    /// Times that the time-out was doubled.
    doubled: u32,
}

impl RoundTrip {
    pub(crate) fn measured(&mut self, time: Nanos) {
        let time = time.max(1);
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (time, time / 2);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(time)) / 4;
            self.smoothed = (7 * self.smoothed + time) / 8;
        }
    }

    /// The smoothed round trip; none before the first.
    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        (self.smoothed > 0).then_some(self.smoothed)
    }

    pub(crate) fn timeout(&self) -> Nanos {
        let once = if self.smoothed == 0 { TIMEOUT_FIRST } else { self.smoothed + 4 * self.variation };
        once.max(TIMEOUT_MIN).saturating_mul(1 << self.doubled.min(16)).min(TIMEOUT_MAX)
    }

    pub(crate) fn double(&mut self) {
        self.doubled += 1;
    }

    /// Something arrived.
    pub(crate) fn heard(&mut self) {
        self.doubled = 0;
    }
}
