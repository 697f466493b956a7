//! CPU load of one core over one interval.

use serde::{Deserialize, Serialize};

/// The time of one core, in percent of the interval; the parts add up to 100.
///
/// The source is `/proc/stat` (Documentation/filesystems/proc.rst, "1.7 Miscellaneous kernel statistics"), so the
/// resolution is one tick of USER_HZ (10 ms).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CoreLoad {
    pub cpu: u32,
    /// User programs, niced ones included.
    pub user_percent: f64,
    /// System calls and kernel threads.
    pub system_percent: f64,
    pub irq_percent: f64,
    /// Soft interrupts: most of the packet work.
    pub softirq_percent: f64,
    /// Taken by the hypervisor for other guests.
    pub steal_percent: f64,
    /// Idle, waiting for I/O included.
    pub idle_percent: f64,
}

impl CoreLoad {
    /// The load: all that was neither idle nor stolen, in percent.
    pub fn busy_percent(&self) -> f64 {
        self.user_percent + self.system_percent + self.irq_percent + self.softirq_percent
    }
}
