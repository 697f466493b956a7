//! Which load to try next. Pure: what is told decides what is asked, so that a search is resumed by telling it its trials again.

mod belief;
mod binary;
mod bounds;
mod classify;
mod mlr;
mod preset;
mod words;

pub use binary::BinarySearch;
pub use classify::{Bound, Counted, Evidence, Told};
pub use mlr::{Limits, Search, Step};
pub use preset::{BurstOrder, CurveOrder, LatencyOrder, NAMES, Preset, Readings, RecoveryOrder, Repeated, ResetOrder};
