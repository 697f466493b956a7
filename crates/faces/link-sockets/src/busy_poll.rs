//! The decision to busy-poll before a sleep.

/// Exponential backoff of busy polling: each failure doubles the sleeps without it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusyPollBackoff {
    /// Busy polls in a row that ended in a sleep.
    failures: u32,
    /// Sleeps until the next busy poll.
    skipped: u32,
}

impl BusyPollBackoff {
    pub(crate) const NEW: Self = Self { failures: 0, skipped: 0 };
    const SKIPPED_SLEEPS_MAX: u32 = 256;

    /// Counts a sleep; true: it may busy-poll first.
    pub(crate) fn is_due(&mut self) -> bool {
        self.skipped = self.skipped.saturating_sub(1);
        self.skipped == 0
    }

    pub(crate) fn record(&mut self, has_paid: bool) {
        self.failures = if has_paid { 0 } else { (self.failures + 1).min(16) };
        self.skipped = if has_paid { 0 } else { (1 << self.failures).min(Self::SKIPPED_SLEEPS_MAX) };
    }
}
