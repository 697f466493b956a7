//! Programs that watch the kernel: the packets that it drops, the sockets that lose some, the cost of receiving, the memory that packets take.
//!
//! An event that can come millions of times per second is counted each time and looked at as often as a share of the CPU pays for.

pub(crate) mod allocations;
pub mod drop_reasons;
pub mod drops;
pub(crate) mod napi_cost;
pub mod profile;
pub(crate) mod ring_sockets;
pub(crate) mod xmit_drops;
