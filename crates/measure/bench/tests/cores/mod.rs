//! Which CPUs of this machine do what.

use bench::Cores;

/// The cores of this machine.
pub(crate) fn cores() -> Cores {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    Cores::split(&model::CpuSet::parse_list(online.trim()).unwrap()).unwrap()
}
