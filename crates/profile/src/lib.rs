//! What the CPU time goes to: sampled kernel stacks, by class, per core and per packet.

pub mod classify;
pub mod packets;
pub mod perf_script;
pub mod recorder;
pub mod rules;
pub mod tally;

pub use classify::{LockUse, Verdict, classify};
pub use packets::PerPacket;
pub use recorder::{MAX_HZ, RecordError, Recorder, RecorderOptions, Recording};
pub use rules::{Rule, RuleError, Rules};
pub use tally::{Seen, StatTime, Tally};
