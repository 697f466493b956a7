//! The nodes of a run on machines of their own: a process on each, which ssh starts, and which has its connections to all others.
//!
//! ```text
//! words    what the processes are told, and answer
//! far      the process of a node
//! cluster  the processes of all nodes
//! ```

mod cluster;
mod far;
mod words;

pub(super) use cluster::Machines;
pub use far::answer_as_node;
