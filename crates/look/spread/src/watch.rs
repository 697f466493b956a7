//! Moves work off a core that stays too hot, by what each NAPI instance was measured to cost.
//!
//! [`Meter`] measures, [`decide`] decides (pure), and the caller makes the moves through the journal.

mod decide;
mod measure;

pub use decide::{Core, Decision, Move, Note, Sample, Settings, State, Work, decide};
pub use measure::{Meter, MeterError};
