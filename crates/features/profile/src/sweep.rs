//! A lab box under rising offered load, in a standard and in an optimised configuration: what comes out, and what its CPU
//! time goes to.

mod bed;
mod error;
mod offer;
mod plan;
mod run;
mod search;
mod verdict;
mod words;

pub use error::SweepError;
pub use plan::{Configuration, Cores, Reading, Side, SweepBox, Tweak, configurations, rates};
pub use run::{SweepConfig, Watch, run};
