//! The stretch of time that is measured.

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use host::counters::{CpuTime, core_load, cpu_times};
use model::CoreLoad;

use crate::MeasureError;

/// From this share of the CPU time on that a hypervisor took, in percent, a measurement says more about others than about us.
pub const STEAL_LIMIT_PERCENT: f64 = 2.0;
/// Measurements that were disturbed are made so many times at most.
pub const STEAL_TRIES_MAX: u32 = 3;
/// The time between two looks at the stop flag.
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// Waits, but not longer than until `stop` is set.
pub fn pause(duration: Duration, stop: &AtomicBool) {
    let end = Instant::now() + duration;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(POLL_PERIOD));
    }
}

/// Measures until the hypervisor took no more than [`STEAL_LIMIT_PERCENT`] of the time (`steal_of`, in percent), at most [`STEAL_TRIES_MAX`] times.
/// With a note if it took more in each of them.
pub fn undisturbed<T, E>(
    mut measure: impl FnMut() -> Result<T, E>,
    steal_of: impl Fn(&T) -> f64,
) -> Result<(T, Option<String>), E> {
    let mut measured = measure()?;
    for _ in 1..STEAL_TRIES_MAX {
        if steal_of(&measured) <= STEAL_LIMIT_PERCENT {
            break;
        }
        measured = measure()?;
    }
    let steal = steal_of(&measured);
    let note = (steal > STEAL_LIMIT_PERCENT).then(|| {
        format!("the hypervisor took {steal:.1} % of the CPU time from this machine in each of {STEAL_TRIES_MAX} tries")
    });
    Ok((measured, note))
}

/// The load of every core between two moments.
#[derive(Debug)]
pub struct LoadMeter {
    begin: BTreeMap<u32, CpuTime>,
}

impl LoadMeter {
    pub fn start() -> Result<Self, MeasureError> {
        Ok(Self { begin: times()? })
    }

    /// The loads since the start.
    pub fn finish(self) -> Result<Vec<CoreLoad>, MeasureError> {
        let load = |(&cpu, now)| Some(core_load(cpu, self.begin.get(&cpu)?, now));
        Ok(times()?.iter().filter_map(load).collect())
    }
}

fn times() -> Result<BTreeMap<u32, CpuTime>, MeasureError> {
    Ok(cpu_times(&fs::read_to_string("/proc/stat").map_err(MeasureError::Load)?))
}

/// Steal time as a share of all cores' time, in percent.
pub fn steal_percent(cores: &[CoreLoad]) -> f64 {
    cores.iter().map(|c| c.steal_percent).sum::<f64>() / cores.len().max(1) as f64
}

/// Busy nanoseconds of all cores together in a second.
pub fn busy_ns_per_second(cores: &[CoreLoad]) -> f64 {
    cores.iter().map(CoreLoad::busy_percent).sum::<f64>() * 1e7
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_disturbed_measurement_is_made_again_and_reported_only_if_all_were() {
        let run = |steals: &[f64]| {
            let mut left = steals.iter().copied();
            let (last, note) = undisturbed(|| Ok::<_, Infallible>(left.next().unwrap()), |steal| *steal).unwrap();
            (last, note.is_some(), left.count())
        };
        assert_eq!(run(&[0.0, 9.0, 9.0]), (0.0, false, 2));
        assert_eq!(run(&[9.0, 8.0, 1.0]), (1.0, false, 0));
        assert_eq!(run(&[9.0, 8.0, 7.0]), (7.0, true, 0));
    }
}
