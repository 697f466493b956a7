//! Which load to try next. Pure: what is told decides what is asked, so that a search is resumed by telling it its trials again.

mod preset;

pub use preset::{BurstOrder, CurveOrder, LatencyOrder, NAMES, Preset, Readings, RecoveryOrder, Repeated, ResetOrder};
