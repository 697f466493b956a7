//! Memory accounting of connections with one owner.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Buffered bytes of the connections of one owner, and their limit. At the limit each connection still has room for the rest of a page (slots.rs), at
/// least one frame, so that none blocks another.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicUsize,
    limit: usize,
}

impl Budget {
    /// A budget with this limit in bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), limit })
    }

    /// Bytes charged so far.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// Bytes charged to a budget, until this is dropped.
#[derive(Debug, Default)]
pub struct Charge {
    budget: Option<Arc<Budget>>,
    bytes: usize,
}

impl Charge {
    /// Moves the charge to another budget; none: to no budget.
    pub fn charge_to(&mut self, budget: Option<&Arc<Budget>>) {
        let bytes = self.bytes;
        self.set(0);
        self.budget = budget.cloned();
        self.set(bytes);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: usize) {
        if let Some(budget) = &self.budget {
            // Both operands wrap.
            budget.bytes.fetch_add(bytes.wrapping_sub(self.bytes), Relaxed);
        }
        self.bytes = bytes;
    }

    /// True if the budget is at its limit.
    pub fn is_exhausted(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.bytes() >= budget.limit)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}
