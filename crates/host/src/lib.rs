//! The machine: CPUs, NUMA, NICs, queues, IRQs, counters (read); knobs and the journal (write).

pub mod picture;
pub mod root;

pub use picture::Host;
pub use root::{Root, RootError};
