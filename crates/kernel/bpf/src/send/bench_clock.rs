//! What reading the clock of the bench's stamps costs inside a kernel program, and how fine it is.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::Ordering,
};

use libbpf_rs::{
    MapHandle, libbpf_sys,
    skel::{OpenSkel, SkelBuilder},
};
use sys::map_mmap::SharedMemory;

use crate::{
    skel::bench_clock::{BenchClockSkelBuilder, types::bss},
    xdp::{XdpError, quiet_libbpf},
};

const PROGRAM: &str = "ek_bench_clock";
const READINGS: usize = size_of::<bss>() / 8;
/// Runs of the program; the median of them counts.
const RUNS: usize = 31;

/// What a reading of the clock costs, and how fine it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockCost {
    /// One reading, in nanoseconds: the median over runs of many in a row.
    pub cost_ns: f64,
    /// The least difference between two readings that differ, in nanoseconds. It cannot be seen finer than a reading takes.
    pub resolution_ns: f64,
}

/// Measures the clock (bpf_ktime_get_ns) on this CPU; takes about a millisecond, and tens more for the kernel's bookkeeping.
///
/// # Errors
/// What loading a program or BPF_PROG_TEST_RUN answers; [`XdpError::Map`] as well for a clock that stands still.
pub fn clock() -> Result<ClockCost, XdpError> {
    quiet_libbpf();
    let failed = |source| XdpError::load(PROGRAM, source);
    let refused = |operation, source| XdpError::Map { program: PROGRAM, operation, source };
    let mut object = MaybeUninit::uninit();
    let skel = BenchClockSkelBuilder::default().open(&mut object).map_err(failed)?.load().map_err(failed)?;
    let readings = MapHandle::try_from(&skel.maps.bss).map_err(failed)?;
    let readings =
        SharedMemory::of(readings.as_fd(), size_of::<bss>(), 0).map_err(|e| refused("map the readings", e))?;
    let frame = [0u8; 64];
    let mut costs = Vec::with_capacity(RUNS);
    let mut finest = u64::MAX;
    for _ in 0..RUNS {
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: the descriptor is alive; `opts` carries its own size and points at the frame, which outlives the call.
        let code =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(skel.progs.ek_bench_clock.as_fd().as_raw_fd(), &raw mut opts) };
        if code < 0 {
            return Err(refused("test", io::Error::from_raw_os_error(-code)));
        }
        let seen: Vec<u64> = (0..READINGS).map(|i| readings.word(8 * i).load(Ordering::Relaxed)).collect();
        costs.push((seen[READINGS - 1] - seen[0]) as f64 / (READINGS - 1) as f64);
        let steps = seen.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        finest = finest.min(steps.filter(|&step| step > 0).min().unwrap_or(u64::MAX));
    }
    if finest == u64::MAX {
        return Err(refused("see the clock go on in a run", io::Error::other("all its readings are the same")));
    }
    costs.sort_by(f64::total_cmp);
    Ok(ClockCost { cost_ns: costs[RUNS / 2], resolution_ns: finest as f64 })
}
