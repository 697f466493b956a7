//! The ways in which a router can forward, beside each other in one run: no program, the programs of `route` in mode standard, routed and
//! stateful, each on one core and with a second.
//!
//! ```text
//! plan        what is compared, the steps in their order, their times (pure)
//! stage       the boxes, and what counts the memory of their packets
//! carry       does the steps: round by round, the ways in turn
//! memory      a tester that counts memory meanwhile
//! way         a way's figures, and the medians of its rounds
//! conclusion  what it means
//! ```

mod carry;
mod conclusion;
mod memory;
mod plan;
mod stage;
#[cfg(test)]
mod tests;
mod way;

pub use carry::carry_out;
pub use plan::{Forwarding, LATENCY_LOAD, Options, Plan, PlannedStep, What};
pub use stage::{Counter, RealStage, Stage, StartCount};
