//! What the CPU time goes to: sampled kernel stacks, by class, per core and per packet.

pub mod classify;
pub mod compare;
pub mod flame;
pub mod packets;
pub mod perf_script;
pub mod recorder;
pub mod rules;
pub mod sweep;
pub mod tally;

pub use classify::{LockUse, Verdict, classify};
pub use compare::compare;
pub use flame::{FlameError, flame_graph};
pub use packets::PerPacket;
pub use recorder::{MAX_HZ, RecordError, Recorder, RecorderOptions, Recording};
pub use rules::{Rule, RuleError, Rules};
pub use tally::{Party, Seen, SetApart, StatTime, Tally};
