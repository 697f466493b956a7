//! The shield's kernel program: rules, prefixes, limits, cookies and counts in XDP.

pub mod tables;

pub use tables::*;
