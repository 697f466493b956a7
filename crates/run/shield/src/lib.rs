//! The shield: it drops floods at the kernel's earliest hook, while clients go on connecting and the administrator is never cut off.
//!
//! The rules themselves are the crate `rules`; this crate puts them in front of an interface and keeps them there.
//!
//! - [`run`] starts, reloads, looks at and stops a shield. A [`run::Control`] is one shield under control. It works on any [`run::DataPlane`]:
//!   [`run::Xdp`], a program in the kernel that stays when its process dies, or [`between::ring::Ring`], threads of this process.
//! - [`between`] has what a gateway of two interfaces needs beside that.
//! - [`detect`] makes rules against an attack from the counters of protected prefixes, and withdraws them when it is over.
//! - [`events`] and [`metrics`] put what happened, and what was counted, into the forms that the crate `serve` gives to others.
//!
//! A set of rules goes this way: `Source` reads the file, `Control` adds the management allow-list and the rules of detection, the plane
//! prepares tables or a program of them, and `put` has them hold, all at once. An error on the way leaves the rules in force that were.
//!
//! A set of rules is a program of its own, with its constants in its instructions. Counters, limits and known sources are in maps that all programs of an
//! interface share. Against an attack programs with room are loaded ahead, so that a rule holds in milliseconds.

pub mod between;
pub mod detect;
pub mod error;
pub mod events;
pub mod metrics;
pub mod run;
mod state_file;

pub use error::ShieldError;
