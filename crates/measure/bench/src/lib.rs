//! The RFC 2544 bench: what a router or firewall really does.
//!
//! ```text
//! search    which load to try next (pure)                     throughput
//! methods   which trials a test is made of, over a Tester     loss curve, bursts, latency, recovery, reset
//! tester    one trial on real ports: send, drain, count, judge
//! frames    what is sent, as the sender's table: sizes, fragments, flows, a capture file
//! dut       the box under test: a lab, or two ports to an outside one
//! flood     clients beside a flood of spoofed SYNs: what a protection leaves of a service
//! route_compare  the ways to forward of `route`, beside each other
//! guest     a guest as the box: what its card model asks for
//! neighbour  what noisy neighbours cost a box, and what protects it
//! run       a whole run: boxes, frames, tests, in order; resumable
//! observer  the load, the work and the drops of a lab's box during a trial
//! benches   the real boxes of a run, each with a tester at its ports and an observer
//! ```
//!
//! A run that is resumed answers the methods from the trials it has, so that no method knows of interruptions. The ports of a lab have receive rings (CPU
//! maps on the box's cores), as a veth alone holds 256 frames.

pub mod benches;
pub mod dut;
pub mod error;
pub mod flood;
pub mod frames;
pub mod guest;
pub mod histogram;
mod keyed;
pub mod methods;
pub mod neighbour;
mod observer;
pub mod order;
pub mod outside;
mod patience;
pub mod route_compare;
pub mod run;
pub mod search;
pub mod tester;

pub use dut::{Cores, Dut, DutKind, DutOptions, ResetKind, RuleOrder, TestPort};
pub use error::BenchError;
pub use order::{Drain, Load, Meanwhile, Observer, Order, Probes, Stamping, Tester};
pub use patience::{PLANNED_TIME_FACTOR_MAX, Patience, VOID_TRIALS_MAX};
