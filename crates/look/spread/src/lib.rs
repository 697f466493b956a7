//! Queue interrupts, RPS, XPS and NAPI threads spread over the cores.
//!
//! [`plan`] is pure: a picture of the machine and a request in, changes with their reasons out. What is applied goes
//! through [`host::journal`]. Where queues belong is [`host::placement`]'s judgement, which the doctor shares.
//! [`watch`] measures what each NAPI instance costs and moves work off a core that is too hot.

pub mod options;
pub mod plan;
mod rows;
pub mod status;
mod steer;
mod summary;
pub mod watch;

pub use options::{Options, Steer};
pub use plan::{PlanError, plan};
pub use rows::{Row, SpreadPlan};
pub use summary::NicSummary;
