//! What a router is asked for.

use std::time::Duration;

use bpf::XdpMode;
use model::{
    CpuSet,
    route::{CtMark, RouteMode},
};

/// How the router is to run.
#[derive(Debug, Clone)]
pub struct RouteSettings {
    pub ports: Vec<String>,
    /// Native, or generic where a driver has no XDP.
    pub xdp: XdpMode,
    /// Next hops, and connections, of each IP version that each CPU remembers; none: as many as suit the routes.
    pub slots: Option<u32>,
    pub mode: RouteMode,
    /// Go back to the mode wanted when an obstacle is gone.
    pub returns: bool,
    /// Compare with the kernel for so long before the fast path forwards.
    pub trial: Duration,
    /// The mark of the connections that mode stateful takes.
    pub mark: CtMark,
    /// The CPUs that forward; empty: the cores that receive.
    pub cpus: CpuSet,
    /// Frames that the queue of a port to each of these CPUs holds.
    pub queue: u32,
}
