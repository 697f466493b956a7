//! Round-trip times and retransmission timeouts (RFC 6298, with a lower minimum).

use crate::Nanos;

pub(crate) const TIMEOUT_MIN: Nanos = 1_000_000;
const TIMEOUT_MAX: Nanos = 1_000_000_000;
/// Timeout before the first sample.
const TIMEOUT_FIRST: Nanos = 10_000_000;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    smoothed: Nanos,
    variation: Nanos,
    /// Doublings of the timeout.
    backoffs: u32,
}

impl RoundTrip {
    pub(crate) fn add_sample(&mut self, time: Nanos) {
        let time = time.max(1);
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (time, time / 2);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(time)) / 4;
            self.smoothed = (7 * self.smoothed + time) / 8;
        }
    }

    /// The smoothed round trip; none before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        (self.smoothed > 0).then_some(self.smoothed)
    }

    pub(crate) fn timeout(&self) -> Nanos {
        let once = if self.smoothed == 0 { TIMEOUT_FIRST } else { self.smoothed + 4 * self.variation };
        once.max(TIMEOUT_MIN).saturating_mul(1 << self.backoffs.min(16)).min(TIMEOUT_MAX)
    }

    pub(crate) fn back_off(&mut self) {
        self.backoffs += 1;
    }

    pub(crate) fn reset_backoff(&mut self) {
        self.backoffs = 0;
    }
}
