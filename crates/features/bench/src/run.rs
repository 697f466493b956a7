//! A whole run: boxes, frames and tests in their order; kept after every trial, and gone on with where it was interrupted.
//!
//! ```text
//! asked     what the user asked for, kept with the run
//! plan      the steps in their order, and their times (pure)
//! carry     does them; measure hands each to its method
//! remember  trials of an interrupted step are not made again
//! file      the run's file: whole at any moment
//! words     what it means
//! ```

mod asked;
mod carry;
mod file;
mod measure;
mod plan;
mod remember;
#[cfg(test)]
mod tests;
mod words;

pub use asked::{Asked, Boxes, PORTS, Test, WIRE};
pub use carry::{Benches, Ready, Work, carry_out, plan_of};
pub use file::{Begun, Keep, NAME, RunFile, Saved, load, load_run};
pub use measure::{ResetWay, Settings};
pub use plan::{Step, StepId, What, seconds, steps};
pub use words::answered;
