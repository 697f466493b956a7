//! The shield: floods end at the kernel's earliest hook, clients keep connecting, the administrator keeps in.

pub mod between;
pub mod detect;
pub mod error;
pub mod events;
mod offloads;
pub mod run;
mod serving;

pub use error::ShieldError;
