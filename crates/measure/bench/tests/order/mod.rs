//! Orders for trials of tests.

use std::time::Duration;

use bench::{Drain, Load, Order, Stamping};
use model::bench::FrameSpec;

/// An order of units that are all stamped.
pub(crate) fn order(frame: FrameSpec, load: Load, duration: Duration) -> Order {
    Order {
        purpose: "test".into(),
        frame,
        load,
        duration,
        probes: None,
        stamping: Stamping::Every,
        drain: Drain { quiet: Duration::from_millis(50), longest: Duration::from_secs(2), slack: 0.03 },
        observe: false,
    }
}
