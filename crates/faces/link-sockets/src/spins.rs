//! Whether looking before a sleep pays.

/// Whether calls that wait look for a while before they sleep: as long as that has paid lately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spins {
    /// So many have not paid since the last that did.
    vain: u32,
    /// Sleeps to come before the next one is tried.
    rest: u32,
}

impl Spins {
    pub(crate) const NEW: Self = Self { vain: 0, rest: 0 };
    /// Sleeps between two tries at the most.
    const REST: u32 = 256;

    /// May the next one look for a while?
    pub(crate) fn may(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.rest == 0
    }

    pub(crate) fn paid(&mut self, did: bool) {
        self.vain = if did { 0 } else { (self.vain + 1).min(16) };
        self.rest = if did { 0 } else { (1 << self.vain).min(Self::REST) };
    }
}
