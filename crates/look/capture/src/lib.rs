//! Capture: members, filters, pcapng, automatic choice of the backend.
//!
//! [`session`] conducts a capture: [`filter::compile`] makes the kernel's filter, [`auto`] chooses the backend, [`plan::plan`] places the
//! readers, [`open::open`] opens the sources, [`sys::privilege::give_up`] gives up what is no longer needed, [`run::run`] reads until the
//! end. [`file`] reads a file instead.

pub mod auto;
pub mod file;
pub mod filter;
pub mod filtered;
pub mod open;
pub mod output;
pub mod pcapng;
pub mod plan;
pub mod run;
pub mod session;
pub mod text;
