//! What communication costs as nodes are added: steps of work on 1 to 8 namespaces of this machine, over link and over TCP.
//!
//! ```text
//! plan     which numbers of nodes, exchanges and carriers, in which order (pure)
//! mesh     a node of either carrier: waits, exchanges values
//! native   the nodes of link
//! tcp      the nodes of TCP
//! node     the steps of one node
//! cluster  the nodes of a carrier, each in a thread of its own
//! run      does the turns, round by round, and fits the model
//! ```
//!
//! Namespaces of one machine stand for nodes, and share its CPUs: a step is computed by waiting. A further exchange is a variant of
//! [`model::speedup::Exchange`] and its peers in `node`.

mod cluster;
mod error;
mod mesh;
mod native;
mod node;
mod plan;
mod run;
mod tcp;

pub use error::SpeedupError;
pub use plan::{Asked, By, NODES_MAX, Plan, Turn};
pub use run::carry_out;
