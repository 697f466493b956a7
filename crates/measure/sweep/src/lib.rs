//! A lab box under rising offered load, in a standard and in an optimised configuration: what comes out, and what its CPU
//! time goes to.

mod bed;
mod conclusion;
mod error;
mod offer;
mod plan;
mod run;
mod search;
mod verdict;

pub use error::SweepError;
pub use plan::{Configuration, Side, SweepBox, SweepCores, Tweak, configurations, rates};
pub use run::{OnStep, SweepConfig, run};
