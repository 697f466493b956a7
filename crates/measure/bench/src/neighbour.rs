//! Noisy neighbours: what they cost a box, and what protects it.
//!
//! ```text
//! kind      the neighbours, where they run, the remedies, in words and numbers (pure)
//! plan      the conditions, and their order in each round (pure)
//! stress    a neighbour that runs: stress-ng or a guest in a control group
//! guests    a neighbour that is a guest
//! traffic   a neighbour that sends through a router of its own
//! threads   the kernel threads of a box: their time, and what comes before them
//! reading   the trials of one condition
//! carry     boxes, rounds, conditions, in order
//! conclude  what a run says, in sentences (pure)
//! ```

mod carry;
mod conclude;
mod guests;
mod kind;
mod plan;
mod reading;
mod stress;
mod threads;
mod traffic;

pub use carry::{begun, check, measure};
pub use guests::Guests;
pub use kind::{Form, Kind, Neighbour, Remedy, Spot};
pub use plan::{Options, Plan};
