//! The demo: a flood in a lab, and the ways to receive it, stage by stage.
//!
//! [`run`] measures the generator's ceiling, then each stage of the pure plan: a lab (`bed`), senders (`flood`), a way to receive,
//! and a ledger of every place on the wire that can lose a frame (`measure`). `sampling` finds out what the CPU time
//! went to meanwhile; `conclusion` says what came of it.

mod bed;
mod conclusion;
mod error;
mod flood;
mod measure;
mod plan;
mod run;
mod sampling;

pub use error::DemoError;
pub use plan::stage_names;
pub use run::{DemoConfig, run};
