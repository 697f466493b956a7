//! How tests start a router.

use std::time::Duration;

use bpf::XdpMode;
use model::{
    CpuSet,
    route::{CtMark, RouteMode},
};
use route::RouteSettings;

/// Mode standard, native, no trial, and back when an obstacle is gone.
pub(crate) fn settings(ports: &[&str]) -> RouteSettings {
    RouteSettings {
        ports: ports.iter().map(|&port| port.to_owned()).collect(),
        xdp: XdpMode::Native,
        slots: Some(4096),
        mode: RouteMode::Standard,
        auto_return: true,
        trial: Duration::ZERO,
        mark: CtMark::default(),
        cpus: CpuSet::new(),
        queue: 2048,
    }
}
