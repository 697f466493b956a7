//! A whole run: boxes, frames and tests in their order; kept after every trial, and gone on with where it was interrupted.
//!
//! ```text
//! request   what the user asked for, kept with the run
//! plan      the steps in their order, and their times (pure)
//! carry     does them; measure hands each to its method
//! resume    trials of an interrupted step are not made again
//! file      the run's file: whole at any moment
//! conclusion what it means
//! ```

mod carry;
mod conclusion;
mod file;
mod measure;
mod plan;
mod request;
mod resume;
#[cfg(test)]
mod tests;

pub use carry::{Benches, StandingBox, carry_out, plan_of};
pub use conclusion::answered;
pub use file::{Begun, Keep, NAME, RunFile, Saved, load, load_run};
pub(crate) use measure::seconds as seconds_of;
pub use measure::{ResetWay, Settings};
pub use plan::{Step, StepId, What, seconds, steps};
pub use request::{Boxes, GuestBoxes, PORTS, Request, TAPS, Test, WIRE};
