//! Measurements: samples, rates, ledgers, runs; serde, versioned schema.
//!
//! This crate holds words only: plain data that every floor above may exchange, save and render. Nothing here reads a
//! clock, and only [`input`] reads a file: one that people name, of a bounded size.

#[macro_use]
pub mod counters;

pub mod bench;
pub mod class;
pub mod clock;
pub mod compare;
pub mod cpuset;
pub mod doctor;
pub mod doctor_nodes;
pub mod flood;
pub mod input;
pub mod ledger;
pub mod link;
pub mod link_bench;
pub mod link_check;
pub mod load;
mod machine;
pub mod paired;
mod prefix_counts;
pub mod profile;
pub mod route;
pub mod route_compare;
mod route_event;
mod route_rates;
mod route_totals;
pub mod run;
pub mod schema;
pub mod selftest;
pub mod share;
pub mod shield;
pub mod shield_event;
mod shield_totals;
pub mod sources;
pub mod speedup;
pub mod stations;
pub mod sweep;
pub mod top;
pub mod units;
pub mod verdict;
pub mod visible;
pub mod xdp;

pub use class::{Classified, ErrorClass};
pub use cpuset::{CpuSet, CpuSetError};
pub use ledger::{Ledger, Loss};
pub use load::CoreLoad;
pub use prefix_counts::PrefixCounts;
