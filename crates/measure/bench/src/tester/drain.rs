//! Counts arrivals after the end of sending: in the box's time, late, and until the box is empty.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bpf::bench_rx::{BenchReceiver, BenchRxCounts};
use model::bench::Aftermath;

use crate::{BenchError, Drain, Load, Order};

/// The least time between two looks: a look takes some of the receivers' core.
const POLL_PERIOD: Duration = Duration::from_millis(1);
/// The time between two looks at the stop flag.
const STOP_POLL_PERIOD: Duration = Duration::from_millis(50);

/// The receivers' counts when the box is empty, or was given up.
pub(super) struct Drained {
    pub(super) counts: [BenchRxCounts; 2],
    /// Units of each direction that came only after the box's time was over.
    pub(super) late: [u64; 2],
    pub(super) after: Aftermath,
}

/// Counts what comes after `ended`, when the last of `seconds` of units was sent, until nothing has arrived for `order.drain.quiet`.
pub(super) fn wait(
    receivers: &[BenchReceiver; 2],
    order: &Order,
    (ended, seconds): (Instant, f64),
    stop: &AtomicBool,
) -> Result<Drained, BenchError> {
    let drain = &order.drain;
    let in_time = match order.load {
        Load::Pps(_) | Load::Max => Some(in_time(receivers, drain, (ended, seconds), stop)?),
        Load::Burst(_) | Load::Steps(_) | Load::Idle => None,
    };
    let Emptied { counts, drained, empty } = empty(receivers, drain, ended, stop)?;
    let late = in_time.as_ref().map_or([0; 2], |(units, _)| [0, 1].map(|way| counts[way].units - units[way]));
    let after = Aftermath {
        late_after_ns: in_time.map_or(0, |(_, after)| after.as_nanos() as u64),
        drained_ns: drained.as_nanos() as u64,
        undrained: !empty,
        leftover: counts.iter().map(|c| c.leftover).sum(),
    };
    Ok(Drained { counts, late, after })
}

/// Units of each direction that came within the box's time, and how long after the end of sending it was over: the trial's least delay and
/// the slack.
fn in_time(
    receivers: &[BenchReceiver; 2],
    drain: &Drain,
    (ended, seconds): (Instant, f64),
    stop: &AtomicBool,
) -> Result<([u64; 2], Duration), BenchError> {
    let mut least_ns = 0;
    for receiver in receivers {
        least_ns = least_ns.max(receiver.delays()?.min_ns);
    }
    let until = ended + (Duration::from_nanos(least_ns) + drain.slack_of(seconds)).min(drain.longest);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        interrupted(stop)?;
        thread::sleep(left.min(STOP_POLL_PERIOD));
    }
    let counts = read(receivers)?;
    Ok((counts.map(|c| c.units), ended.elapsed()))
}

/// A box that is empty, as far as can be told from outside.
pub(super) struct Emptied {
    counts: [BenchRxCounts; 2],
    /// Time from the beginning to the last arrival that was seen.
    drained: Duration,
    /// Otherwise it was given up.
    pub(super) empty: bool,
}

/// Waits until nothing has arrived for `drain.quiet`, at most `drain.longest` from `start`.
pub(super) fn empty(
    receivers: &[BenchReceiver; 2],
    drain: &Drain,
    start: Instant,
    stop: &AtomicBool,
) -> Result<Emptied, BenchError> {
    let begun = Instant::now();
    let mut seen = read(receivers)?;
    let (mut since, mut drained) = (begun, Duration::ZERO);
    while since.elapsed() < drain.quiet {
        if start.elapsed() >= drain.longest.max(drain.quiet) {
            return Ok(Emptied { counts: seen, drained, empty: false });
        }
        interrupted(stop)?;
        thread::sleep((drain.quiet / 4).max(POLL_PERIOD).min(STOP_POLL_PERIOD));
        let now = read(receivers)?;
        if ours(&now) != ours(&seen) {
            since = Instant::now();
            drained = start.elapsed();
        }
        seen = now;
    }
    Ok(Emptied { counts: seen, drained, empty: true })
}

fn interrupted(stop: &AtomicBool) -> Result<(), BenchError> {
    if stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

fn read(receivers: &[BenchReceiver; 2]) -> Result<[BenchRxCounts; 2], BenchError> {
    Ok([receivers[0].counts()?, receivers[1].counts()?])
}

/// Without strays, which may come for ever.
fn ours(counts: &[BenchRxCounts; 2]) -> [BenchRxCounts; 2] {
    counts.map(|c| BenchRxCounts { stray: 0, ..c })
}
