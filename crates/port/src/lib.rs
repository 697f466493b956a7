//! Where frames enter or leave: one Source or Sink per backend.
//!
//! A backend that an interface cannot do is an error that says why; nothing here falls back to another one.

pub mod frame;

pub use frame::{Frame, SourceStats, VlanTag};
