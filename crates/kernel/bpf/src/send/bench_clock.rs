//! The cost of a reading of the bench's clock inside a kernel program, and its resolution.

use std::{io, mem::MaybeUninit, sync::atomic::Ordering};

use crate::{
    link::XdpError,
    program::Program,
    skel::bench_clock::{BenchClockSkelBuilder, types::bss},
};

const PROGRAM: Program = Program("ek_bench_clock");
const READINGS: usize = size_of::<bss>() / 8;
/// Runs of the program; the median of them counts.
const RUNS: usize = 31;

/// The cost of a reading of the clock, and its resolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockCost {
    /// Cost of a reading, in nanoseconds: the median over runs of many in a row.
    pub cost_ns: f64,
    /// The least difference between two readings that differ, in nanoseconds. It cannot be seen finer than a reading takes.
    pub resolution_ns: f64,
}

/// Measures the clock (bpf_ktime_get_ns) on this CPU; takes about a millisecond, and tens more for the kernel's bookkeeping.
pub fn clock() -> Result<ClockCost, XdpError> {
    let mut object = MaybeUninit::uninit();
    let skel = PROGRAM.load(PROGRAM.open::<BenchClockSkelBuilder>(&mut object)?)?;
    let readings = PROGRAM.memory(&skel.maps.bss, size_of::<bss>(), "map the readings")?;
    let mut costs = Vec::with_capacity(RUNS);
    let mut finest = u64::MAX;
    for _ in 0..RUNS {
        PROGRAM.test(&skel.progs.ek_bench_clock, &[0; 64])?;
        let seen: Vec<u64> = (0..READINGS).map(|i| readings.word(8 * i).load(Ordering::Relaxed)).collect();
        costs.push((seen[READINGS - 1] - seen[0]) as f64 / (READINGS - 1) as f64);
        let steps = seen.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        finest = finest.min(steps.filter(|&step| step > 0).min().unwrap_or(u64::MAX));
    }
    if finest == u64::MAX {
        let still = io::Error::other("all its readings are the same");
        return Err(PROGRAM.failed("see the clock go on in a run", still).into());
    }
    costs.sort_by(f64::total_cmp);
    Ok(ClockCost { cost_ns: costs[RUNS / 2], resolution_ns: finest as f64 })
}
