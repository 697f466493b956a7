//! Settings of a router.

use std::time::Duration;

use bpf::XdpMode;
use model::{
    CpuSet,
    route::{CtMark, RouteMode},
};

/// Settings of a router.
#[derive(Debug, Clone)]
pub struct RouteSettings {
    pub ports: Vec<String>,
    /// Native, or generic where a driver has no XDP.
    pub xdp: XdpMode,
    /// Next hops, and connections, of each IP version that each CPU remembers; none: as many as suit the routes.
    pub slots: Option<u32>,
    pub mode: RouteMode,
    /// Return to the requested mode once no obstacle is left.
    pub auto_return: bool,
    /// Time in shadow before the fast path forwards.
    pub trial: Duration,
    /// The mark of the connections that mode stateful takes.
    pub mark: CtMark,
    /// The CPUs that forward; empty: the cores that receive.
    pub cpus: CpuSet,
    /// Frames that the queue of a port to each of these CPUs holds.
    pub queue: u32,
}
