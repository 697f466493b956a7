//! The shield: floods end at the kernel's earliest hook, clients go on connecting, and the administrator is never cut off.
//!
//! The rules themselves are the crate `rules`. Here they are put in front of an interface and kept there: [`run`] starts, reloads, looks at and
//! stops a shield, and tends it (heartbeat, expiry, take-over of what a dead process left); [`between`] does so for a gateway of two interfaces, by XDP or
//! by packet rings; [`detect`] makes rules against an attack from the counters of protected prefixes, and withdraws them; [`events`] tells of it in a
//! file, to a program, and as metrics.

pub mod between;
pub mod detect;
pub mod error;
pub mod events;
pub mod metrics;
mod offloads;
pub mod run;

pub use error::ShieldError;
