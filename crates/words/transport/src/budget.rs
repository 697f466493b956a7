//! Memory of several connections that have one owner.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that wait in connections of one owner, and how many may. Once they are spent each of its connections has room for the rest of a page (slots.rs),
/// one frame at the least, so that none waits for another one.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicUsize,
    most: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), most })
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// What one of those who share a budget has of it. It is given back with this.
#[derive(Debug, Default)]
pub struct Part {
    budget: Option<Arc<Budget>>,
    bytes: usize,
}

impl Part {
    /// It counts there from now on, and no longer elsewhere.
    pub fn share(&mut self, budget: &Arc<Budget>) {
        let bytes = self.bytes;
        self.set(0);
        self.budget = Some(Arc::clone(budget));
        self.set(bytes);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// It has so many bytes from now on.
    pub fn set(&mut self, bytes: usize) {
        if let Some(budget) = &self.budget {
            // Both numbers wrap alike.
            budget.bytes.fetch_add(bytes.wrapping_sub(self.bytes), Relaxed);
        }
        self.bytes = bytes;
    }

    /// All that share the budget have as much as they may.
    pub fn is_spent(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.bytes() >= budget.most)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}
