//! The trials of one condition.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use model::bench::{
    Trial,
    neighbour::{Measure, Reading},
};

use sys::affinity::set_nice_of_current_thread;

use super::{
    kind::Remedy,
    threads::{BoxThreads, Times, between},
};
use crate::{
    BenchError, Load, Meanwhile, Order, Probes, Stamping,
    methods::{Bench, Tried},
};

/// From this part of a core that the hypervisor took, in percent, a trial is thrown away.
const STEAL_MAX: f64 = 5.0;
/// A trial that was thrown away for it is made again so often.
const STEAL_RETRIES_MAX: u32 = 3;
/// The nice value of who comes first.
const NICE_MIN: i32 = -20;
/// Time between two probes, and from the beginning to the first.
const PROBES: Probes = Probes { every: Duration::from_millis(5), after: Duration::from_millis(100) };
/// The share of the throughput of the loaded round trip.
pub(super) const LOADED_SHARE: f64 = 0.95;

/// The rates and the length of the trials.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// The fixed rate, in frames per second.
    pub(super) fixed_pps: f64,
    pub(super) throughput_pps: f64,
    pub(super) trial: Duration,
}

/// Makes the trials of a condition. `stolen` counts those that were thrown away.
pub(super) fn read(
    bench: &mut Bench<'_>,
    (threads, remedy): (&BoxThreads, Remedy),
    rates: Rates,
    stolen: &mut u32,
) -> Result<Reading, BenchError> {
    let mut reading = Reading::default();
    let mut trials = Trials { threads, remedy, reading: &mut reading, stolen };
    let mut fixed = bench.order("the fixed rate", Load::Pps(rates.fixed_pps), rates.trial);
    fixed.stamping = Stamping::Every;
    if let Some((trial, times, seconds)) = trials.make(bench, &fixed, "the fixed rate")? {
        let received = trial.total().received;
        let reading = &mut *trials.reading;
        reading.values.insert(Measure::Loss, trial.failed_ratio());
        delays(&trial, reading);
        if received > 0 {
            reading.values.insert(Measure::Cpu, times.ran_ns as f64 / received as f64);
        }
        reading.values.insert(Measure::Waiting, times.waited_ns as f64 / 1e9 / seconds);
    }
    let loads = [
        (Measure::IdleTrip, Load::Idle, "the idle round trip"),
        (Measure::LoadedTrip, Load::Pps(LOADED_SHARE * rates.throughput_pps), "the round trip at 95 %"),
    ];
    for (measure, load, what) in loads {
        let mut order = bench.order(what, load, rates.trial);
        order.probes = Some(PROBES);
        if let Some((trial, ..)) = trials.make(bench, &order, what)? {
            match trial.round_trip {
                Some(trips) => {
                    trials.reading.values.insert(measure, trips.mean_ns);
                }
                None => trials.reading.missing.push(format!("{what}: no probe came back")),
            }
        }
    }
    Ok(reading)
}

/// Reads the delays of the worse direction.
fn delays(trial: &Trial, reading: &mut Reading) {
    let both = || trial.one_way.iter().flatten();
    let most = |of: fn(&model::bench::Delays) -> f64| both().map(of).reduce(f64::max);
    let all = [
        (Measure::Median, most(|d| d.p50_ns as f64)),
        (Measure::P99, most(|d| d.p99_ns as f64)),
        (Measure::Max, most(|d| d.max_ns as f64)),
        (Measure::Jitter, both().filter_map(|d| d.jitter_ns).reduce(f64::max)),
    ];
    reading.values.extend(all.into_iter().filter_map(|(measure, value)| Some((measure, value?))));
}

/// Has this thread, and those that it starts meanwhile, run before others; until it is dropped.
struct First;

impl First {
    fn begin() -> Result<Self, BenchError> {
        set_nice_of_current_thread(NICE_MIN)
            .map_err(|e| BenchError::Machine(format!("cannot run before a neighbour: {e}")))?;
        Ok(Self)
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // Less is never refused.
        let _ = set_nice_of_current_thread(0);
    }
}

struct Trials<'a> {
    threads: &'a BoxThreads,
    remedy: Remedy,
    reading: &'a mut Reading,
    stolen: &'a mut u32,
}

impl Trials<'_> {
    /// A trial that counts, with the time of the box's threads in it and its seconds; none, and a word why, if there is none.
    fn make(
        &mut self,
        bench: &mut Bench<'_>,
        order: &Order,
        what: &str,
    ) -> Result<Option<(Box<Trial>, Times, f64)>, BenchError> {
        let begun = Mutex::new(None);
        let threads = self.threads;
        // Only once the trial has begun are the threads there for sure.
        let begin = || {
            threads.schedule(self.remedy)?;
            let times = threads.times()?;
            *begun.lock().unwrap_or_else(PoisonError::into_inner) = Some((times, Instant::now()));
            Ok(())
        };
        // Both CPUs may be busy: the look must not wait until the trial is over.
        let _first = First::begin()?;
        for _ in 0..=STEAL_RETRIES_MAX {
            match bench.attempt_with(order, Some(Meanwhile { after: Duration::ZERO, work: &begin }))? {
                Tried::Good(trial) if trial.observed.steal_percent <= STEAL_MAX => {
                    let now = threads.times()?;
                    let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let (before, at) = begun.ok_or(BenchError::Panicked("look at the box's threads"))?;
                    self.reading.steal_percent = self.reading.steal_percent.max(trial.observed.steal_percent);
                    let times = between(&before, &now);
                    return Ok(Some((trial, times, at.elapsed().as_secs_f64())));
                }
                Tried::Good(_) => *self.stolen += 1,
                Tried::Void { reason, .. } => {
                    self.reading.missing.push(format!("{what}: {reason}"));
                    return Ok(None);
                }
            }
        }
        let times = STEAL_RETRIES_MAX + 1;
        self.reading
            .missing
            .push(format!("{what}: a hypervisor took more than {STEAL_MAX} % of a core in {times} trials"));
        Ok(None)
    }
}
