//! Attacks: seen in the counters of protected prefixes, answered by rules, withdrawn when they end.

pub mod config;

pub use config::DetectConfig;
