//! Cost of communication as nodes are added: steps of work on 1 to 8 nodes, over link and over TCP.
//!
//! ```text
//! plan     which numbers of nodes, exchanges and carriers, in which order (pure)
//! mesh     a node of either carrier: waits, exchanges values
//! native   the nodes of link
//! tcp      the nodes of TCP
//! node     the steps of one node
//! cluster  the nodes of a carrier, each in a thread of its own
//! between  nodes on machines of their own
//! run      does the turns, round by round, and fits the model
//! ```
//!
//! Nodes are machines, or namespaces of this one, which share its CPUs. Computing a step is a wait. A further exchange is a variant of
//! [`model::speedup::Exchange`] and its peers in `node`.

mod between;
mod cluster;
mod mesh;
mod native;
mod node;
mod plan;
mod run;
mod tcp;

use crate::MessagesError;

pub use between::answer_as_node;

pub use plan::{NODES_MAX, Plan, SpeedupOptions, Transport, Trial};
pub use run::{carry_out, carry_out_between};
