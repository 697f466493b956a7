//! The demo: a flood in a lab, and the ways to receive it, stage by stage.
//!
//! [`run`] measures the generator's ceiling, then each stage of the pure plan: a lab (`bed`), senders (`flood`), a way to receive (`readers`),
//! and a ledger of every place on the wire that can lose a frame (`measure`). `words` says what came of it. Who samples the CPU time meanwhile
//! is a [`Sampling`] that the caller makes.

mod bed;
mod error;
mod flood;
mod measure;
mod plan;
mod readers;
mod run;
mod words;

pub use error::DemoError;
pub use run::{DemoConfig, Sampling, run};
