//! The nodes of a run on machines of their own: a process on each, which ssh starts, and which has its connections to all others.
//!
//! ```text
//! orders   orders to the processes, and their answers
//! worker   the process of a node
//! cluster  the processes of all nodes
//! ```

mod cluster;
mod orders;
mod worker;

pub(super) use cluster::Machines;
pub use worker::answer_as_node;
