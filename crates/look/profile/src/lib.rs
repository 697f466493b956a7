//! CPU time by class of work: sampled kernel stacks, per core and per packet.
//!
//! A [`Recorder`] samples the live machine; the kernel counts equal stacks, and time in which a core slept is filled in from /proc/stat, so that shares
//! add up to the whole core. [`rules`] is one table of functions and their classes (`classes.txt`), [`classify`](mod@classify) applies it to a stack,
//! [`tally`] sums, [`packets`] divides by what the interfaces counted, [`compare`](mod@compare) holds two profiles together, [`flame`] draws. [`perf_script`] reads
//! what `perf script` printed elsewhere.

pub mod classify;
pub mod compare;
pub mod flame;
pub mod packets;
pub mod perf_script;
pub mod recorder;
pub mod rules;
pub mod tally;

pub use classify::{Classification, LockUse, classify};
pub use compare::compare;
pub use flame::{FlameError, flame_graph};
pub use packets::PerPacket;
pub use recorder::{FREQUENCY_HZ_MAX, RecordError, Recorder, RecorderOptions, Recording};
pub use rules::{Rule, RuleError, Rules};
pub use tally::{Party, Seen, SetApart, StatTime, Tally};
