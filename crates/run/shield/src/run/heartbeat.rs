//! The heartbeat: when it stops, the program in the kernel fails open or closed by itself.

use std::{sync::Arc, sync::atomic::Ordering, thread::park_timeout, time::Duration};

use bpf::filter::ShieldShared;
use sys::worker::Worker;

use crate::error::ShieldError;

/// The thread beats this often.
pub(super) const BEAT_PERIOD: Duration = Duration::from_millis(100);

pub(super) fn beat(shared: Arc<ShieldShared>) -> Result<Worker, ShieldError> {
    let beat = Worker::start("ek-heart", move |stop| {
        while !stop.load(Ordering::Relaxed) {
            shared.beat();
            park_timeout(BEAT_PERIOD);
        }
    });
    beat.map_err(ShieldError::Thread)
}
