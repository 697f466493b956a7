//! The rules: one model, from a file or from flags, that compiles to kernel tables and to nftables.

pub mod check;
mod detection;
pub mod file;
pub mod flags;
pub mod keys;
pub mod management;
pub mod model;
mod reader;
pub mod sets;
pub mod toml_words;
pub mod words;

pub use model::*;
