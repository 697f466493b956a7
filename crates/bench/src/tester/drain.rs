//! Waiting until nothing arrives any more.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bpf::bench_rx::{BenchReceiver, BenchRxCounts};

use crate::{BenchError, Drain};

/// The least time between two looks: a look takes some of the receivers' core.
const LOOK: Duration = Duration::from_millis(1);

/// The counts of both receivers once nothing has arrived for `drain.quiet`, or after `drain.longest`.
pub(super) fn wait(
    receivers: &[BenchReceiver; 2],
    drain: &Drain,
    stop: &AtomicBool,
) -> Result<[BenchRxCounts; 2], BenchError> {
    let start = Instant::now();
    let (mut seen, mut since) = (read(receivers)?, start);
    while since.elapsed() < drain.quiet && start.elapsed() < drain.longest {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        thread::sleep((drain.quiet / 4).max(LOOK));
        let now = read(receivers)?;
        if ours(&now) != ours(&seen) {
            since = Instant::now();
        }
        seen = now;
    }
    Ok(seen)
}

fn read(receivers: &[BenchReceiver; 2]) -> Result<[BenchRxCounts; 2], BenchError> {
    Ok([receivers[0].counts()?, receivers[1].counts()?])
}

/// Without strays, which may come for ever.
fn ours(counts: &[BenchRxCounts; 2]) -> [BenchRxCounts; 2] {
    counts.map(|c| BenchRxCounts { stray: 0, ..c })
}
