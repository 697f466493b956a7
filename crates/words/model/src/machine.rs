//! The machine that a measurement was made on.

use serde::{Deserialize, Serialize};

/// The machine that a run was made on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    pub hostname: String,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// The model name from `/proc/cpuinfo`.
    pub cpu_model: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// The hypervisor, such as `KVM`, when the machine is a guest; none on hardware of its own.
    pub virtualised: Option<String>,
}
