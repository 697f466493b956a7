//! Messages over link beside other ways to exchange them, between two namespaces of this machine.
//!
//! ```text
//! plan    what is measured, in which order (pure)
//! bed     the two namespaces, as the conditions want them
//! end     one end of each way: send, receive, write, read
//! ping    messages there and back between two threads
//! xdp     the ends of AF_XDP
//! bulk    many bytes one way
//! incast  many bytes of several nodes to one
//! crowd   many connections
//! carry   does the steps, round by round
//! between  the same between two machines
//! ```
//!
//! A further way is a [`Transport`], an end of its own and its places in [`Plan::new`].

mod bed;
mod between;
mod brokered;
mod bulk;
mod carry;
mod crowd;
mod end;
mod incast;
mod ping;
mod plan;
mod sockets;
mod xdp;

use crate::MessagesError;

pub use between::{Between, answer, carry_out_between};
pub use carry::carry_out;

pub use plan::{BenchOptions, Plan, Step, Transport, Workload};
