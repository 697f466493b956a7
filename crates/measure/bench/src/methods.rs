//! The trials of each test, and the result made of them. All of it works on a [`Tester`](crate::Tester), so that simulated boxes
//! prove it; how long and how often is said by a [`Preset`](crate::search::Preset).
//!
//! ```text
//! ceiling        what the tester itself can do, without a box
//! throughput     a search: RFC 2544 26.1, RFC 9971
//! loss_curve     loss against offered rate: RFC 2544 26.3
//! back_to_back   the longest burst without loss: RFC 2544 26.4, RFC 9004
//! latency        round trips and one-way delays: RFC 2544 26.2, RFC 5481
//! jitter         RFC 3550 6.4.1
//! load           one load, and what the box's cores do under it
//! recovery       after overload: RFC 2544 26.5
//! reset          RFC 6201
//! ```

mod bench;
mod burst;
mod ceiling;
mod curve;
mod jitter;
mod latency;
mod load;
mod recovery;
mod reset;
mod settle;
#[cfg(test)]
pub(crate) mod simulated;
mod throughput;

pub use bench::{Answer, Bench, Tried};
pub use burst::back_to_back;
pub use ceiling::{ceiling, sender_ceiling};
pub use curve::loss_curve;
pub use jitter::jitter;
pub use latency::{flag_idle, latency};
pub use load::load;
pub use recovery::recovery;
pub use reset::reset;
pub use settle::Settling;
pub use throughput::throughput;
