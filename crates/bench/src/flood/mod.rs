//! Clients beside a flood: what a protection leaves of a service under attack.
//!
//! ```text
//! protection   what stands in front of the listener, behind a trait: those of the kernel are in `kernel`
//! bed          two namespaces, one link that the flood and the clients share
//! attack       the generator: spoofed SYNs, live frames
//! clients      connect, ask, read the answer, close
//! server       the service
//! counters     where the flood's packets ended
//! run          all modes and rates
//! ```

mod attack;
mod bed;
mod clients;
mod counters;
mod kernel;
mod protection;
mod run;
mod server;

pub use kernel::{KernelMode, kernel_modes};
pub use protection::{Counter, Place, Protecting, Protection};
pub use run::{FloodConfig, FloodCores, FloodWatch, Rate, run_flood};
