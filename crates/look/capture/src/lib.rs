//! Capture: members, filters, pcapng, automatic choice of the backend.
//!
//! The way of a capture: [`plan::plan`] places the readers, [`filter::compile`] makes the kernel's filter, [`open::open`]
//! opens the sources, [`sys::privilege::give_up`] gives up what is no longer needed, [`run::run`] reads until the end.

pub mod auto;
pub mod file;
pub mod filter;
pub mod filtered;
pub mod open;
pub mod output;
pub mod pcapng;
pub mod plan;
pub mod run;
pub mod text;
