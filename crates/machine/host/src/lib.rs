//! The machine: CPUs, NUMA, NICs, queues, IRQs, counters (read); knobs and the journal (write).

pub mod counters;
pub mod file;
pub mod journal;
pub mod knob;
pub mod members;
pub mod namespace;
pub mod neighbours;
pub mod netdev;
pub mod picture;
pub mod placement;
pub mod read;
pub mod role;
pub mod root;
pub mod setting;
pub mod snapshot;
pub mod stack;
pub mod symbols;
pub mod wiring;

pub use picture::Host;
pub use read::HostError;
pub use root::{Root, RootError};
