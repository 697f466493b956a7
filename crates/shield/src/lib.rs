//! The shield: floods end at the kernel's earliest hook, clients keep connecting, the administrator keeps in.

pub mod error;
pub mod rules;

pub use error::{Problem, ShieldError};
