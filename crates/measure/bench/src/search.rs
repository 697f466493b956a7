//! The choice of the next load. Pure: the recorded trials decide, so that a search is resumed by recording its trials again.

mod belief;
mod binary;
mod bounds;
mod classify;
mod flat;
mod mlr;
mod preset;
mod reason;

pub use binary::BinarySearch;
pub use classify::{Bound, Counted, Evidence, TrialResult};
pub use flat::SameLoss;
pub use mlr::{Limits, Search, Step};
pub use preset::{BurstOrder, CurveOrder, LatencyOrder, NAMES, Preset, Readings, RecoveryOrder, Repeated, ResetOrder};
