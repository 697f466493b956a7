//! Clients beside a flood: what a protection leaves of a service under attack.
//!
//! ```text
//! protection   what stands in front of the listener, behind a trait: those of the kernel are in `kernel`
//! bed          two namespaces, one link that the flood and the clients share; or a gateway between them, with two links
//! relay        the flood's way to a gateway of packet rings
//! addresses    who has which, in IPv4 or IPv6
//! attack       the generator: spoofed SYNs, live frames
//! clients      connect, ask, read the answer, close
//! server       the service
//! counters     of interfaces and TCP; `account` says by them where the flood's packets ended
//! cores        which core does what
//! run          all modes and rates
//! ```

mod account;
mod addresses;
mod attack;
mod bed;
mod clients;
mod cores;
mod counters;
mod kernel;
mod protection;
mod relay;
mod run;
mod server;

pub use cores::FloodCores;
pub use kernel::{KernelMode, kernel_modes};
pub use protection::{Counter, Layout, Place, Protecting, Protection};
pub use run::{FloodConfig, Rate, run_flood};
