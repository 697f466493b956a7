//! The rules: one model, from a file or from flags, that compiles to kernel tables and to nftables.

pub mod model;

pub use model::*;
