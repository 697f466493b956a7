//! The shield: floods end at the kernel's earliest hook, clients keep connecting, the administrator keeps in.

pub mod between;
pub mod compile;
pub mod detect;
pub mod error;
pub mod events;
pub mod explain;
pub mod limits;
pub mod nft;
mod offloads;
pub mod packet;
pub mod prefixes;
pub mod reference;
pub mod rules;
pub mod run;
mod serving;

pub use error::{Problem, ShieldError};
