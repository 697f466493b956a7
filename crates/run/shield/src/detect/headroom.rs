//! Headroom of the machine's busiest CPU: a limit that holds before a baseline is learned.

use std::{collections::BTreeMap, time::Duration};

use host::counters::{CpuTime, core_load};

/// Times of CPUs come in ticks of 10 ms: over a second a share of them is told to 1 %.
const PERIOD: Duration = Duration::from_secs(1);
/// No packet costs a CPU more time: one that spends its soft interrupts otherwise is not kept busy by packets.
const COST_MAX_S: f64 = 20e-6;

/// The share of soft interrupts in the time of the busiest CPU, beside the packets that came meanwhile.
#[derive(Debug, Clone, Default)]
pub(super) struct Headroom {
    at: Duration,
    packets: u64,
    cpus: BTreeMap<u32, CpuTime>,
    ceiling: Option<f64>,
}

impl Headroom {
    /// A second has gone by since the last look, or there was none.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.cpus.is_empty() || now.saturating_sub(self.at) >= PERIOD
    }

    /// Takes a look at `now`: `packets` is their count since the start, `cpus` the times of all CPUs. `busy_max` is the share of soft interrupts, 0 to 1,
    /// above which a CPU counts as busy.
    pub(super) fn look(&mut self, now: Duration, packets: u64, cpus: BTreeMap<u32, CpuTime>, busy_max: f64) {
        let seconds = now.saturating_sub(self.at).as_secs_f64().max(1e-3);
        let pps = packets.saturating_sub(self.packets) as f64 / seconds;
        let busy = cpus.iter().filter_map(|(cpu, time)| Some(core_load(*cpu, self.cpus.get(cpu)?, time)));
        // What the hypervisor takes is nobody's to spend.
        let busy = busy.map(|load| load.softirq_percent / (100.0 - load.steal_percent).max(1.0)).fold(0.0, f64::max);
        self.ceiling = (busy > busy_max && busy <= pps * COST_MAX_S).then(|| pps * busy_max / busy);
        (self.at, self.packets, self.cpus) = (now, packets, cpus);
    }

    /// The packets per second with which the busiest CPU would be at `busy_max`, at the cost of those of the last second; none: it was below that.
    pub(super) fn ceiling(&self) -> Option<f64> {
        self.ceiling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of two CPUs, of which the second spends `softirq` of 100 ticks on soft interrupts and loses `steal`.
    fn after(pps: u64, softirq: u64, steal: u64) -> Option<f64> {
        let mut headroom = Headroom::default();
        assert!(headroom.is_due(Duration::ZERO));
        headroom.look(Duration::from_secs(10), 1_000, [(0, CpuTime::default()), (1, CpuTime::default())].into(), 0.6);
        assert_eq!(headroom.ceiling(), None, "nothing to compare with");
        assert!(!headroom.is_due(Duration::from_millis(10_950)) && headroom.is_due(Duration::from_secs(11)));
        let busy = CpuTime { softirq, steal, idle: 100 - softirq - steal, ..CpuTime::default() };
        let calm = CpuTime { idle: 100, ..CpuTime::default() };
        headroom.look(Duration::from_secs(11), 1_000 + pps, [(0, calm), (1, busy)].into(), 0.6);
        headroom.ceiling()
    }

    #[test]
    fn the_ceiling_is_what_the_busiest_cpu_takes() {
        assert_eq!(after(400_000, 60, 0), None, "not above it");
        assert_eq!(after(400_000, 80, 0), Some(300_000.0));
        assert_eq!(after(400_000, 40, 50), Some(300_000.0), "80 % of what the hypervisor leaves");
        assert_eq!(after(20_000, 80, 0), None, "40 us a packet: it is busy with something else");
    }
}
