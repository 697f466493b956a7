//! What the tester's time stamps cost, and how fine they are.

use model::bench::Stamps;

use crate::BenchError;

/// Measures the clock of the stamps on this CPU. `one_in`: one unit in this many is stamped in trials of throughput.
///
/// # Errors
/// When the kernel program that reads the clock cannot be loaded or run.
pub fn stamps(one_in: u32) -> Result<Stamps, BenchError> {
    let clock = bpf::bench_rx::clock()?;
    Ok(Stamps { cost_ns: clock.cost_ns, resolution_ns: clock.resolution_ns, one_in })
}
